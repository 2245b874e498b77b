// SPDX-License-Identifier: Apache-2.0
#include "graph/plan/operand_tables.hpp"

#include <onnx/onnx_pb.h>

#include <initializer_list>
#include <optional>

#include "graph/ops/op.hpp"
#include "qk/graph/model/attribute.hpp"

namespace qk::graph {
namespace {

bool is_float_constant(const layer_view& layers, const onnx::NodeProto& n, int input) {
    return input < n.input_size() && layers.source().is_constant(n.input(input)) && layers.is_float(n.input(input));
}

/// Is true for a Transpose of the last two axes alone.
bool turns(const onnx::NodeProto& n) {
    const onnx::AttributeProto* perm = detail::find_attribute(n, "perm");
    if (!facts_of(n).has(ops::keeps_all) || perm == nullptr || perm->ints_size() < 2) return false;
    const int rank = perm->ints_size();
    for (int i = 0; i + 2 < rank; ++i)
        if (perm->ints(i) != i) return false;
    return perm->ints(rank - 2) == rank - 1 && perm->ints(rank - 1) == rank - 2;
}

bool passes(const onnx::NodeProto& n) {
    const op_facts& is = facts_of(n);
    return (is.has(ops::repeats) && !is.has(ops::makes_codes)) || turns(n);
}

/// Returns whether products are summed along the last axis (true) or the one before it of a tensor, however it reaches them; nullopt if it
/// is not multiplied, or not in one way alone.
std::optional<bool> added_along_last(const model& m, const std::string& tensor, int depth = 0) {
    std::optional<bool> found;
    for (const auto& u : m.uses(tensor)) {
        if (u.node < 0 || u.input < 0 || depth > 4) return std::nullopt;
        const onnx::NodeProto& n = m.graph().node(u.node);
        std::optional<bool> one;
        const auto axes = product_axes_of(n);
        if (axes && !axes->windows && u.input < 2) one = u.input == 0 ? axes->sums != 0 : axes->in == 1;
        else if (passes(n) && u.input == 0) {
            one = added_along_last(m, n.output(0), depth + 1);
            if (one && turns(n)) one = !*one;
        }
        if (!one || (found && *found != *one)) return std::nullopt;
        found = one;
    }
    return found;
}

std::optional<held_weight> experts_of(const layer_view& layers, const onnx::NodeProto& n) {
    const op_facts& is = facts_of(n);
    if (!is.has(ops::chooses) || !is.is_place(1) || n.input_size() < 2 || !is_float_constant(layers, n, 0)) return std::nullopt;
    const model& m = layers.source();
    if (m.constant_shape(n.input(0)).size() != 3 || m.is_constant(n.input(1)) || detail::int_attribute(n, "axis", 0) != 0 ||
        detail::int_attribute(n, "batch_dims", 0) != 0)
        return std::nullopt;
    const std::optional<bool> last = added_along_last(m, n.output(0));
    if (!last) return std::nullopt;
    return held_weight{held_weight::kind::experts, 0, {.block = *last ? -1 : -2, .flatten = false, .channel = *last ? -2 : -1}};
}

}  // namespace

bool is_recurrent(const onnx::NodeProto& n) { return facts_of(n).has(ops::recurrent); }

std::vector<held_weight> held_weights(const layer_view& layers, int node) {
    const onnx::NodeProto& n = layers.source().graph().node(node);
    std::vector<held_weight> found;
    const auto add = [&](held_weight::kind what, std::initializer_list<int> inputs, const operand_axes& axes) {
        for (const int i : inputs)
            if (is_float_constant(layers, n, i)) found.push_back({what, i, axes});
    };
    const operator_name fused = n.domain() == "com.microsoft" ? operator_of(n) : operator_name();
    if (fused == "EmbedLayerNormalization") add(held_weight::kind::embedding, {2, 3, 4}, {-1, false, 0});
    else if (fused == "Attention") add(held_weight::kind::projection, {1}, {0, false, 1});
    else if (fused == "MoE") add(held_weight::kind::projection, {2, 4, 6}, {-1, false, -2});
    else if (is_recurrent(n)) add(held_weight::kind::recurrent, {1, 2}, {-1, false, -2});
    else if (layers.is_embedding(node)) found.push_back({held_weight::kind::embedding, 0, {-1, false, 0}});
    else if (const auto experts = experts_of(layers, n)) found.push_back(*experts);
    return found;
}

bool is_chosen_expert(const layer_view& layers, const std::string& tensor) {
    const model& m = layers.source();
    std::string name = tensor;
    for (int p = m.producer(name), steps = 0; p >= 0 && steps < 5; p = m.producer(name), ++steps) {
        const onnx::NodeProto& n = m.graph().node(p);
        if (!passes(n)) return experts_of(layers, n).has_value();
        name = n.input(0);
    }
    return false;
}

operand_axes weight_axes(const layer_view& layers, int node, int input) {
    for (const held_weight& w : held_weights(layers, node))
        if (w.input == input) return w.axes;
    const onnx::NodeProto& n = layers.source().graph().node(node);
    return axes_of(n, input, layers.source().constant_shape(n.input(input)));
}

}  // namespace qk::graph
