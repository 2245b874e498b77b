// SPDX-License-Identifier: Apache-2.0
// Lists and describes the edges of a plan for reports.
#include <onnx/onnx_pb.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "graph/ops/widened.hpp"
#include "qk/graph/model/torch_names.hpp"
#include "qk/graph/quantize/planner.hpp"

namespace qk::graph {

std::vector<edge> quantized_edges(const precision_plan& plan, const model& m) {
    std::vector<edge> all;
    const auto add = [&](edge e) {
        if (plan.find(e) != nullptr) all.push_back(std::move(e));
    };
    for (const auto& n : m.graph().node())
        for (int i = 0; i < n.input_size(); ++i)
            if (!n.input(i).empty()) add({n.input(i), n.name(), i});
    for (std::size_t o = 0; o < m.outputs().size(); ++o) add({m.outputs()[o].name, "", static_cast<int>(o)});
    return all;
}

void quantize_report::add(edge_report line) {
    const bool constant = line.part == layer_view::part::weight || line.part == layer_view::part::bias;
    if (constant) {
        float_bits += 32.0 * static_cast<double>(line.elements);
        quantized_bits += stored_bits(line.how, line.elements);
    }
    edges.push_back(std::move(line));
}

double mean_square(const tensor_statistics& s) {
    const histogram_points points = points_of(s);
    double signal = 0, all = 0;
    for (std::size_t i = 0; i < points.values.size(); ++i) {
        const double v = static_cast<double>(points.values[i]);
        signal += points.weights[i] * v * v, all += points.weights[i];
    }
    return all > 0 ? signal / all : 0;
}

edge_report describe_edge(const layer_view& layers, const edge& e, layer_view::part part, const quantizer& how, const calibration* seen,
                          const tensor* constant) {
    const model& m = layers.source();
    const int node = e.consumer.empty() ? -1 : m.node_index(e.consumer);
    edge_report line{.edge = e, .op_type = node < 0 ? "" : m.graph().node(node).op_type(), .part = part, .how = how};
    line.sqnr = std::numeric_limits<double>::quiet_NaN();
    if (constant != nullptr && constant->type() == data_type::float32) {
        std::vector<float> y(constant->size());
        apply(how, *constant, y);
        line.range = range_of(constant->as<float>());
        line.elements = constant->size();
        line.sqnr = sqnr(constant->as<float>(), y);
        return line;
    }
    const auto found = seen == nullptr ? std::map<std::string, tensor_statistics>::const_iterator() : seen->tensors.find(e.tensor);
    if (seen == nullptr || found == seen->tensors.end()) return line;
    const tensor_statistics& s = found->second;
    line.elements = element_count(s.shape);
    line.range = s.range;
    if (s.histogram.count() > 0) line.sqnr = 10 * std::log10(mean_square(s) / estimated_error(s, how));
    return line;
}

std::string edge_report::consumer_text() const {
    return edge.consumer + (module.empty() || module == edge.consumer ? "" : " (" + module + ")");
}

void name_modules(quantize_report& report, const model& m) {
    const std::vector<torch_module> modules = torch_modules(m);
    for (edge_report& e : report.edges)
        if (const int n = e.edge.consumer.empty() ? -1 : m.node_index(e.edge.consumer); n >= 0)
            e.module = modules[static_cast<std::size_t>(n)].path;
}

void throw_violations(const quantize_report& report, const quantize_options& options) {
    if (!options.strict && !options.strict_all) return;
    for (const plan_note& n : report.notes)
        if (is_violation(n) && (options.strict_all || !is_overridden(n)))
            throw error((n.origin.empty() ? "" : n.origin + ": ") + n.subject + ": " + n.text + " (strict)");
}

std::string boundary_line(const widened_tensors& widened) {
    std::set<std::string> tensors;
    std::string formats;
    for (const auto& [pair, names] : widened) {
        tensors.insert(names.begin(), names.end());
        const std::string one =
            pair.first == pair.second ? pair.first + " with one range for all" : pair.first + " instead of " + pair.second;
        formats += (formats.empty() ? "" : ", ") + one;
    }
    if (tensors.empty()) return {};
    return std::to_string(tensors.size()) + (tensors.size() == 1 ? " tensor" : " tensors") +
           " between layers that ask differently took the wider format (" + formats +
           "): --dual, or \"boundary\": \"dual\" in a requests file, gives each layer its own (--log L.txt and --report name them)";
}

quantize_report describe_plan(const layer_view& layers, const precision_plan& plan, const calibration* seen, const std::string& why) {
    const model& m = layers.source();
    quantize_report report;
    for (const edge& e : quantized_edges(plan, m)) {
        layer_view::part part = layer_view::part::input;
        if (const int n = e.consumer.empty() ? -1 : m.node_index(e.consumer); n >= 0)
            part = layers.nodes()[static_cast<std::size_t>(n)].parts[static_cast<std::size_t>(e.index)];
        tensor value;
        if (m.is_constant(e.tensor)) value = ops::widened(m.constant(e.tensor));
        edge_report line = describe_edge(layers, e, part, *plan.find(e), seen, m.is_constant(e.tensor) ? &value : nullptr);
        if (m.is_constant(e.tensor)) {
            const std::span<const float> x = value.as<float>();
            const auto lost = std::ranges::count_if(x, [](float v) { return !std::isfinite(v); });
            if (lost > 0)
                report.notes.push_back({plan_note::kind::unrealised, "weight '" + e.tensor + "' of '" + e.consumer + "'",
                                        std::to_string(lost) + " of its " + std::to_string(x.size()) + " values are NaN or Inf"});
        }
        line.why = why;
        report.add(std::move(line));
    }
    name_modules(report, m);
    return report;
}

}  // namespace qk::graph
