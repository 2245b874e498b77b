// SPDX-License-Identifier: Apache-2.0
// `qk quantize`: makes a plan from requests and calibration, and a model from the plan; `qk explain`: says why a tensor has its precision.
#include <fmt/format.h>
#include <onnx/onnx_pb.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <memory>

#include "options/data_options.hpp"
#include "options/precision_options.hpp"
#include "options/standard_streams.hpp"
#include "options/words.hpp"
#include "qk/graph/pipeline.hpp"
#include "qk/graph/plan.hpp"
#include "qk/graph/quantize.hpp"
#include "qk/graph/report.hpp"
#include "support/caller.hpp"
#include "support/checkpoints.hpp"
#include "support/console.hpp"
#include "support/declared.hpp"
#include "support/remarks.hpp"
#include "verbs.hpp"

namespace qk::tool {
namespace {

using quantize_arguments = with_json<graph::pipeline::quantize_settings>;

/// Prints the recipe, what it tried, and what the file is worth.
void print_quality(const graph::pipeline::quantize_outcome& done) {
    print("{}\n", done.recipe.text());
    for (const graph::pipeline::recipe_trial& t : done.recipe.trials)
        if (!t.failed.empty()) print("  {:<66} not tried: {}\n", t.step, t.failed);
        else
            print("  {:<66} {:6.2f} dB {:>+7.2f}{}{}{}\n", t.step, t.sqnr, t.gain,
                  t.chance > 0 ? fmt::format(" (chance {:.2f})", t.chance) : "",
                  t.top1 ? fmt::format(", top-1 {:.2f} %", 100 * *t.top1) : "", t.kept ? ", kept" : "");
    if (const auto& q = done.recipe.quality) {
        print("output at {:.2f} dB ({:.1f} to {:.1f}) of {} {}{}", q->sqnr, q->chance.low, q->chance.high, q->samples, q->of,
              q->of == "held-out" ? " samples" : "");
        if (q->top1) print("; top-1 {:.2f} %, float {:.2f} %", 100 * *q->top1, 100 * *q->float_top1);
        print("\n");
    }
    if (!done.recipe.not_measured.empty()) print(stderr, "not measured: {}\n", done.recipe.not_measured);
    if (done.times)
        print("{}, one sample on one thread: {:.3g} ms, {}float {:.3g} ms\n", done.times->runtime, done.times->milliseconds,
              done.times->with_operators ? fmt::format("with qk's operators {:.3g} ms, ", *done.times->with_operators) : "",
              done.times->float_milliseconds);
    if (!done.level_price.empty()) print("{}\n", done.level_price);
    if (done.verified) print("{}\n", done.verified->text());
    if (!done.not_timed.empty()) print(stderr, "not timed: {}\n", done.not_timed);
}

void quantize(const quantize_arguments& given, verb_result& result) {
    const bool writes = !(given.output + given.save_plan + given.encodings + given.report + given.log).empty();
    if (given.precision.any() && !writes && !given.json)
        throw graph::error("nothing would be written: give -o OUT.onnx, --save-plan P.json, --encodings E.json or --report R.html");
    graph::pipeline::quantize_outcome done = with_progress([&](const auto& report) { return graph::pipeline::quantize(given, report); });
    const bool departs = done.verified && done.verified->departs();
    if (departs) result.status = status::failed;
    if (caller* by = keeper_of_results(); by != nullptr && !departs) {
        by->results.model = std::move(done.model);
        if (given.save_plan.empty()) by->keep(done.result.plan);
    }
    for (const std::string& n : done.remarks) print(stderr, "{}\n", n);
    const std::size_t remarks = print_remarks(done.result.report) + done.export_notes.size();
    for (const std::string& n : done.export_notes) print(stderr, "export: {}\n", n);
    if (given.json) return print_json(done.summary);
    if (departs) return print(stderr, "{}; nothing was written\n", done.verified->text());
    if (const auto& method = done.result.report.method; method) {
        print("calibration method {}, by {} of {} samples:", graph::name_of(method->method()), method->metric, method->samples);
        for (const graph::method_choice::trial& t : method->tried)
            print("{} {} {:.6g}", &t == method->tried.data() ? "" : ",", graph::name_of(t.method), t.metric);
        print("\n");
    }
    print_quality(done);
    print("{} quantized edges, {} remark{}; weights {} of {} bytes{}\n", done.edges, remarks, remarks == 1 ? "" : "s",
          static_cast<std::uint64_t>(done.cost.weight_bits / 8), static_cast<std::uint64_t>(done.cost.float_weight_bits / 8),
          !given.output.empty() ? fmt::format("; {} ({} bytes, was {})", standard_streams::in_words(given.output),
                                              static_cast<std::uint64_t>(done.bytes_after), static_cast<std::uint64_t>(done.bytes_before))
                                : "");
}

/// Returns the tensors that a name in the model's file stands for now, at least one; throws if there is none.
std::vector<graph::successor> tensors_for(const graph::model& m, const std::string& name) {
    std::vector<graph::successor> all = graph::successors_of_tensor(m, name);
    if (graph::has_tensor(m, name)) all.insert(all.begin(), {.name = name});
    if (!all.empty()) return all;
    if (const int n = m.node_index(name); n >= 0) {
        std::vector<std::string> own;
        for (const std::string& t : m.graph().node(n).input()) own.push_back(t);
        for (const std::string& t : m.graph().node(n).output()) own.push_back(t);
        throw graph::error(fmt::format("'{}' is a layer; ask for one of its tensors: {}", name, graph::listed(own, 12)));
    }
    throw graph::error("the model has no tensor '" + name + "'." + graph::did_you_mean(name, graph::tensor_names(m)));
}

std::string made_by(const graph::model& m, const std::string& tensor) {
    const int producer = m.producer(tensor);
    if (m.is_constant(tensor)) return "a constant";
    return producer < 0 ? "a model input"
                        : fmt::format("made by '{}' ({})", m.graph().node(producer).name(), m.graph().node(producer).op_type());
}

/// Prints a line for each reader that takes the tensor as float32; returns how many there are.
std::size_t print_float_readers(const graph::model& m, const graph::precision_plan& plan, const std::string& tensor) {
    std::size_t plain = 0;
    for (const auto& u : m.uses(tensor)) {
        const std::string consumer = u.node < 0 ? "" : m.graph().node(u.node).name();
        if (plan.find({tensor, consumer, u.input}) != nullptr) continue;
        print("tensor '{}' -> {}: fp32; {}\n", tensor,
              u.node < 0 ? "model output" : fmt::format("'{}' ({})", consumer, m.graph().node(u.node).op_type()),
              u.node >= 0 && graph::kind_of(m.graph().node(u.node)) == graph::layer_kind::activation
                  ? "nothing stands between a node and the Relu or Clip behind it"
                  : "no request asks for it");
        ++plain;
    }
    return plain;
}

void explain(const quantize_arguments& given, const std::string& tensor) {
    if (!given.precision.any())
        throw graph::error("say what to explain: --activation F --weight F, or --plan P.json, as for `qk quantize`");
    graph::output_set none;
    declare(none, given.model);
    graph::model m = graph::pipeline::load_for_planning(given.model);
    graph::pipeline::expand_for(m, given.precision);
    const std::vector<graph::successor> became = tensors_for(m, tensor);
    graph::calibration seen;
    const graph::quantize_result result = with_progress(
        [&](const auto& report) { return graph::pipeline::make_plan(m, given.data, given.precision.read(m), &seen, true, report); });
    const auto meant = [&](const std::string& name) {
        return std::any_of(became.begin(), became.end(), [&](const graph::successor& t) { return t.name == name; });
    };
    const auto about = [&](const graph::plan_note& n) {
        const std::string text = n.subject + " " + n.text;
        return text.find("'" + tensor + "'") != std::string::npos ||
               std::any_of(became.begin(), became.end(),
                           [&](const graph::successor& t) { return text.find("'" + t.name + "'") != std::string::npos; });
    };
    graph::quantize_report own;
    for (const graph::plan_note& n : result.report.notes)
        if (about(n)) own.notes.push_back(n);
    for (const graph::edge_report& e : result.report.edges)
        if (meant(e.edge.tensor)) own.edges.push_back(e);
    const std::string made = made_by(m, became.front().name);
    if (given.json) {
        nlohmann::ordered_json j = graph::to_json(own);
        j.erase("weight_bytes");
        j.erase("float_weight_bytes");
        j["tensor"] = tensor;
        j["became"] = nlohmann::ordered_json::array();
        for (const graph::successor& t : became)
            if (t.name != tensor) j["became"].push_back({{"tensor", t.name}, {"why", t.why}});
        j["made_by"] = made;
        return print_json(j);
    }
    for (const graph::successor& t : became)
        if (t.name != tensor)
            print("tensor '{}' {} '{}' now: {}\n", tensor, t.how == graph::bond::part ? "went into" : "is", t.name, t.why);
    print("tensor '{}' is {}\n", became.front().name, made);
    print_lines(own.text());
    std::size_t plain = 0;
    for (const graph::successor& t : became) plain += print_float_readers(m, result.plan, t.name);
    if (own.edges.empty() && plain == 0) print("nothing reads it\n");
}

}  // namespace

void add_quantize(command& app, verb_result& result) {
    auto given = std::make_shared<quantize_arguments>();
    option_table& verb = app.add_subcommand("quantize", "Choose a precision for every tensor and write a model that other runtimes run");
    takes_models(verb, {given, &given->model.file});
    verb.add_option("MODEL", given->model.file, "ONNX model of floats").required().reads();
    verb.add_option("-o,--output", given->output, "the quantized model").type_name("OUT.onnx").common().writes();
    add_recipe(verb, given->precision);
    add_precision(verb, given->precision);
    add_data(verb, given->data, false);
    verb.add_option(
            "--run-with", given->run_with,
            "calibrate in onnxruntime or openvino, if a python that has it is found (QK_PYTHON, or python3): for models with operators "
            "that qk does not have; without it what stands behind such operators stays float32")
        .type_name("RUNTIME")
        .suggest({"onnxruntime", "openvino"});
    verb.section("Output");
    verb.add_option("--export", given->style, style_lines()).type_name("STYLE").suggest(style_words());
    verb.add_option("--weights", given->weights,
                    "packed (default): codes and scales; float: float32, already rounded; product: packed, and each MatMul or Gemm with "
                    "them is one function, which qk's library for onnxruntime multiplies by the codes (styles portable and nbits)")
        .type_name("STORAGE")
        .suggest(weight_storage_words());
    verb.add_flag("--inline", given->inlined,
                  "write the nodes of functions in the place of their calls, for runtimes that have no functions (with --target openvino: "
                  "as ever)");
    verb.add_flag(
        "--keep-int8", given->keep_int8,
        "write int8 activations (styles amd and qinteger: as ever) and int8 weights as int8 codes, not as the same values in uint8; "
        "onnxruntime's products of such weights saturate on x86-64 without VNNI");
    verb.add_option(
            "--accuracy-level", given->accuracy_level,
            "of MatMulNBits (--export nbits): 1 float32, 2 float16, 3 bfloat16, 4 activations rounded to int8, which is the fastest, and "
            "which --weights product has, too; what it costs is measured on the samples, if a python that has onnxruntime is found")
        .type_name("N")
        .between(0, 4, "leave --accuracy-level out for what the runtime does by itself");
    verb.add_option(
            "--verify", given->verify,
            "run the file in onnxruntime or openvino, by a python that has it (QK_PYTHON, or python3), before it is written: where an "
            "output there is more than 1 dB worse than what qk makes of it, nothing is written and the exit status is 1")
        .type_name("RUNTIME")
        .suggest({"onnxruntime", "openvino"});
    verb.add_flag("--time", given->time,
                  "time float model and file in onnxruntime, without and with qk's operators where the library is, if a python that has "
                  "onnxruntime is found (QK_PYTHON, or python3)");
    verb.add_option("--save-plan", given->save_plan, "the plan, to be given to --plan later").type_name("P.json").common().writes();
    verb.add_option("--encodings", given->encodings, "scales and offsets as an AIMET encodings file").type_name("E.json").writes();
    verb.add_option("--encodings-version", given->encodings_version, "1.0.0 (default) or 2.0.0, which QNN's newer tools read")
        .type_name("V")
        .suggest({"1.0.0", "2.0.0"});
    verb.add_option("--report", given->report, "HTML page: what was asked, what every tensor got and why; the same as JSON beside it")
        .type_name("R.html")
        .common();
    verb.add_option("--log", given->log, "the report as text").type_name("L.txt").writes();
    add_overwrite(verb, given->overwrite);
    verb.add_flag("--json", given->json, "one JSON object on standard output").common();
    verb.footer(
        "Examples:\n"
        "  qk quantize model.onnx -o int8.onnx --activation int8 --weight int8 --calibration x.npy\n"
        "  qk quantize model.onnx -o best.onnx --activation int8 --weight int4 --recipe best --iterations 200 --inputs x.npy --labels "
        "y.npy\n"
        "  qk quantize model.onnx -o mx.onnx --activation mxfp8_e4m3 --weight mxfp4\n"
        "  qk quantize model.onnx -o int4.onnx --approach weight_only --weight int4 --weight-block 32 --weight-rounding compensated "
        "--calibration x.npy\n"
        "  qk quantize model.onnx -o rotated.onnx --activation mxfp4 --weight mxfp4 --rotation hadamard\n"
        "  qk quantize model.onnx -o learned.onnx --weight mxfp4 --weight-rounding adaround --iterations 200 --calibration x.npy\n"
        "  qk quantize model.onnx -o mixed.onnx --plan requests.json --calibration x.npy --strict --report mixed.html");
    verb.callback([given, &result] {
        take_from_caller(*given);
        given->estimates = given->json;
        given->command = command_line();
        given->returns_plan = keeper_of_results() != nullptr;
        given->returns_model = given->returns_plan && given->output.empty();
        quantize(*given, result);
    });
}

void add_explain(command& app, verb_result&) {
    auto given = std::make_shared<quantize_arguments>();
    auto tensor = std::make_shared<std::string>();
    option_table& verb = app.add_subcommand("explain", "Why a tensor has its precision: request, range, scale, error");
    takes_models(verb, {given, &given->model.file});
    verb.add_option("MODEL", given->model.file, "ONNX model of floats").required().reads();
    verb.add_option("TENSOR", *tensor, "its name in the model's file (`qk inspect MODEL --tensors` lists them)").required();
    add_precision(verb, given->precision);
    add_data(verb, given->data, false);
    verb.add_flag("--json", given->json, "one JSON object on standard output").common();
    verb.footer("Example:\n  qk explain model.onnx head.weight --activation int8 --weight int8 --calibration x.npy");
    verb.callback([given, tensor] {
        take_from_caller(*given);
        explain(*given, *tensor);
    });
}

}  // namespace qk::tool
