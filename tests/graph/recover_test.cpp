// SPDX-License-Identifier: Apache-2.0
// A plan that is exported into a model and recovered is the same plan; models that other tools quantized compute the same under the
// recovered plan.
#include <doctest/doctest.h>
#include <onnx/onnx_pb.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "../data_folders.hpp"
#include "graph/model/tensor_proto.hpp"
#include "graph/ops/widened.hpp"
#include "qk/graph/base/format_text.hpp"
#include "qk/graph/calibrate/calibrate.hpp"
#include "qk/graph/evaluate/evaluator.hpp"
#include "qk/graph/export/drop_activations.hpp"
#include "qk/graph/export/export.hpp"
#include "qk/graph/files/npy.hpp"
#include "qk/graph/quantize/plan_file.hpp"
#include "qk/graph/quantize/planner.hpp"
#include "qk/graph/recover/recover.hpp"
#include "small_graph.hpp"

namespace fs = std::filesystem;
using namespace qk::graph;

namespace {

model network() {
    small_graph g;
    g.input("x", {2, 8, 6, 6}).output("y", {2, 5}).output("a", {2, 8, 6, 6});
    g.constant("w1", {8, 8, 3, 3}, 0.3f).constant("b1", {8}).constant("w2", {8, 8, 1, 1}).constant("fc", {5, 8}).constant("fcb", {5});
    small_graph::set(g.node("Conv", "conv1", {"x", "w1", "b1"}, "c1"), "pads", {1, 1, 1, 1});
    g.node("Relu", "relu1", {"c1"}, "r1");
    g.node("Conv", "conv2", {"r1", "w2"}, "c2");
    g.node("Add", "add", {"c2", "r1"}, "a");
    g.node("GlobalAveragePool", "gap", {"a"}, "g");
    g.node("Flatten", "flat", {"g"}, "f");
    small_graph::set(g.node("Gemm", "fc", {"f", "fc", "fcb"}, "y"), "transB", 1);
    return g.build();
}

tensor values() {
    std::vector<float> v(2 * 8 * 36);
    for (std::size_t i = 0; i < v.size(); ++i) v[i] = std::sin(static_cast<float>(i) * 1.37f) * 2;
    return make_tensor<float>({2, 8, 6, 6}, v);
}

/// Reduces a quantizer to what a model can hold: no semantics, an axis only where it matters, no zero points that are all 0.
quantizer plain(quantizer q) {
    q.semantics = {};
    if (q.scale.size() <= 1 && q.block_size == 0 && !is_block_format(q.format)) q.axis = -1;
    if (std::all_of(q.zero_point.begin(), q.zero_point.end(), [](std::int64_t z) { return z == 0; })) q.zero_point.clear();
    if (is_block_format(q.format) && q.axis < 0) q.axis = 1;  // such tensors have two axes here
    return q;
}
precision_plan plain(precision_plan p) {
    for (auto& [n, q] : p.tensors) q = plain(q);
    for (auto& [e, q] : p.edges) q = plain(q);
    return p;
}

float difference(const tensor& a, const tensor& b) {
    float worst = 0, largest = 0;
    for (std::size_t i = 0; i < a.size(); ++i)
        worst = std::max(worst, std::fabs(a.as<float>()[i] - b.as<float>()[i])), largest = std::max(largest, std::fabs(a.as<float>()[i]));
    return worst / largest;
}

}  // namespace

TEST_CASE("a plan survives export and recovery") {
    const model m = network();
    const calibration seen = calibrate(m, {{"x", values()}}, {.threads = 1});
    struct row {
        const char *activation, *weight;
        export_style style;
        bool per_channel;
        weight_storage weights = weight_storage::packed;
        approach how = approach::static_ranges;
    };
    for (const row& r :
         {row{"int8", "int8", export_style::qdq, true}, row{"uint8", "uint8", export_style::qdq, true},
          row{"int8", "int8", export_style::qdq, false, weight_storage::floats}, row{"int16", "int4", export_style::qdq, true},
          row{"bf16", "fp16", export_style::qdq, false}, row{"fp16", "bf16", export_style::qdq, false},
          row{"fp8_e4m3fn", "fp8_e5m2", export_style::qdq, false},
          row{"uint8", "int8", export_style::qdq, false, weight_storage::packed, approach::dynamic},
          row{"mxfp8_e4m3", "mxfp4", export_style::qdq, false}, row{"bfp16", "nvfp4", export_style::qdq, false},
          row{"nvfp4", "mx6", export_style::qdq, false}, row{"uint8", "mxint8", export_style::qdq, false},
          row{"uint8", "mx9", export_style::qdq, false}, row{"int16", "bfp16", export_style::qdq, false, weight_storage::floats},
          row{"bfp16", "mx6", export_style::amd, false}, row{"mxfp8_e4m3", "mxfp4", export_style::amd, false},
          row{"int16", "int16", export_style::amd, true}, row{"bf16", "fp16", export_style::amd, false}}) {
        INFO(std::string(r.activation) << " " << std::string(r.weight) << " style " << r.style.name());
        precision a{.format = format_from(r.activation)}, w{.format = format_from(r.weight)};
        if (r.style == export_style::amd) a.semantics = w.semantics = qk::semantics::quark;
        quantize_options options;
        options.per_channel = r.per_channel, options.how = r.how, options.where = placement::all;
        const precision_plan plan = quantize(m, precision_requests().set_default(a, w), seen, options).plan;
        const export_result written = export_model(m, plan, {.style = r.style, .weights = r.weights});
        const recovered_plan found = recover_plan(written.exported);
        CHECK(found.notes.empty());
        CHECK(plain(found.plan) == plain(plan));
        // The recovered float model has the nodes and names of the original; under the plan it computes what the quantized model does.
        REQUIRE(found.plain.graph().node_size() == m.graph().node_size());
        for (const auto& n : m.graph().node()) CHECK(found.plain.node_index(n.name()) >= 0);
        const auto before = evaluator(written.exported, {.threads = 1}).run({{"x", values()}}).outputs;
        const auto after = evaluator(found.plain, {.threads = 1}).run({{"x", values()}}, found.plan).outputs;
        for (const auto& [name, y] : before) CHECK(difference(y, after.at(name)) < 1e-5f);
    }
}

TEST_CASE("int8 stored as uint8 comes back as int8, and formats below their container by their Clip") {
    const model m = network();
    const calibration seen = calibrate(m, {{"x", values()}}, {.threads = 1});
    const precision_plan plan = quantize(m, precision_requests().set_default("int8", "int8"), seen).plan;
    model bare = m;
    drop_needless_activations(bare, plan);
    precision_plan unsigned_plan = plan;
    store_activations_unsigned(unsigned_plan, m);
    export_result written = export_model(bare, unsigned_plan);
    CHECK(plain(recover_plan(written.exported).plan) == plain(unsigned_plan));
    remember_int8(written.exported, plan, unsigned_plan);
    CHECK(plain(recover_plan(written.exported).plan) == plain(plan));

    precision six{.format = qk::integer{.bits = 6, .is_signed = false}};
    const precision_plan narrow = quantize(m, precision_requests().set_default(six, precision{.format = qk::int8}), seen).plan;
    CHECK(plain(recover_plan(export_model(m, narrow).exported).plan) == plain(narrow));
}

TEST_CASE("a bias behind a guard comes back with the scale that it has") {
    const model m = network();
    const calibration seen = calibrate(m, {{"x", values()}}, {.threads = 1});
    precision_plan plan = quantize(m, precision_requests().set_default("uint8", "int8"), seen).plan;
    plan.tensors.at("b1").scale[0] *= 1.5f;
    for (const export_style style : {export_style::portable, export_style::qdq})
        CHECK(plain(recover_plan(export_model(m, plan, {.style = style}).exported).plan) == plain(plan));
}

TEST_CASE("pairs without a zero point are of uint8, and zero points that are left out are 0") {
    for (const int with : {0, 1, 2}) {  // which of both nodes has a zero point
        small_graph g;
        g.input("x", {2, 4}).output("y", {2, 3}).constant("s", {}, 1, {0.02f}).constant("w", {4, 3});
        g.node("QuantizeLinear", "quantize", {"x", "s"}, "q");
        g.node("DequantizeLinear", "dequantize", {"q", "s"}, "d");
        g.node("MatMul", "matmul", {"d", "w"}, "y");
        model m = g.build();
        if (with > 0) {
            to_proto(make_tensor<std::uint8_t>({}, std::vector<std::uint8_t>{0}), "z", *m.graph().add_initializer());
            m.graph().mutable_node(with - 1)->add_input("z");
            m.reindex();
        }
        const recovered_plan found = recover_plan(m);
        REQUIRE(found.plan.tensors.contains("x"));
        CHECK(found.plan.tensors.at("x").format == qk::format(qk::uint8));
        CHECK(found.plan.tensors.at("x").scale == std::vector<float>{0.02f});
        CHECK(found.plan.tensors.at("x").zero_point.empty());
        CHECK(found.plain.graph().node_size() == 1);
        const named_tensors x{{"x", make_tensor<float>({2, 4}, std::vector<float>{-1, 0.011f, 0.5f, 2, 7, 0.03f, 0.33f, 1})}};
        CHECK(difference(evaluator(m).run(x).outputs.at("y"), evaluator(found.plain).run(x, found.plan).outputs.at("y")) == 0);
    }
}

TEST_CASE("pairs of 16-bit floats: activations and weights") {
    for (const data_type half : {data_type::float16, data_type::bfloat16}) {
        small_graph g(19);
        const auto code = static_cast<int>(half);
        g.input("x", {2, 4}, code).output("y", {2, 3});
        for (const char* name : {"s", "ws", "z", "codes"}) g.constant(name, {});  // in place of those of other types below
        g.node("QuantizeLinear", "quantize", {"x", "s", "z"}, "q");
        g.node("DequantizeLinear", "dequantize", {"q", "s", "z"}, "d");
        g.node("DequantizeLinear", "weights", {"codes", "ws"}, "w");
        g.node("MatMul", "matmul", {"d", "w"}, "y");
        model m = g.build();
        m.graph().clear_initializer();
        m.graph().mutable_output(0)->mutable_type()->mutable_tensor_type()->set_elem_type(code);
        const auto hold = [&](const std::string& name, const tensor& t) { to_proto(t, name, *m.graph().add_initializer()); };
        hold("s", ops::narrowed(make_tensor<float>({}, std::vector<float>{0.02f}), half));
        hold("ws", ops::narrowed(make_tensor<float>({}, std::vector<float>{0.01f}), half));
        hold("z", make_tensor<std::int8_t>({}, std::vector<std::int8_t>{-3}));
        std::vector<std::int8_t> codes;
        for (int i = 0; i < 12; ++i) codes.push_back(static_cast<std::int8_t>(i * 37 % 251 - 125));
        hold("codes", make_tensor<std::int8_t>({4, 3}, codes));
        m.reindex();
        const recovered_plan found = recover_plan(m);
        REQUIRE(found.plan.tensors.size() == 2);
        const quantizer& q = found.plan.tensors.at("x");
        CHECK(q.format == qk::format(qk::int8));
        CHECK(q.zero_point == std::vector<std::int64_t>{-3});
        CHECK(q.scale[0] == doctest::Approx(0.02f).epsilon(0.01));
        REQUIRE(found.notes.size() == 1);
        CHECK(found.notes[0].starts_with("1 quantizers divide in 16 bits"));
        CHECK(found.plain.graph().node_size() == 1);
        CHECK(found.plain.constant(found.plain.graph().node(0).input(1)).type() == half);
        const named_tensors x{
            {"x", ops::narrowed(make_tensor<float>({2, 4}, std::vector<float>{-1, 0.011f, 0.5f, 2, 7, 0.03f, 0.33f, 1}), half)}};
        const tensor quantized = ops::widened(evaluator(m).run(x).outputs.at("y")),
                     planned = ops::widened(evaluator(found.plain).run(x, found.plan).outputs.at("y"));
        CHECK(difference(planned, quantized) < 0.02f);  // a code, where the division in 16 bits lands on a tie
    }
}

TEST_CASE("a reader of its own, and a model without quantizers") {
    const model m = network();
    const calibration seen = calibrate(m, {{"x", values()}}, {.threads = 1});
    quantize_options dual;
    dual.dual = true;
    const precision_plan plan =
        quantize(m, precision_requests().set_default("int8", "int8").set_precision("add", "int16"), seen, dual).plan;
    CHECK(!plan.edges.empty());
    CHECK(plain(recover_plan(export_model(m, plan).exported).plan) == plain(plan));
    CHECK_THROWS_WITH_AS(recover_plan(m), doctest::Contains("has no quantizers to recover a plan from"), error);
    const precision_plan eight = quantize(m, precision_requests().set_default("uint8", "int8"), seen).plan;
    CHECK_THROWS_WITH_AS(recover_plan(export_model(m, eight, {.style = export_style::qoperator}).exported),
                         doctest::Contains("integer operators"), error);
    // Calls of a function in qk's domain that name no quantizer, by text or attributes, stay in the model, and a note says so.
    const precision_plan blocks = quantize(m, precision_requests().set_default("uint8", "int8").set_precision("fc", "mxfp4"), seen).plan;
    model silent = export_model(m, blocks, {.style = export_style::portable}).exported;
    for (auto& n : *silent.graph().mutable_node())
        if (n.domain() == "qk") {
            n.clear_doc_string();
            for (auto& a : *n.mutable_attribute())
                if (a.name() == "qk_version") a.set_i(99);  // attributes that this qk does not know
        }
    const recovered_plan half = recover_plan(silent);
    REQUIRE(half.notes.size() == 1);
    CHECK(half.notes[0].find("calls of functions stay in the model") != std::string::npos);
    CHECK(half.plan.tensors.contains("w1"));
}

struct kept_row {
    const char *activation, *weight;
    bool per_channel = false;
    qk::semantics semantics = {};
    approach how = approach::static_ranges;
    std::optional<int> block = {};
};

std::vector<kept_row> kept_rows() {
    const auto half_away = [](qk::semantics s) {
        s.rounding = qk::rounding::half_away;
        return s;
    };
    return {kept_row{"mxfp8_e4m3", "mxfp4"},
            kept_row{"mx6", "mx9"},
            kept_row{"bfp16", "bfp:block=16,exponent=8,mantissa=4"},
            kept_row{"nvfp4", "nvfp4"},
            kept_row{"mxint8", "mxint8", false, qk::semantics::quark},
            kept_row{"mxfp6_e2m3", "mxfp6_e3m2", false, qk::semantics::nvidia},
            kept_row{"bfp16", "bfp16", false, half_away(qk::semantics::quark)},
            kept_row{"fp6_e2m3", "fp6_e3m2", true},
            kept_row{"fp8_e4m3", "fp8_e5m2"},
            kept_row{"fp8_e4m3fn", "fp8_e4m3b11fnuz", false, {}, approach::static_ranges, 8},
            kept_row{"int2", "uint2", true},
            kept_row{"uint32", "int32", true},
            kept_row{"int32", "uint32"},
            kept_row{"int8", "int8", true, qk::semantics::torch},
            kept_row{"uint8:symmetric", "int4", false, {}, approach::static_ranges, 8},
            kept_row{"int:bits=5", "int:bits=3", true},
            kept_row{"int8", "int8", false, {}, approach::dynamic},
            kept_row{"uint8", "fp6_e3m2", false, {}, approach::dynamic},
            kept_row{"fp8_e5m2", "int8", false, {}, approach::dynamic},
            kept_row{"bf16", "fp16", false, half_away({})},
            kept_row{"fp16", "mxfp4"}};
}

TEST_CASE("a plan survives style portable, semantics and all") {
    small_graph g;
    g.input("x", {2, 8, 6, 6}).output("y", {2, 40}).output("a", {2, 8, 6, 6});
    g.constant("w1", {8, 8, 3, 3}, 0.3f)
        .constant("b1", {8})
        .constant("w2", {8, 8, 1, 1})
        .constant("w3", {8, 1, 9, 9}, 0.2f)
        .constant("fc", {40, 8})
        .constant("fcb", {40})
        .constant("m", {40, 40}, 0.4f);
    small_graph::set(g.node("Conv", "conv1", {"x", "w1", "b1"}, "c1"), "pads", {1, 1, 1, 1});
    g.node("Relu", "relu1", {"c1"}, "r1");
    auto& depthwise = g.node("Conv", "conv3", {"r1", "w3"}, "c3");
    small_graph::set(depthwise, "group", 8);
    small_graph::set(depthwise, "pads", {4, 4, 4, 4});
    g.node("Conv", "conv2", {"c3", "w2"}, "c2");
    g.node("Add", "add", {"c2", "r1"}, "a");
    g.node("GlobalAveragePool", "gap", {"a"}, "g");
    g.node("Flatten", "flat", {"g"}, "f");
    small_graph::set(g.node("Gemm", "fc", {"f", "fc", "fcb"}, "h"), "transB", 1);
    g.node("MatMul", "last", {"h", "m"}, "y");
    const model m = g.build();
    const calibration seen = calibrate(m, {{"x", values()}}, {.threads = 1});
    struct form {
        const char* what;
        weight_storage storage;
        bool inlined = false;
    };
    for (const kept_row& r : kept_rows())
        for (const auto& [what, storage, inlined] : {form{"packed", weight_storage::packed}, form{"float", weight_storage::floats},
                                                     form{"packed, without functions", weight_storage::packed, true}}) {
            INFO(std::string(r.activation) << " " << std::string(r.weight) << " " << std::string(what));
            precision a{.format = format_from(r.activation), .semantics = r.semantics},
                w{.format = format_from(r.weight), .semantics = r.semantics};
            w.block_size = r.block;
            quantize_options options;
            options.per_channel = r.per_channel, options.how = r.how;
            const precision_plan plan = quantize(m, precision_requests().set_default(a, w), seen, options).plan;
            const export_result written = export_model(m, plan, {.style = export_style::portable, .weights = storage, .inlined = inlined});
            CHECK((written.exported.proto().functions_size() == 0 || !inlined));
            const recovered_plan found = recover_plan(written.exported);
            for (const std::string& n : found.notes) FAIL_CHECK(n);
            const auto compared = [](precision_plan p) {
                const auto one = [](quantizer& q) {
                    const qk::semantics kept = q.semantics;
                    q = plain(q), q.semantics = kept;
                };
                for (auto& [name, q] : p.tensors) one(q);
                for (auto& [e, q] : p.edges) one(q);
                return p;
            };
            CHECK(to_json(compared(found.plan)).dump(1) == to_json(compared(plan)).dump(1));
            CHECK(found.plain.proto().functions_size() == 0);
            REQUIRE(found.plain.graph().node_size() == m.graph().node_size());
            for (const auto& n : m.graph().node()) CHECK(found.plain.node_index(n.name()) >= 0);
            const auto before = evaluator(written.exported, {.threads = 1}).run({{"x", values()}}).outputs;
            const auto after = evaluator(found.plain, {.threads = 1}).run({{"x", values()}}, found.plan).outputs;
            for (const auto& [name, y] : before) CHECK(difference(y, after.at(name)) < 1e-5f);
        }
    // Blocks that run over all axes but the first are recovered for an activation and for an output.
    quantizer rows{.format = qk::mx6, .axis = 0, .flatten = true, .scale = {}, .zero_point = {}};
    const precision_plan plan{.tensors = {{"r1", rows}, {"y", rows}}, .edges = {}, .accumulators = {}};
    const recovered_plan found = recover_plan(export_model(m, plan, {.style = export_style::portable}).exported);
    CHECK(found.notes.empty());
    CHECK(found.plan == plan);
    CHECK(found.plain.graph().node_size() == m.graph().node_size());
}

TEST_CASE("weights that were rounded in one direction are not rounded again to another code") {
    const model m = network();
    for (const char* weight : {"int8", "int4", "int:bits=5", "fp8_e4m3fn", "mxfp4", "nvfp4"})
        for (const qk::rounding way : {qk::rounding::toward_zero, qk::rounding::up, qk::rounding::down, qk::rounding::stochastic})
            for (const bool per_channel : {false, true}) {
                INFO(std::string(weight) << " rounding " << static_cast<int>(way));
                const precision w{.format = format_from(weight), .semantics = qk::semantics{.rounding = way}};
                quantize_options options;
                options.per_channel = per_channel, options.how = approach::weight_only;
                const precision_plan plan =
                    quantize(m, precision_requests().set_default(precision{.format = qk::fp32}, w), {}, options).plan;
                const model written = export_model(m, plan, {.style = export_style::portable}).exported;
                const recovered_plan found = recover_plan(written);
                const auto before = evaluator(written, {.threads = 1}).run({{"x", values()}}).outputs;
                const auto after = evaluator(found.plain, {.threads = 1}).run({{"x", values()}}, found.plan).outputs;
                for (const auto& [name, y] : before) CHECK(difference(y, after.at(name)) < 1e-5f);
            }
}

TEST_CASE("models that AMD Quark exported compute the same under what was recovered") {
    for (const fs::path& folder : qk_test::data_with("quark_models")) {
        const fs::path network = qk_test::residual_network(folder);
        const tensor input = read_npy(qk_test::reference_of(network, "input.input"));
        const model original = model::load(network);
        for (const auto& entry : fs::directory_iterator(folder / "quark_models")) {
            if (entry.path().extension() != ".onnx") continue;
            INFO(entry.path().string());
            const model m = model::load(entry.path());
            const recovered_plan found = recover_plan(m);
            const tensor a = evaluator(m, {.threads = 2}).run({{"input", input}}).outputs.begin()->second;
            const tensor b = evaluator(found.plain, {.threads = 2}).run({{"input", input}}, found.plan).outputs.begin()->second;
            CHECK(difference(a, b) < 2e-2f);  // a fused layer sums in another order, which flips a few roundings
            for (const auto& [name, q] : found.plan.tensors)
                CHECK((original.is_constant(name) || original.producer(name) >= 0 || name == "input" || name == "gap_Mul"));
        }
    }
}
