// SPDX-License-Identifier: Apache-2.0
// Multiplies by the rows of a packed matrix, cut among idle threads.
#pragma once

#include <cstddef>
#include <span>

#include "graph/base/inner_loop.hpp"
#include "graph/base/kernel_calls.hpp"
#ifndef QK_GRAPH_DISPATCH
#include "qk/product.hpp"
#endif

namespace qk::graph::ops::detail {

/// y[count][w.rows] = x[count][w.columns] W^T + bias, in the order of sums that is asked for. `bias` may be
/// empty.
inline void multiply_by_rows(const format& f, const packed_rows& w, const float* x, std::size_t count, std::span<const float> bias,
                             float* y, product_sums sums = product_sums::floats) {
    for_each_range(w.rows, count * w.columns, [&](std::size_t first, std::size_t last) {
        product_options o{.rows = {first, last}, .sums = sums};
        if (!bias.empty()) o.bias = bias;
        kernel_calls::dot_rows(f, w, {std::span(x, count * w.columns), count}, {std::span(y, count * w.rows)}, o);
    });
}

}  // namespace qk::graph::ops::detail
