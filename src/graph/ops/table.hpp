// SPDX-License-Identifier: Apache-2.0
// Assembles the explicit table of operators from groups. Each group has a source file of its own, so that they compile in parallel.
#pragma once

#include <iterator>
#include <ranges>
#include <vector>

#include "graph/ops/op.hpp"

namespace qk::graph::ops {

using op_group = std::vector<op_entry>;

/// Joins the tables of several headers, for example to a group of operators: `return join(relu_ops, clip_ops);`
template <class First, class... Rest>
auto join(const First& first, const Rest&... rest) {
    std::vector<std::ranges::range_value_t<const First&>> all;
    all.reserve((std::size(first) + ... + std::size(rest)));
    const auto add = [&](const auto& table) {
        for (const auto& e : table) all.push_back(e);  // one by one: g++ 12 sees an overflow in a range insertion
    };
    add(first);
    (add(rest), ...);
    return all;
}

// Each is defined in src/graph/ops/NAME.cpp. Of two entries for the same operator and version, the one of the earlier group is used.
op_group heavy_group();         // convolution, matrix products, pooling, batch normalization
op_group math_group();          // element by element; also Einsum, signals
op_group tensor_group();        // shapes, indices, movement of data
op_group reduce_group();        // sums, extremes, softmax, sorting
op_group control_group();       // If, Loop, Scan; random numbers
op_group quantization_group();  // casts, QuantizeLinear, integer products
op_group normalization_group();
op_group attention_group();
op_group recurrent_group();
op_group vision_group();
op_group microsoft_group();  // com.microsoft
op_group amd_group();        // com.amd.quark, com.vai.quantize
op_group portable_group();   // functions of portable files, by what their calls mean

}  // namespace qk::graph::ops
