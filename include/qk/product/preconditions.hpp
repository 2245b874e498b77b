// SPDX-License-Identifier: Apache-2.0
// Asserts what the caller of a product promises (qk/preconditions.hpp).
#pragma once

#include "qk/codec/layout/layout.hpp"
#include "qk/isa.hpp"
#include "qk/preconditions.hpp"
#include "qk/product/call.hpp"
#include "qk/product/whole_numbers.hpp"

namespace qk::detail {
inline namespace QK_ISA {

/// Returns how many numbers an array reaches over that holds `count` vectors of `n` values.
QK_INLINE std::size_t reach(std::size_t count, std::size_t n, std::size_t stride, std::size_t step) {
    return count == 0 || n == 0 ? 0 : (count - 1) * (stride != 0 ? stride : n * step) + (n - 1) * step + 1;
}

/// Checks the rows that a product reads.
QK_INLINE void expect_rows([[maybe_unused]] const format& f, [[maybe_unused]] const packed_rows& r) {
#if QK_EXPECTS
    const packed_weights& w = r.matrix;
    const codec_parameters& p = w.parameters;
    expect_format(f);
    expect_whole_blocks(f, {w.rows, w.columns, 1});
    expect_planes(layout_of(f, along_axis{w.rows, w.columns, 1}), w.planes);
    QK_EXPECT((r.rows == 0 || r.first_row + (r.rows - 1) * r.row_step < w.rows), "qk: a row behind the matrix's last one");
    QK_EXPECT(r.first_column + r.columns <= w.columns, "qk: a column behind the matrix's last one");
    if (is_block_format(f)) {
        QK_EXPECT((p.axis.inner == 0 || (p.axis.outer == w.rows && p.axis.length == w.columns && p.axis.inner == 1)) && p.one_scale(),
                  "qk: blocks of W lie in its rows, and hold their scales");
    } else {
        expect_parameters(f, w.rows * w.columns, p);
    }
#endif
}

/// Checks a product; `outputs` is the number of vectors that y must have room for.
QK_INLINE void expect_product([[maybe_unused]] const format& f, [[maybe_unused]] const product_call& c,
                              [[maybe_unused]] std::size_t outputs) {
#if QK_EXPECTS
    const product_input& x = c.x;
    const product_output& y = c.y;
    const product_options& o = c.options;
    expect_rows(f, c.w);
    const std::size_t written = reach(outputs, c.w.rows, y.stride, y.step), of_all = c.experts == nullptr ? c.w.rows : c.w.matrix.rows;
    QK_EXPECT(o.sums != product_sums::integers || takes_integers(f),
              "qk: product_sums::integers is for formats whose elements are whole numbers; qk::takes_integers(format) says which");
    QK_EXPECT(x.step != 0 && y.step != 0, "qk: a step of 0; neighbouring values are 1 apart");
    if (x.is_rounded()) {
        const std::size_t of_all_x = x.count * padded_columns(c.w.columns);
        QK_EXPECT(o.sums == product_sums::integers && o.round.call == nullptr,
                  "qk: rounded vectors are for product_sums::integers, and are not rounded again");
        QK_EXPECT(x.rounded.q.size() >= of_all_x && x.rounded.scale.size() >= of_all_x / 32,
                  "qk: rounded vectors have padded_columns(columns) bytes each, and a scale for 32 of them");
    } else {
        QK_EXPECT(x.values.size() >= reach(x.count, c.w.columns, x.stride, x.step), "qk: x is too short for its vectors and strides");
    }
    QK_EXPECT(y.values.size() >= written, "qk: y is too short for its vectors and strides");
    QK_EXPECT((o.times.size() == 0 || o.times.size() >= written) && (o.plus.size() == 0 || o.plus.size() >= written),
              "qk: times and plus are laid out as y is");
    QK_EXPECT((o.row_scale.empty() || o.row_scale.size() >= of_all) && (o.bias.empty() || o.bias.size() >= of_all),
              "qk: there must be a row scale and a bias for each row of W, or none");
    QK_EXPECT(are_apart(x.values.memory(), x.values.bytes(), y.values.memory(), y.values.bytes()), "qk: x and y must not overlap");
#endif
}
QK_INLINE void expect_product(const format& f, const product_call& c) {
    std::size_t outputs = c.x.count;
#if QK_EXPECTS
    if (c.experts != nullptr) {
        const product_experts& e = *c.experts;
        outputs = 0;
        for (const expert_choice& one : e.chosen) {
            QK_EXPECT((one.expert + std::size_t{1}) * e.rows <= c.w.matrix.rows, "qk: W has no such expert");
            QK_EXPECT((e.scale.empty() || e.scale.size() > one.expert), "qk: there must be a scale for each expert, or none");
            QK_EXPECT(one.from < c.x.count, "qk: x has no such vector");
            outputs = outputs > one.to ? outputs : one.to + std::size_t{1};
        }
    }
#endif
    expect_product(f, c, outputs);
}
/// Checks what round_vectors is given.
QK_INLINE void expect_rounding([[maybe_unused]] const rounding_call& c) {
#if QK_EXPECTS
    const product_input& x = c.x;
    const std::size_t written = x.count * padded_columns(c.columns);
    QK_EXPECT(!x.is_rounded(), "qk: these vectors are rounded already");
    QK_EXPECT(x.step != 0, "qk: a step of 0; neighbouring values are 1 apart");
    QK_EXPECT(x.values.size() >= reach(x.count, c.columns, x.stride, x.step), "qk: x is too short for its vectors and strides");
    QK_EXPECT(c.q.size() >= written && c.scale.size() >= written / 32,
              "qk: rounded vectors have padded_columns(columns) bytes each, and a scale for 32 of them");
#endif
}
QK_INLINE void expect_weighted([[maybe_unused]] const format& f, [[maybe_unused]] const weighted_call& c) {
#if QK_EXPECTS
    const product_input& x = c.x;
    const product_output& y = c.y;
    const weighted_options& o = c.options;
    expect_rows(f, c.w);
    const std::size_t written = reach(x.count, c.w.columns, y.stride, y.step);
    QK_EXPECT(!x.is_rounded(), "qk: rounded vectors are for product_sums::integers, and are not rounded again");
    QK_EXPECT(x.step != 0 && y.step != 0, "qk: a step of 0; neighbouring values are 1 apart");
    QK_EXPECT(x.values.size() >= reach(x.count, c.w.rows, x.stride, x.step), "qk: x is too short for its vectors and strides");
    QK_EXPECT(y.values.size() >= written, "qk: y is too short for its vectors and strides");
    QK_EXPECT((o.begin.empty() || o.begin.size() >= written) && (o.plus.size() == 0 || o.plus.size() >= written),
              "qk: begin and plus are laid out as y is");
    QK_EXPECT((o.column_scale.empty() || o.column_scale.size() >= c.w.columns), "qk: there must be a scale for each column, or none");
    QK_EXPECT(are_apart(x.values.memory(), x.values.bytes(), y.values.memory(), y.values.bytes()), "qk: x and y must not overlap");
#endif
}

}  // namespace QK_ISA
}  // namespace qk::detail
