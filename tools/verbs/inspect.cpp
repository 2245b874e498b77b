// SPDX-License-Identifier: Apache-2.0
// `qk inspect`: a model's inputs and outputs, its operators, its layers and the size of their weights.
#include <fmt/format.h>
#include <onnx/onnx_pb.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <map>
#include <memory>

#include "qk/graph/evaluate.hpp"
#include "qk/graph/model.hpp"
#include "qk/graph/plan.hpp"
#include "qk/graph/quantize.hpp"
#include "qk/graph/recover.hpp"
#include "qk/observe.hpp"
#include "support/caller.hpp"
#include "support/checkpoints.hpp"
#include "support/console.hpp"
#include "support/declared.hpp"
#include "support/tensor_list.hpp"
#include "verbs.hpp"

namespace qk::tool {
namespace {

struct inspect_arguments {
    graph::pipeline::model_source model;
    std::string save_plan, save_float;
    bool json = false, tensors = false, overwrite = false;
};

std::string shown_shape(const graph::value_info& v) { return v.has_shape ? graph::shape_text(v) : "unknown shape"; }

struct layer_row {
    std::string name, op_type, weight, shape, module;
    double values = 0, lowest = 0, highest = 0;
    std::string activation_format{}, weight_format{};  ///< of a quantized model; "" otherwise
};

/// Returns the format on an input of a node, "fp32" without a quantizer.
std::string format_on(const graph::precision_plan& plan, const onnx::NodeProto& node, int input) {
    const graph::quantizer* q = input < node.input_size() ? plan.find({node.input(input), node.name(), input}) : nullptr;
    return q == nullptr ? "fp32" : to_string(q->format);
}

/// Returns a row for each layer. `plan` belongs to the model if that was recovered from a quantized one, else null.
std::vector<layer_row> layers_of(const graph::model& m, const graph::precision_plan* plan) {
    std::vector<layer_row> rows;
    const std::vector<graph::torch_module> modules = graph::torch_modules(m);
    for (const int n : graph::layer_view(m).compute_layers()) {
        const onnx::NodeProto& node = m.graph().node(n);
        layer_row row{node.name(), node.op_type(), "", "", modules[static_cast<std::size_t>(n)].path, 0, 0, 0};
        if (plan != nullptr) row.activation_format = format_on(*plan, node, 0), row.weight_format = format_on(*plan, node, 1);
        if (node.input_size() > 1 && m.is_constant(node.input(1))) {
            const graph::tensor w = m.constant(node.input(1));
            row.weight = node.input(1);
            row.shape = graph::to_string(w.shape());
            row.values = static_cast<double>(w.size());
            if (w.type() == graph::data_type::float32 && !w.empty()) {
                qk::observed_range seen;  // passes over NaN and Inf
                seen.observe(w.as<float>());
                row.lowest = static_cast<double>(seen.min);
                row.highest = static_cast<double>(seen.max);
            }
        }
        rows.push_back(std::move(row));
    }
    return rows;
}

/// Returns a row for each layer that computes with codes: a float model lies under none of these.
std::vector<layer_row> integer_layers_of(const graph::model& m) {
    struct places {
        const char* op;
        int weight, activation_type, weight_type;  ///< inputs; a zero point tells the type of codes that a node makes
    };
    constexpr places all[] = {
        {"QLinearConv", 3, 2, 5}, {"QLinearMatMul", 3, 2, 5}, {"QGemm", 3, 2, 5}, {"ConvInteger", 1, 2, 1}, {"MatMulInteger", 1, 2, 1}};
    const auto type_of = [&](const std::string& name) -> std::string {
        return m.is_constant(name) ? name_of(m.constant_type(name)) : "codes";
    };
    std::vector<layer_row> rows;
    for (const onnx::NodeProto& node : m.graph().node())
        for (const places& p : all) {
            if (node.op_type() != p.op || node.input_size() <= p.weight) continue;
            const auto input = [&](int i) { return i < node.input_size() ? node.input(i) : std::string(); };
            layer_row row{
                node.name(), node.op_type(), "", "", "", 0, 0, 0, type_of(input(p.activation_type)), type_of(input(p.weight_type))};
            if (m.is_constant(input(p.weight))) {
                row.weight = input(p.weight), row.weight_format = type_of(row.weight);
                row.shape = graph::to_string(m.constant_shape(row.weight));
                row.values = static_cast<double>(graph::element_count(m.constant_shape(row.weight)));
            }
            rows.push_back(std::move(row));
        }
    return rows;
}

/// Returns the layers of a model of floats, or of the float model under a quantized one, with formats.
std::vector<layer_row> rows_of(const graph::model& m) {
    const bool casts = std::ranges::any_of(m.graph().node(), [](const onnx::NodeProto& n) { return n.op_type() == "Cast"; });
    if (!casts && graph::note_quantized(m).empty()) return layers_of(m, nullptr);
    std::vector<layer_row> rows;
    try {
        const graph::recovered_plan found = graph::recover_plan(m);
        rows = layers_of(found.plain, &found.plan);
    } catch (const graph::error&) {  // nothing that can be recovered
        rows = layers_of(m, nullptr);
    }
    for (layer_row& row : integer_layers_of(m)) rows.push_back(std::move(row));
    return rows;
}

void print_layers(const std::vector<layer_row>& layers) {
    const bool formats = std::ranges::any_of(layers, [](const layer_row& l) { return !l.weight_format.empty(); });
    const auto print_start = [&](const std::string& name, const std::string& op, const std::string& activation, const std::string& weight) {
        print("{:<40} {:<14} ", name, op);
        if (formats) print("{:<12} {:<12} ", activation, weight);
    };
    print("\n");
    print_start("layer", "operator", "activation", "weight");
    print("{:<20} {:>12} {:>12} {:>12}\n", formats ? "shape" : "weight", "values", "lowest", "highest");
    for (const layer_row& l : layers) {
        print_start(l.name, l.op_type, l.activation_format, l.weight_format);
        const std::string module = l.module.empty() || l.module == l.name ? "" : "  module " + l.module;
        if (l.weight.empty()) print("(not constant){}\n", module);
        else print("{:<20} {:>12.0f} {:>12.5g} {:>12.5g}{}\n", l.shape, l.values, l.lowest, l.highest, module);
    }
}

nlohmann::ordered_json values_json(const std::vector<graph::value_info>& values) {
    nlohmann::ordered_json all = nlohmann::ordered_json::array();
    for (const graph::value_info& v : values) {
        nlohmann::ordered_json shape = nlohmann::ordered_json::array();
        for (const graph::dimension& d : v.shape)
            shape.push_back(d.value >= 0 ? nlohmann::ordered_json(d.value) : nlohmann::ordered_json(d.symbol));
        all.push_back({{"name", v.name}, {"type", name_of(v.type)}, {"shape", v.has_shape ? shape : nlohmann::ordered_json(nullptr)}});
    }
    return all;
}

/// Writes the plan recovered from a quantized model, and the float model that the plan belongs to.
void recover(const inspect_arguments& given, const graph::model& m, graph::output_set& files) {
    const graph::recovered_plan found = graph::recover_plan(m);
    for (const std::string& n : found.notes) print(stderr, "{}\n", n);
    if (caller* by = keeper_of_results()) {
        if (given.save_float.empty()) by->results.underneath = found.plain;
        if (given.save_plan.empty()) by->keep(found.plan);
    }
    if (!given.save_float.empty()) graph::save(found.plain, files, given.save_float);
    if (!given.save_plan.empty()) graph::save_plan(found.plan, files, given.save_plan);
    files.commit();
    if (given.json)
        print_json({{"model", given.model.name()},
                    {"tensors", found.plan.tensors.size()},
                    {"edges", found.plan.edges.size()},
                    {"notes", found.notes}});
    else print("{} quantized tensors and {} single edges recovered\n", found.plan.tensors.size(), found.plan.edges.size());
}

void inspect(const inspect_arguments& given) {
    if (is_checkpoint(given.model.file)) return inspect_checkpoint(given.model.file, given.json);
    graph::output_set files(given.overwrite);
    declare(files, given.model);
    files.output("--save-float", given.save_float).output("--save-plan", given.save_plan);
    const graph::model m = given.model.load();
    if (!given.save_plan.empty() || !given.save_float.empty() || keeper_of_results() != nullptr) return recover(given, m, files);
    if (given.tensors && !given.json) return print_names(list_names(m));
    std::map<std::string, int> operators;
    std::vector<std::string> unknown;
    for (const onnx::NodeProto& node : m.graph().node()) {
        const std::string name = node.domain().empty() ? node.op_type() : node.domain() + ":" + node.op_type();
        if (++operators[name] == 1 && !graph::can_evaluate(m, node)) unknown.push_back(name);
    }
    double weight_bytes = 0, weight_values = 0;
    for (const auto& init : m.graph().initializer()) {
        const auto elements = static_cast<double>(graph::element_count(m.constant_shape(init.name())));
        weight_bytes += elements * static_cast<double>(graph::size_of(m.constant_type(init.name())));
        weight_values += elements;
    }
    const std::vector<layer_row> layers = rows_of(m);
    if (given.json) {
        nlohmann::ordered_json opsets = nlohmann::ordered_json::object(), rows = nlohmann::ordered_json::array();
        for (const auto& o : m.proto().opset_import()) opsets[o.domain()] = o.version();
        for (const layer_row& l : layers) {
            rows.push_back({{"name", l.name},
                            {"module", l.module},
                            {"op_type", l.op_type},
                            {"weight", l.weight},
                            {"shape", l.shape},
                            {"values", l.values},
                            {"lowest", l.lowest},
                            {"highest", l.highest}});
            if (!l.weight_format.empty())
                rows.back()["activation_format"] = l.activation_format, rows.back()["weight_format"] = l.weight_format;
        }
        nlohmann::ordered_json all = {{"model", given.model.name()},
                                      {"ir_version", m.proto().ir_version()},
                                      {"producer", m.proto().producer_name()},
                                      {"opsets", opsets},
                                      {"inputs", values_json(m.inputs())},
                                      {"outputs", values_json(m.outputs())},
                                      {"nodes", m.graph().node_size()},
                                      {"operators", operators},
                                      {"unsupported", unknown},
                                      {"initializer_values", weight_values},
                                      {"initializer_bytes", weight_bytes},
                                      {"layers", rows}};
        if (given.tensors) add_names(all, list_names(m));
        return print_json(all);
    }
    print("{}: {} nodes, IR {}", given.model.name(), m.graph().node_size(), m.proto().ir_version());
    for (const auto& o : m.proto().opset_import()) print(", opset {}{}", o.domain().empty() ? "" : o.domain() + " ", o.version());
    print("{}\n", m.proto().producer_name().empty() ? "" : ", by " + m.proto().producer_name());
    for (const graph::value_info& v : m.inputs()) print("input   {}  {} {}\n", v.name, name_of(v.type), shown_shape(v));
    for (const graph::value_info& v : m.outputs()) print("output  {}  {} {}\n", v.name, name_of(v.type), shown_shape(v));
    print("weights {:.0f} values in {:.0f} bytes\noperators", weight_values, weight_bytes);
    for (const auto& [name, count] : operators) print("  {} x {}", count, name);
    print("\n");
    for (const std::string& name : unknown) print("not supported by qk evaluate: {}\n", name);
    if (!layers.empty()) print_layers(layers);
}

}  // namespace

void add_inspect(command& app, verb_result&) {
    auto given = std::make_shared<inspect_arguments>();
    option_table& verb = app.add_subcommand("inspect", "Show a model's inputs, outputs, operators, layers and weights");
    verb.takes(input_kind::model | input_kind::checkpoint,
               [given] { return checkpoint_or(input_kind::model, given->model.file, "a model"); });
    verb.add_option("MODEL", given->model.file, "ONNX model; or a checkpoint: .safetensors, the index.json of its shards, .gguf")
        .required()
        .reads();
    verb.only_for(input_kind::model);
    verb.add_option("--save-plan", given->save_plan,
                    "a quantized model's plan, recovered from its Q/DQ pairs, Cast pairs, portable functions or AMD operators")
        .type_name("P.json")
        .writes();
    verb.add_option("--save-float", given->save_float, "the float model underneath, which the recovered plan belongs to")
        .type_name("F.onnx")
        .writes();
    verb.add_flag("--tensors", given->tensors,
                  "every name that a request may use, in network order: kind, type, shape (of one sample), and what folding makes of it")
        .common();
    add_overwrite(verb, given->overwrite);
    verb.only_for({});
    verb.add_flag("--json", given->json, "one JSON object on standard output").common();
    verb.footer(
        "Examples:\n  qk inspect model.onnx\n  qk inspect model.onnx --json\n  qk inspect model.onnx --tensors\n  qk inspect model.gguf\n  "
        "qk inspect "
        "quantized.onnx --save-plan plan.json --save-float float.onnx");
    verb.callback([given] {
        take_from_caller(*given);
        inspect(*given);
    });
}

}  // namespace qk::tool
