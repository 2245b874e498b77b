// SPDX-License-Identifier: Apache-2.0
// `qk quantize`: requests and calibration become a plan, the plan becomes a model; and `qk explain`: why a tensor is what it is.
#include <fmt/format.h>
#include <onnx/onnx_pb.h>

#include <algorithm>
#include <filesystem>
#include <memory>

#include "options/precision_options.hpp"
#include "options/standard_streams.hpp"
#include "options/words.hpp"
#include "qk/graph/base/format_text.hpp"
#include "qk/graph/base/names.hpp"
#include "qk/graph/export/export.hpp"
#include "qk/graph/files/json_text.hpp"
#include "qk/graph/model/model_files.hpp"
#include "qk/graph/quantize/encodings.hpp"
#include "qk/graph/quantize/plan_file.hpp"
#include "qk/graph/report/report.hpp"
#include "support/console.hpp"
#include "support/declared.hpp"
#include "support/remarks.hpp"
#include "support/written.hpp"
#include "verbs.hpp"

namespace qk::tool {
namespace {

struct arguments {
    std::string model, output, style = "portable", weights = "packed", save_plan, encodings, report, log;
    bool json = false, keep_int8 = false, overwrite = false;
    data_options data;
    precision_options precision;
};

double file_bytes(const std::filesystem::path& file) {
    std::error_code none;
    const auto n = std::filesystem::file_size(file, none);
    return none ? 0 : static_cast<double>(n);
}

void quantize(const arguments& given) {
    graph::output_set files(given.overwrite);
    declare(files, given.model);
    declare(files, given.data);
    declare(files, given.precision);
    files.output("-o", given.output)
        .output("--save-plan", given.save_plan)
        .output("--encodings", given.encodings)
        .output("--log", given.log);
    declare_report(files, given.report);
    if (!given.precision.any()) throw graph::error("say what to quantize: --activation F --weight F, or --plan P.json");
    if (given.output.empty() && given.save_plan.empty() && given.encodings.empty() && given.report.empty() && !given.json)
        throw graph::error("nothing would be written: give -o OUT.onnx, --save-plan P.json, --encodings E.json or --report R.html");
    graph::export_options style{.style = graph::export_style_from(given.style), .weights = graph::weight_storage_from(given.weights)};
    const std::filesystem::path beside = beside_report(given.report);
    graph::model m = load_for_planning(given.model);
    graph::calibration seen;
    const precision_options::asked asked = given.precision.read(m);
    if (asked.options.target && asked.options.target->signed_int8) style.int8_weights = graph::int8_codes::as_signed;
    const graph::quantize_result result =
        make_plan(m, given.data, given.precision, &seen, !given.report.empty() || !given.log.empty() || given.json);
    // Whatever can fail does so before the first remark is made and the first file written.
    std::optional<graph::export_result> exported;
    if (!given.output.empty()) exported = write_plan(m, result.plan, style, given.keep_int8);
    const std::string encodings = given.encodings.empty() ? "" : graph::json_text(graph::write_encodings(result.plan, m), 1) + "\n";
    const graph::layer_view layers(m);
    const graph::plan_cost cost = graph::cost_of(layers, result.plan, &seen);

    print_remarks(result.report);
    const std::size_t edges = graph::quantized_edges(result.plan, m).size();
    const std::size_t remarks = result.report.notes.size() + (exported ? exported->notes.size() : 0);
    if (exported) {
        for (const std::string& n : exported->notes) print(stderr, "export: {}\n", n);
        graph::save(exported->exported, files, given.output);
    }
    if (!given.save_plan.empty()) files.write(given.save_plan, graph::json_text(graph::to_json(result.plan), 1) + "\n");
    if (!given.encodings.empty()) files.write(given.encodings, encodings);
    if (!given.log.empty()) files.write(given.log, result.report.text());
    nlohmann::ordered_json summary = graph::to_json(result.report);
    summary["model"] = given.model;
    summary["quantized_edges"] = edges;
    summary["remarks"] = remarks;
    if (exported) summary["output"] = given.output, summary["opset"] = exported->opset_after, summary["export_notes"] = exported->notes;
    const double before = file_bytes(given.model), after = static_cast<double>(files.bytes(given.output));
    summary["file_bytes"] = after;
    summary["original_file_bytes"] = before;
    summary["weight_bytes"] = cost.weight_bits / 8;
    summary["float_weight_bytes"] = cost.float_weight_bits / 8;
    if (cost.float_bit_operations > 0)
        summary["bit_operations"] = cost.bit_operations, summary["float_bit_operations"] = cost.float_bit_operations;
    if (!given.report.empty()) {
        const graph::report_subject subject{.model = std::filesystem::path(given.model).filename().string(),
                                            .command = command_line(),
                                            .requests = asked.requests,
                                            .export_notes = exported ? exported->notes : std::vector<std::string>{},
                                            .input_bytes = before,
                                            .output_bytes = after};
        files.write(given.report, graph::quantize_html(subject, result, cost, seen.empty() ? nullptr : &seen));
        files.write(beside, graph::json_text(summary, 1) + "\n");
    }
    files.commit();
    if (given.json) {
        print_json(summary);
        return;
    }
    if (const auto& method = result.report.method; method) {
        print("calibration method {}, by {} of {} samples:", graph::name_of(method->method()), method->metric, method->samples);
        for (const graph::method_choice::trial& t : method->tried)
            print("{} {} {:.6g}", &t == method->tried.data() ? "" : ",", graph::name_of(t.method), t.metric);
        print("\n");
    }
    print("{} quantized edges, {} remarks; weights {} of {} bytes{}\n", edges, remarks, static_cast<std::uint64_t>(cost.weight_bits / 8),
          static_cast<std::uint64_t>(cost.float_weight_bits / 8),
          exported ? fmt::format("; {} ({} bytes, was {})", standard_streams::in_words(given.output), static_cast<std::uint64_t>(after),
                                 static_cast<std::uint64_t>(before))
                   : "");
}

/// The tensors that a name of the file stands for now, at least one.
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

/// A line for each reader that takes the tensor as float32; returns how many.
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

void explain(const arguments& given, const std::string& tensor) {
    if (!given.precision.any())
        throw graph::error("say what to explain: --activation F --weight F, or --plan P.json, as for `qk quantize`");
    graph::output_set none;
    declare(none, given.model);
    graph::model m = load_for_planning(given.model);
    const std::vector<graph::successor> became = tensors_for(m, tensor);
    graph::calibration seen;
    const graph::quantize_result result = make_plan(m, given.data, given.precision, &seen, true);
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
        print_json(j);
        return;
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

void add_quantize(command& app, verb_result&) {
    auto given = std::make_shared<arguments>();
    option_table& verb = app.add_subcommand("quantize", "Choose a precision for every tensor and write a model that other runtimes run");
    verb.add_option("MODEL", given->model, "ONNX model in float32").required().reads();
    verb.add_option("-o,--output", given->output, "the quantized model").type_name("OUT.onnx").common().writes();
    given->precision.add(verb);
    given->data.add(verb, false);
    verb.section("Output");
    verb.add_option(
            "--export", given->style,
            "portable (default): every format, in standard operators or functions of them; qdq: standard pairs alone; qoperator, qinteger: "
            "integer operators for whole layers; amd: com.amd.quark operators; docs/export.md")
        .type_name("STYLE")
        .suggest(style_words());
    verb.add_option("--weights", given->weights, "packed (default): codes and scales; float: float32, already rounded")
        .type_name("STORAGE")
        .suggest(weight_storage_words());
    verb.add_flag(
        "--keep-int8", given->keep_int8,
        "write int8 activations (styles amd and qinteger: as ever) and int8 weights as int8 codes, not as the same values in uint8; "
        "onnxruntime's products of such weights saturate on x86-64 without VNNI");
    verb.add_option("--save-plan", given->save_plan, "the plan, to be given to --plan later").type_name("P.json").common().writes();
    verb.add_option("--encodings", given->encodings, "scales and offsets as an AIMET encodings file, version 1.0.0")
        .type_name("E.json")
        .writes();
    verb.add_option("--report", given->report, "HTML page: what was asked, what every tensor got and why; the same as JSON beside it")
        .type_name("R.html")
        .common();
    verb.add_option("--log", given->log, "the report as text").type_name("L.txt").writes();
    add_overwrite(verb, given->overwrite);
    verb.add_flag("--json", given->json, "one JSON object on standard output").common();
    verb.footer(
        "Examples:\n"
        "  qk quantize model.onnx -o int8.onnx --activation int8 --weight int8 --per-channel --calibration x.npy\n"
        "  qk quantize model.onnx -o mx.onnx --activation mxfp8_e4m3 --weight mxfp4\n"
        "  qk quantize model.onnx -o int4.onnx --approach weight_only --weight int4 --weight-block 32 --weight-rounding compensated "
        "--calibration x.npy\n"
        "  qk quantize model.onnx -o mixed.onnx --plan requests.json --calibration x.npy --strict --report mixed.html");
    verb.callback([given] { quantize(*given); });
}

void add_explain(command& app, verb_result&) {
    auto given = std::make_shared<arguments>();
    auto tensor = std::make_shared<std::string>();
    option_table& verb = app.add_subcommand("explain", "Why a tensor has its precision: request, range, scale, error");
    verb.add_option("MODEL", given->model, "ONNX model in float32").required().reads();
    verb.add_option("TENSOR", *tensor, "its name in the model's file (`qk inspect MODEL --tensors` lists them)").required();
    given->precision.add(verb);
    given->data.add(verb, false);
    verb.add_flag("--json", given->json, "one JSON object on standard output").common();
    verb.footer("Example:\n  qk explain model.onnx head.weight --activation int8 --weight int8 --calibration x.npy");
    verb.callback([given, tensor] { explain(*given, *tensor); });
}

}  // namespace qk::tool
