// SPDX-License-Identifier: Apache-2.0
// Every call of the pipeline takes models, samples, labels and plans from memory, and makes of them what it makes of files: the same bits.
#include <doctest/doctest.h>
#include <onnx/onnx_pb.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "qk/graph/files/file.hpp"
#include "qk/graph/files/npy.hpp"
#include "qk/graph/files/temporary_folder.hpp"
#include "qk/graph/ops/known_values.hpp"
#include "qk/graph/pipeline.hpp"
#include "qk/graph/search/report.hpp"
#include "small_graph.hpp"

#ifdef QK_HAVE_LEARN
#include "qk/graph/learn.hpp"
#endif

using namespace qk::graph;
namespace pipeline = qk::graph::pipeline;
using pipeline::data_source, pipeline::model_source;

namespace {

const std::string digits = std::string(QK_SOURCE_DIR) + "/examples/digits/";
const std::string model_file = digits + "digits.onnx", images = digits + "test_images.npy", labels = digits + "test_labels.npy";

/// Returns rows [first, first + n) of an array, in memory of their own.
tensor rows_of(const tensor& t, std::int64_t first, std::int64_t n) {
    dims shape = t.shape();
    const std::size_t row = t.size_bytes() / static_cast<std::size_t>(shape[0]);
    shape[0] = n;
    tensor part(t.type(), shape);
    std::memcpy(part.bytes(), t.bytes() + static_cast<std::size_t>(first) * row, part.size_bytes());
    return part;
}

/// Returns a function that gives `count` images in batches of 7, the last of which is shorter.
auto batches_of(std::int64_t count) {
    return [all = rows_of(read_npy(images), 0, count), at = std::int64_t{0}](named_tensors& batch) mutable {
        if (at == all.dim(0)) return false;
        const std::int64_t n = std::min<std::int64_t>(7, all.dim(0) - at);
        batch[""] = rows_of(all, at, n);
        at += n;
        return true;
    };
}

std::vector<std::int64_t> first_labels(std::size_t count) {
    const tensor all = read_npy(labels);
    return {all.as<std::int64_t>().begin(), all.as<std::int64_t>().begin() + static_cast<std::ptrdiff_t>(count)};
}

onnx::ModelProto message() {
    onnx::ModelProto m;
    REQUIRE(m.ParseFromString(read_file(model_file)));
    return m;
}

bool same_bits(const named_tensors& a, const named_tensors& b) {
    if (a.size() != b.size()) return false;
    for (const auto& [name, t] : a) {
        const auto other = b.find(name);
        if (other == b.end() || other->second.shape() != t.shape() || other->second.type() != t.type() ||
            std::memcmp(other->second.bytes(), t.bytes(), t.size_bytes()) != 0)
            return false;
    }
    return true;
}

nlohmann::json without(nlohmann::json j, std::initializer_list<const char*> keys) {
    for (const char* key : keys) j.erase(key);
    return j;
}

/// Returns what a call says when it fails.
template <class Call>
std::string refusal(Call call) {
    try {
        call();
    } catch (const error& e) {
        return e.what();
    }
    return "no error";
}
bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("quantize: model, samples and requests in memory give the file's bytes") {
    const temporary_folder folder("qk-memory", "this test");
    std::ofstream(folder / "requests.json") << R"({"default": {"activation": "int8", "weight": "int8"}, "requests": [{"op_type": "Gemm",
        "weight": "int4"}]})";
    pipeline::quantize_settings by_file;
    by_file.model = model_file, by_file.data.inputs = {images}, by_file.data.labels = labels, by_file.data.samples = 40;
    by_file.precision.plan = folder / "requests.json";
    by_file.output = folder / "m.onnx";
    const pipeline::quantize_outcome files = pipeline::quantize(by_file);
    CHECK(files.model.empty());

    pipeline::quantize_settings own;
    own.precision.plan = parse_plan_file(read_file(folder / "requests.json"), by_file.precision.plan.file);
    own.data.labels = first_labels(40), own.returns_model = true;
    const named_tensors arrays{{"image", rows_of(read_npy(images), 0, 40)}};
    for (const model_source& source : {model_source::of_bytes(read_file(model_file)), model_source(message()), model_source(model_file)})
        for (const bool whole : {true, false}) {
            INFO(source.in_memory() << " " << whole);
            own.model = source;
            own.data.inputs = whole ? data_source(arrays) : data_source(batches_of(40));
            const pipeline::quantize_outcome done = pipeline::quantize(own);
            CHECK((done.model == read_file(by_file.output)));
            CHECK((to_json(done.result.plan) == to_json(files.result.plan)));
            CHECK(done.bytes_before == files.bytes_before);
            CHECK(done.bytes_after == files.bytes_after);
            CHECK(done.recipe.quality->top1 == files.recipe.quality->top1);
            const auto facts = [](const nlohmann::json& j) { return without(j, {"model", "output", "peak_bytes"}); };
            CHECK((facts(done.summary) == facts(files.summary)));
            CHECK(done.summary["model"] == source.name());
        }

    // What was returned goes in again: the plan, and the model as bytes.
    pipeline::evaluate_settings again;
    again.model = model_file, again.data.inputs = arrays, again.precision.plan = files.result.plan;
    again.keep_outputs = true;
    pipeline::evaluate_settings saved = again;
    saved.precision.plan = folder / "p.json";
    save_plan(files.result.plan, folder / "p.json");
    CHECK(same_bits(pipeline::evaluate(again).run.outputs, pipeline::evaluate(saved).run.outputs));
    again.precision.plan = std::vector<request>{{.scope = scope::everything, .role = role::weight, .what = parse_precision("int4")}};
    saved.precision.plan = "", saved.precision.weight = "int4";
    CHECK(same_bits(pipeline::evaluate(again).run.outputs, pipeline::evaluate(saved).run.outputs));

    // A plan from memory beside the model changes no bit of it, and neither does a saved one.
    pipeline::quantize_settings with_plan = by_file;
    with_plan.overwrite = true, with_plan.save_plan = folder / "fits.json";
    const std::string files_model = read_file(by_file.output);
    own.returns_plan = true;
    const pipeline::quantize_outcome fits = pipeline::quantize(own);
    pipeline::quantize(with_plan);
    CHECK((fits.model == read_file(with_plan.output)));
    CHECK((fits.model == files_model));
}

TEST_CASE("a quantization walks the model once for all trials of its recipe, and the other graphs that it makes of it") {
    pipeline::quantize_settings s;
    s.model = model_file, s.data.inputs = {images}, s.data.samples = 64;
    s.precision.activation = "int8", s.precision.weight = "int4", s.precision.recipe = "best";
    s.returns_model = true;
    const std::size_t before = walks_made();
    const pipeline::quantize_outcome done = pipeline::quantize(s);
    CHECK(done.recipe.trials.size() > 3);
    CHECK(walks_made() <= before + 3);  // biases are added for their correction, and needless activations are not written
}

TEST_CASE("a model of large weights has the same bytes in memory as in its file") {
    const temporary_folder folder("qk-memory", "this test");
    small_graph g;
    g.input("x", {1, 512}).output("y", {1, 512}).constant("w", {512, 512});  // 1 MB: outside the message
    g.node("MatMul", "product", {"x", "w"}, "y");
    const model m = g.build();
    pipeline::quantize_settings s;
    s.model = model_source(m.proto());
    s.precision.activation = "fp16", s.precision.weight = "bf16";  // a cast on each side, so the weight stays as it is
    s.returns_model = true, s.output = folder / "m.onnx";
    const pipeline::quantize_outcome done = pipeline::quantize(s);
    CHECK((done.model == read_file(s.output)));
    m.save(folder / "float.onnx");
    CHECK((s.model.bytes() == read_file(folder / "float.onnx")));
    CHECK(done.bytes_before == static_cast<double>(std::filesystem::file_size(folder / "float.onnx")));
}

TEST_CASE("evaluate: outputs, accuracy and differences without a file") {
    const temporary_folder folder("qk-memory", "this test");
    pipeline::evaluate_settings by_file;
    by_file.model = model_file, by_file.data.inputs = {images}, by_file.data.labels = labels, by_file.data.samples = 30;
    by_file.precision.activation = "int8", by_file.precision.weight = "int4";
    by_file.output_dir = folder / "outputs";
    const pipeline::evaluate_outcome files = pipeline::evaluate(by_file);
    pipeline::evaluate_settings own = by_file;
    own.output_dir = "", own.keep_outputs = true, own.data.samples = 0;
    own.model = message(), own.data.inputs = batches_of(30), own.data.labels = first_labels(30);
    for (int turn = 0; turn < 2; ++turn) {  // the batches are asked for once, and serve again
        const pipeline::evaluate_outcome done = pipeline::evaluate(own);
        CHECK(same_bits(done.run.outputs, files.run.outputs));
        CHECK(done.summary["top1"] == files.summary["top1"]);
    }
    own.expected = files.run.outputs;
    CHECK(pipeline::evaluate(own).agree);
    own.precision.weight = "int2";
    const pipeline::evaluate_outcome differs = pipeline::evaluate(own);
    CHECK(!differs.agree);
    CHECK(differs.differences.size() == 1);
}

TEST_CASE("sensitivity and search: the same rows, mix, plan and model") {
    const temporary_folder folder("qk-memory", "this test");
    const auto in_memory = [](pipeline::mix_settings& s) {
        s.model = model_source::of_bytes(read_file(model_file));
        s.data.inputs = named_tensors{{"image", rows_of(read_npy(images), 0, 24)}};
        s.data.labels = first_labels(24), s.data.samples = 0;
    };
    pipeline::sensitivity_settings rows;
    rows.model = model_file, rows.data.inputs = {images}, rows.data.labels = labels, rows.data.samples = 24, rows.metric = "loss";
    rows.narrow = {"int8/int4", "mxfp4/mxfp4"};
    const nlohmann::json by_file = to_json(pipeline::sensitivity(rows));
    in_memory(rows);
    CHECK(without(to_json(pipeline::sensitivity(rows)), {"seconds", "peak_bytes"}) == without(by_file, {"seconds", "peak_bytes"}));

    pipeline::search_settings s;
    s.model = model_file, s.data.inputs = {images}, s.data.labels = labels, s.data.samples = 24;
    s.wide = "int8/int8", s.narrow = {"int8/int4", "mxfp4/mxfp4"}, s.targets = {{"sqnr", 22}}, s.output = folder / "m.onnx";
    const pipeline::search_outcome files = pipeline::search(s);
    in_memory(s);
    s.output = "", s.returns_model = true;
    const pipeline::search_outcome done = pipeline::search(s);
    CHECK((done.model == read_file(folder / "m.onnx")));
    CHECK(done.result.metric == files.result.metric);
    CHECK((to_json(done.result.plan) == to_json(files.result.plan)));

    std::size_t asked = 0;
    s.targets = {}, s.target_metric = 0;
    s.measure_outputs = [&](std::span<const tensor> outputs, std::span<const tensor>, std::span<const std::int64_t> classes) {
        ++asked;
        CHECK(outputs[0].dim(0) == 24);
        CHECK(classes.size() == 24);
        return 1.0;
    };
    pipeline::search(s);
    CHECK(asked > 1);
}

TEST_CASE("finetune and gradient: the same values") {
    const temporary_folder folder("qk-memory", "this test");
    pipeline::gradient_settings g;
    g.model = model_file, g.data.inputs = {images}, g.data.labels = labels, g.data.samples = 10, g.output = folder / "g.npz";
    const pipeline::gradient_outcome slopes = pipeline::gradient(g);
    g.model = message(), g.data.inputs = batches_of(10), g.data.labels = first_labels(10), g.data.samples = 0, g.output = "";
    const pipeline::gradient_outcome own = pipeline::gradient(g);
    CHECK(same_bits(own.result.gradients, slopes.result.gradients));
    CHECK(own.result.loss == slopes.result.loss);
    g.data.labels = {}, g.vector = slopes.result.output;
    CHECK(pipeline::gradient(g).result.gradients.size() == slopes.result.gradients.size());

#ifdef QK_HAVE_LEARN
    pipeline::finetune_settings f;
    f.model = model_file, f.data.inputs = {images}, f.data.samples = 32, f.epochs = 1;
    f.precision.activation = "int8", f.precision.weight = "int2", f.output = folder / "learned.onnx";
    const pipeline::finetune_outcome files = pipeline::finetune(f);
    f.model = message(), f.data.inputs = batches_of(32), f.output = "";
    const pipeline::finetune_outcome done = pipeline::finetune(f);
    CHECK((done.model == read_file(folder / "learned.onnx")));
    CHECK((to_json(done.result.plan) == to_json(files.result.plan)));
#endif
}

TEST_CASE("what is wrong in memory is said in a sentence") {
    pipeline::evaluate_settings s;
    s.model = model_source::of_bytes("no model at all", "mine");
    s.data.inputs = named_tensors{{"image", rows_of(read_npy(images), 0, 2)}};
    CHECK(has(refusal([&] { pipeline::evaluate(s); }), "mine: not an ONNX model"));
    onnx::ModelProto outside = message();
    onnx::TensorProto& t = *outside.mutable_graph()->mutable_initializer(0);
    const std::string weight = t.name();
    t.clear_raw_data(), t.clear_float_data(), t.set_data_location(onnx::TensorProto::EXTERNAL);
    auto* e = t.add_external_data();
    e->set_key("location"), e->set_value("w.bin");
    s.model = outside;
    const std::string said = refusal([&] { pipeline::evaluate(s); });
    CHECK(has(said, "model: "));
    CHECK(has(said, "'" + weight + "'"));
    CHECK(has(said, "load the model from its file"));

    s.model = message();
    const auto says = [&](const data_source& data, const std::string& part) {
        s.data.inputs = data;
        const std::string text = refusal([&] { pipeline::evaluate(s); });
        INFO(text);
        CHECK(has(text, part));
    };
    const tensor x = rows_of(read_npy(images), 0, 2);
    says(named_tensors{{"image", x.reshaped({1, 2, x.dim(1), static_cast<std::int64_t>(x.size()) / x.dim(1) / 2})}}, "'image'");
    says(named_tensors{{"y", x}}, "the model has no input 'y'; it has 'image'");
    says(named_tensors{{"", x}, {"image", x}}, "an array without a name is left over");
    says(named_tensors{}, "no data for the model's input 'image'");
    says([](named_tensors&) { return false; }, "the function that gives batches gave none");
    int at = 0;
    const auto uneven = [&](named_tensors& batch) {
        batch["image"] = at++ == 0 ? x : x.reshaped({static_cast<std::int64_t>(x.size())});
        return at < 3;
    };
    says(uneven, "cannot be joined");
    s.data.inputs = named_tensors{{"image", x}};
    s.data.labels = std::vector<std::int64_t>{1, 2, 3};
    CHECK(has(refusal([&] { pipeline::evaluate(s); }), "'labels' has 3 labels for 2 samples"));
}

TEST_CASE("a function ends each call") {
    const data_source samples = named_tensors{{"image", rows_of(read_npy(images), 0, 30)}};
    const auto ends = [&](auto s, auto call, const char* what) {
        INFO(what);
        s.model = message(), s.data.inputs = samples, s.data.threads = 2;
        std::atomic<std::size_t> asked = 0;
        s.cancel = [&] { return ++asked > 5; };
        CHECK_THROWS_AS(call(s), pipeline::cancelled);
        CHECK(asked >= 6);
        asked = 0;
        s.cancel = [&] { return ++asked == 0; };
        CHECK_NOTHROW(call(s));  // the next call of the thread knows nothing of the one before
        CHECK(asked > 5);
    };
    pipeline::quantize_settings q;
    q.precision.activation = q.precision.weight = "int8";
    ends(
        q, [](const auto& s) { pipeline::quantize(s); }, "quantize");
    pipeline::evaluate_settings e;
    ends(
        e, [](const auto& s) { pipeline::evaluate(s); }, "evaluate");
    ends(
        pipeline::sensitivity_settings{}, [](const auto& s) { pipeline::sensitivity(s); }, "sensitivity");
    pipeline::search_settings found;
    found.max_trials = 3, found.targets = {{"sqnr", 20}};
    ends(
        found, [](const auto& s) { pipeline::search(s); }, "search");
    pipeline::gradient_settings g;
    g.vector = tensor(pipeline::evaluate([&] {
                          e.model = message(), e.data.inputs = samples, e.keep_outputs = true;
                          return e;
                      }())
                          .run.outputs.begin()
                          ->second);
    ends(
        g, [](const auto& s) { pipeline::gradient(s); }, "gradient");
#ifdef QK_HAVE_LEARN
    pipeline::finetune_settings f;
    f.precision = q.precision, f.epochs = 1;
    ends(
        f, [](const auto& s) { pipeline::finetune(s); }, "finetune");
#endif
}
