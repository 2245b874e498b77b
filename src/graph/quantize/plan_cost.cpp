// SPDX-License-Identifier: Apache-2.0
// Computes what a plan costs, and writes the text of a report.
#include <onnx/onnx_pb.h>

#include <cmath>
#include <set>

#include "graph/ops/op.hpp"
#include "qk/graph/base/format_text.hpp"
#include "qk/graph/base/names.hpp"
#include "qk/graph/base/printable.hpp"
#include "qk/graph/quantize/planner.hpp"

namespace qk::graph {

double stored_bits(const quantizer& q, std::size_t elements) {
    double bits = bits_per_value(q.format) * static_cast<double>(elements) + 32.0 * static_cast<double>(q.scale.size());
    if (const integer* f = std::get_if<integer>(&q.format)) bits += static_cast<double>(f->bits) * static_cast<double>(q.zero_point.size());
    return bits;
}

namespace detail {
/// Returns the shape of a tensor: a constant's own, or an activation's as calibration saw it; empty when unknown.
inline dims shape_of(const layer_view& layers, const std::string& name, const calibration* seen) {
    for (const auto& i : layers.source().graph().initializer())
        if (i.name() == name) return {i.dims().begin(), i.dims().end()};
    if (seen != nullptr)
        if (const auto s = seen->tensors.find(name); s != seen->tensors.end()) return s->second.shape;
    return {};
}
}  // namespace detail

double multiply_accumulates(const layer_view& layers, int n, const calibration* seen) {
    const onnx::NodeProto& node = layers.source().graph().node(n);
    if (node.output_size() == 0 || node.input_size() < 2) return 0;
    const dims out = detail::shape_of(layers, node.output(0), seen);
    const dims a = detail::shape_of(layers, node.input(0), seen), b = detail::shape_of(layers, node.input(1), seen);
    if (out.empty()) return 0;
    const auto outputs = static_cast<double>(element_count(out));
    const product_axes axes = product_axes_of(node).value_or(product_axes{});
    if (axes.windows) {  // a filter makes each output, or spreads each input
        double filter = 1;
        for (std::size_t i = 1; i < b.size(); ++i) filter *= static_cast<double>(b[i]);
        const dims& each = axes.transposed ? a : out;
        return each.empty() || b.empty() ? 0 : static_cast<double>(element_count(each)) * filter;
    }
    return a.size() < (axes.sums < 0 ? 1 : 2) ? 0 : outputs * static_cast<double>(a[resolve_axis(axes.sums, a.size())]);
}

plan_cost cost_of(const layer_view& layers, const precision_plan& plan, const calibration* seen) {
    plan_cost cost;
    const auto& graph = layers.source().graph();
    const auto used_as = [&](int n, int i) { return layers.nodes()[static_cast<std::size_t>(n)].parts[static_cast<std::size_t>(i)]; };
    const auto width = [&](const std::string& name) { return 8.0 * static_cast<double>(size_of(layers.float_type(name))); };
    std::set<std::string> stored;  // a weight that several layers share is stored once
    for (int n = 0; n < graph.node_size(); ++n)
        for (int i = 0; i < graph.node(n).input_size(); ++i) {
            const std::string& name = graph.node(n).input(i);
            if ((used_as(n, i) != layer_view::part::weight && used_as(n, i) != layer_view::part::bias) || !stored.insert(name).second)
                continue;
            const quantizer* q = plan.find({name, graph.node(n).name(), i});
            const std::size_t elements = element_count(detail::shape_of(layers, name, nullptr));
            cost.float_weight_bits += width(name) * static_cast<double>(elements);
            cost.weight_bits += q != nullptr ? stored_bits(*q, elements) : width(name) * static_cast<double>(elements);
        }
    for (const int n : layers.compute_layers()) {
        const onnx::NodeProto& node = graph.node(n);
        double bits[2] = {32, 32};
        for (int i = 0; i < node.input_size() && i < 2; ++i) {
            const quantizer* q = used_as(n, i) != layer_view::part::none ? plan.find({node.input(i), node.name(), i}) : nullptr;
            if (q != nullptr) bits[i] = bits_per_value(q->format);
        }
        const double products = multiply_accumulates(layers, n, seen);
        cost.bit_operations += products * bits[0] * bits[1];
        cost.float_bit_operations += products * 32 * 32;
    }
    return cost;
}

std::string quantize_report::text() const {
    std::string out;
    for (const plan_note& n : notes)
        out +=
            printable(std::string(name_of(n.what)) + ": " + (n.origin.empty() ? "" : n.origin + ": ") + n.subject + ": " + n.text) + "\n";
    constexpr const char* parts[] = {"none", "input", "weight", "bias"};
    if (method) {
        out += std::string("calibration method: ") + name_of(method->method()) + ", by " + method->metric + " of " +
               std::to_string(method->samples) + " samples:";
        for (const method_choice::trial& t : method->tried)
            out += formatted("%s %s %.6g", &t == method->tried.data() ? "" : ",", name_of(t.method), t.metric);
        out += "\n";
    }
    for (const edge_report& e : edges) {
        out += printable("tensor '" + e.edge.tensor + "' -> " +
                         (e.edge.consumer.empty() ? "model output"
                                                  : "'" + e.edge.consumer + "' (" + e.op_type +
                                                        (e.module.empty() || e.module == e.edge.consumer ? "" : ", " + e.module) + ")")) +
               " " + parts[static_cast<int>(e.part)] + ": " + to_string(e.how.format);
        if (e.how.scale.size() == 1)
            out += formatted(", scale %.9g, zero point %lld", static_cast<double>(e.how.scale[0]),
                             e.how.zero_point.empty() ? 0LL : static_cast<long long>(e.how.zero_point[0]));
        else if (e.how.scale.size() > 1) out += ", " + std::to_string(e.how.scale.size()) + " scales";
        out += formatted(" range [%.6g, %.6g]", static_cast<double>(e.range.lo), static_cast<double>(e.range.hi));
        if (!std::isnan(e.sqnr)) out += formatted(", %.1f dB", e.sqnr);
        out += printable("; " + e.why + (e.origin.empty() ? "" : " (" + e.origin + ")")) + "\n";
    }
    return out;
}

}  // namespace qk::graph
