// SPDX-License-Identifier: Apache-2.0
// Answers what a program asks about constants without reading them, and makes large constants when they are read.
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "graph/evaluate/execute/cache.hpp"
#include "graph/evaluate/execute/dequantized.hpp"
#include "graph/evaluate/execute/node_call.hpp"
#include "graph/model/operator_name.hpp"

namespace qk::graph::execute::detail {

inline bool is_matrix(const cache& c, slot s) {
    return s < no_slot && c.type_of(s) == data_type::float32 && c.shape_of(s).size() == 2 && element_count(c.shape_of(s)) != 0;
}

/// Returns whether a constant of n values is added to every row of n values.
inline bool is_bias(const cache& c, slot s, std::int64_t n) {
    if (s >= no_slot) return false;
    const dims& shape = c.shape_of(s);
    return c.type_of(s) == data_type::float32 && !shape.empty() && shape.back() == n &&
           static_cast<std::int64_t>(element_count(shape)) == n;
}

/// Returns weights that a unit reads and packs when a shape first needs them. The cache outlives its units.
inline late_weights weights_at(const cache& c, slot s) {
    return {c.shape_of(s), [shared = &c, s] { return shared->constant(s); }};
}

/// Returns a function that computes one output of a node of constants again.
inline std::function<tensor()> again(const cache& c, const net_node& n, const std::vector<slot>& in, std::size_t output,
                                     std::shared_ptr<const prepared_op> prepared) {
    return [&n, in, output, shared = &c, prepared = std::move(prepared)] {
        arena memory(shared->budget);
        std::vector<tensor> inputs, outputs(n.outputs.size());
        for (const slot s : in) inputs.push_back(s < no_slot ? shared->constant(s) : tensor());
        call_node(n, prepared.get(), inputs, outputs, memory, no_subgraphs());
        return std::move(outputs[output]);
    };
}

/// Adds the Transpose of a large constant, whose shape is known without reading it. Returns no_slot for any other node.
inline slot late_transpose(cache& c, const net_node& n, const std::vector<slot>& in) {
    const std::string& domain = n.view.proto().domain();
    if (operator_of(n.view) != "Transpose" || !(domain.empty() || domain == "ai.onnx") || in.size() != 1 || !c.is_late(in[0]))
        return no_slot;
    const dims& shape = c.shape_of(in[0]);
    dims order = n.view.get_ints("perm"), turned;
    if (order.empty())
        for (std::size_t i = shape.size(); i-- > 0;) order.push_back(static_cast<std::int64_t>(i));
    for (const std::int64_t i : order)
        if (i < 0 || static_cast<std::size_t>(i) >= shape.size()) return no_slot;
        else turned.push_back(shape[static_cast<std::size_t>(i)]);
    if (turned.size() != shape.size()) return no_slot;
    const slot made = c.add_late_constant(c.type_of(in[0]), turned, again(c, n, in, 0, nullptr));
    if (order == dims{1, 0}) c.set_turned_from(made, in[0]);
    return made;
}

/// Returns the matrix that a product packs and whether it is transposed. If the constant is the transpose of another one, that is the other
/// one, so that the transpose is never made.
inline std::pair<late_weights, bool> matrix_at(const cache& c, slot s, bool transposed) {
    const slot from = c.turned_from(s);
    return from == no_slot ? std::pair(weights_at(c, s), transposed) : std::pair(weights_at(c, from), !transposed);
}

/// Returns the source of the large constant from which this node, a Gather along axis 0, takes rows; null for any other node.
inline source_pointer rows_in_file(const cache& c, const net_node& n, const std::vector<slot>& in) {
    const std::string& domain = n.view.proto().domain();
    if (operator_of(n.view) != "Gather" || !(domain.empty() || domain == "ai.onnx") || in.size() != 2 || in[0] >= no_slot || in[1] < 0)
        return nullptr;
    const source_pointer from = c.source_of(in[0]);
    const bool along_rows =
        from != nullptr && !from->shape().empty() &&
        (n.view.get_int("axis", 0) == 0 || n.view.get_int("axis", 0) == -static_cast<std::int64_t>(from->shape().size()));
    return along_rows && from->has_parts() ? from : nullptr;
}

/// Reads the rows with these numbers; negative ones count from the end. Returns an empty tensor if one is out of range or the numbers are
/// neither int64 nor int32.
inline tensor read_rows(const element_source& from, const tensor& numbers, allocator& memory) {
    const std::int64_t count = from.shape()[0];
    std::vector<std::int64_t> which;
    if (numbers.type() == data_type::int64) which.assign(numbers.as<std::int64_t>().begin(), numbers.as<std::int64_t>().end());
    else if (numbers.type() == data_type::int32) which.assign(numbers.as<std::int32_t>().begin(), numbers.as<std::int32_t>().end());
    else return {};
    for (std::int64_t& i : which) {
        if (i < 0) i += count;
        if (i < 0 || i >= count) return {};
    }
    dims shape = numbers.shape();
    shape.insert(shape.end(), from.shape().begin() + 1, from.shape().end());
    const std::size_t row = from.raw_bytes() / static_cast<std::size_t>(count), bytes = row * which.size();
    tensor y(from.type(), std::move(shape), memory.allocate(bytes));
    for_each_range(which.size(), row + 4096, [&](std::size_t first, std::size_t last) {
        for (std::size_t k = first; k < last; ++k) from.read_part(static_cast<std::size_t>(which[k]) * row, {y.bytes() + k * row, row});
    });
    return y;
}

/// Returns what the operator prepares once for all runs of a node with these inputs; null if it prepares nothing.
inline std::shared_ptr<const prepared_op> prepared_for(cache& c, const net_node& n, const std::vector<slot>& in) {
    if (n.op->prepare == nullptr) return nullptr;
    std::vector<int> key{c.node_number(n)};
    for (const slot s : in) key.push_back(std::min(s, 0));  // all runtime slots alike
    const auto [at, is_new] = c.prepared.try_emplace(key);
    if (is_new) {
        std::vector<tensor> constants;
        for (const slot s : in) constants.push_back(s < no_slot ? c.constant(s) : tensor());
        at->second = n.op->prepare({n.view, constants});
    }
    return at->second;
}

/// Computes a node of constants, once for all programs, and returns the slots of its outputs.
inline const std::vector<slot>& folded(cache& c, const net_node& n, const std::vector<int>& key, const std::vector<slot>& in) {
    const auto [at, is_new] = c.folded.try_emplace(key);
    if (!is_new) return at->second;
    if (const slot late = late_transpose(c, n, in); late != no_slot) return at->second = {late};
    arena memory(c.budget);
    std::vector<tensor> inputs, outputs(n.outputs.size());
    for (const slot s : in) inputs.push_back(s < no_slot ? c.constant(s) : tensor());
    call_node(n, prepared_for(c, n, in).get(), inputs, outputs, memory, no_subgraphs());
    inputs.clear();
    std::vector<slot> made;
    for (std::size_t i = 0; i < outputs.size(); ++i) {
        if (n.outputs[i] < 0 || outputs[i].empty()) made.push_back(no_slot);
        else if (outputs[i].size_bytes() < smallest_outside) made.push_back(c.add_constant(std::move(outputs[i])));
        else made.push_back(c.add_late_constant(outputs[i].type(), outputs[i].shape(), again(c, n, in, i, prepared_for(c, n, in))));
    }
    if (const auto q = dequantized_by(c, n, in)) c.set_quantizer_of_constant(made[0], *q);
    return at->second = made;
}

}  // namespace qk::graph::execute::detail
