// SPDX-License-Identifier: Apache-2.0
// Asserts what the caller of a product promises (qk/preconditions.hpp).
#pragma once

#include "qk/preconditions.hpp"
#include "qk/product/options.hpp"

namespace qk::detail {

/// Returns how many numbers an array reaches over that holds `count` vectors of `n` values.
QK_INLINE std::size_t reach(std::size_t count, std::size_t n, std::size_t stride, std::size_t step) {
    return count == 0 || n == 0 ? 0 : (count - 1) * (stride != 0 ? stride : n * step) + (n - 1) * step + 1;
}

QK_INLINE void expect_product([[maybe_unused]] const format& f, [[maybe_unused]] const packed_weights& w,
                              [[maybe_unused]] const product_input& x, [[maybe_unused]] const product_output& y,
                              [[maybe_unused]] const product_options& o) {
#if !defined(NDEBUG)
    expect_format(f);
    expect_planes(layout_of(f, along_axis{w.rows, w.columns, 1}), w.planes);
    const std::size_t written = reach(x.count, w.rows, y.stride, y.step);
    assert(x.step != 0 && y.step != 0 && "qk: a step of 0; neighbouring values are 1 apart");
    assert(x.values.size() >= reach(x.count, w.columns, x.stride, x.step) && "qk: x is too short for its vectors and strides");
    assert(y.values.size() >= written && "qk: y is too short for its vectors and strides");
    assert((o.times.size() == 0 || o.times.size() >= written) && (o.plus.size() == 0 || o.plus.size() >= written) &&
           "qk: times and plus are laid out as y is");
    assert((o.row_scale.empty() || o.row_scale.size() >= w.rows) && (o.bias.empty() || o.bias.size() >= w.rows) &&
           "qk: there must be a row scale and a bias for each row of W, or none");
    assert(are_apart(x.values.memory(), x.values.bytes(), y.values.memory(), y.values.bytes()) && "qk: x and y must not overlap");
    const codec_parameters& p = w.parameters;
    if (is_block_format(f)) {
        assert((p.axis.inner == 0 || (p.axis.outer == w.rows && p.axis.length == w.columns && p.axis.inner == 1)) && p.one_scale() &&
               "qk: blocks of W lie in its rows, and hold their scales");
    } else if (!p.one_scale()) {
        const along_axis a = resolved(p.axis, w.rows * w.columns);
        expect_axis(p.axis, w.rows * w.columns);
        expect_scales(f, p.scale, p.zero_point, p.group == 0 ? a.length : a.outer * ((a.length + p.group - 1) / p.group) * a.inner);
    }
#endif
}

}  // namespace qk::detail
