// SPDX-License-Identifier: Apache-2.0
// The explicit table of operators, assembled from groups; a group is a source file of its own, so that they compile side by side.
#pragma once

#include <vector>

#include "qk/graph/ops/op.hpp"

namespace qk::graph::ops {

using op_group = std::vector<op_entry>;

/// One group from the tables that its operator headers hold: `return join(relu_ops, clip_ops);`
template <class... Tables>
op_group join(const Tables&... tables) {
    op_group all;
    all.reserve((std::size(tables) + ... + 0));
    const auto add = [&](const auto& table) {
        for (const op_entry& e : table) all.push_back(e);  // one by one: g++ 12 sees an overflow in a range insertion
    };
    (add(tables), ...);
    return all;
}

// Each is defined in src/graph/ops/NAME.cpp. Where two entries serve the same operator and version, the earlier group wins.
op_group heavy_group();         // convolution, matrix products, pooling, batch normalization
op_group math_group();          // element by element
op_group tensor_group();        // shapes, indices, movement of data
op_group reduce_group();        // sums, extremes, softmax, sorting
op_group control_group();       // If, Loop, Scan, constants
op_group quantization_group();  // QuantizeLinear and everything with integers in it; casts
op_group normalization_group();
op_group attention_group();
op_group recurrent_group();
op_group vision_group();
op_group microsoft_group();  // com.microsoft
op_group amd_group();        // com.amd.quark, com.vai.quantize

}  // namespace qk::graph::ops
