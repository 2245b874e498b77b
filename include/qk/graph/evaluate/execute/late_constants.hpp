// SPDX-License-Identifier: Apache-2.0
// What a program asks of constants without reading them, and how large ones are made when somebody does.
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "qk/graph/evaluate/execute/cache.hpp"
#include "qk/graph/evaluate/execute/node_call.hpp"

namespace qk::graph::execute::detail {

inline bool is_matrix(const cache& c, slot s) {
    return s < no_slot && c.type_of(s) == data_type::float32 && c.shape_of(s).size() == 2 && element_count(c.shape_of(s)) != 0;
}

/// A constant that is added to every row of n values.
inline bool is_bias(const cache& c, slot s, std::int64_t n) {
    if (s >= no_slot) return false;
    const dims& shape = c.shape_of(s);
    return c.type_of(s) == data_type::float32 && !shape.empty() && shape.back() == n &&
           static_cast<std::int64_t>(element_count(shape)) == n;
}

/// What a unit packs: read when a shape first needs them. The cache outlives its units.
inline late_weights weights_at(const cache& c, slot s) {
    return {c.shape_of(s), [shared = &c, s] { return shared->constant(s); }};
}

/// Computes one output of a node of constants once more.
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

}  // namespace qk::graph::execute::detail
