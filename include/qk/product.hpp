// SPDX-License-Identifier: Apache-2.0
// Products over packed weights: y = W x and Y = X W^T, where W stays packed, in any format.
//
//   qk::product<qk::mxfp4>({rows, columns, planes}, {x}, {y});                       // y = W x
//   qk::product(format, {rows, columns, planes}, {x, 8}, {y}, {.bias = b});          // eight vectors
//   qk::product<qk::int4>({rows, columns, {codes}, qk::per_block{...}}, {x}, {y}, {.plus = y});  // y += W x
//
// Contract, for every overload:
//   - W[r][k] is what decode gives for the planes and parameters (qk/codec.hpp), bit for bit. Blocks of block formats lie in rows.
//   - The order. y[m][r] is the sum over k of x[m][k] * W[r][k] in float32. There are sixteen partial sums, each of which begins at +0.
//     Weight k is added to number k % 16, k upwards, by one fused multiply-add (the exact product is added and the sum rounded once, to
//     nearest even). At the end p[i] + p[i + 8] gives eight sums, those four apart give four, then two, then one. So the bits do not
//     depend on the instruction set, on threads, on how rows are cut, nor on how many vectors a call has: a row gives the same alone.
//     (A processor without fused multiply-add computes the same in several steps, and slowly.) NaN is NaN, whatever its bits.
//   - The order of product_sums::integers. x is cut into blocks of 32, from column 0 on. The scale of a block is its largest magnitude /
//     127, its whole numbers are x / scale to nearest even, from -127 to 127 (all 0 where the scale is 0; NaN or Inf make the scale NaN).
//     Elements of W, less their zero point, are whole numbers of a unit, the smallest magnitude that the format's elements have. Sums of
//     the products of weights 4 i to 4 i + 3 of a block are exact; they are converted to float32, multiplied by (scale * unit) * factor and
//     added to partial sum i by a fused multiply-add, block after block. The eight partial sums are joined as above (number 8 to 15 are
//     +0). It is for codes of at most 8 bits that are whole numbers (takes_integers), whose factors are shared by a row, by 16 weights or
//     by a multiple of 32.
//   - What follows the sum is in product_options, in order. y is float, float16 or bfloat16, as x is; both may be strided.
//   - Nothing is allocated, thrown or started; about 80 KiB of stack; one thread. Work is cut by `rows`, or by the overload that takes
//     parallel_for. x and y do not overlap; `times` and `plus` may be y itself.
//   - The processor rounds to nearest and keeps subnormals (its state when a program starts).
//   - Preconditions are asserted, as in fake_quantize.hpp.
#pragma once

#include "qk/exact/begin.hpp"

#include "qk/fake_quantize.hpp"
#include "qk/product/options.hpp"
#include "qk/product/pieces.hpp"
#include "qk/product/preconditions.hpp"
#include "qk/product/rows.hpp"
#include "qk/product/walk.hpp"
#include "qk/product/whole_numbers.hpp"

namespace qk {

/// Format known when compiling.
template <auto Format, class Arch = kernels::native>
void product(const packed_weights& w, const product_input& x, const product_output& y, const product_options& o = {}) noexcept;

/// Format known when running; the same bits.
template <class Arch = kernels::native>
void product(const format& f, const packed_weights& w, const product_input& x, const product_output& y,
             const product_options& o = {}) noexcept;

/// Cuts the rows into pieces of `rows_of_a_piece` and calls parallel_for(pieces, body), which calls body(i) once for each i below `pieces`,
/// on any threads, and returns when all have returned.
template <class Parallel>
void product(const format& f, const packed_weights& w, const product_input& x, const product_output& y, const product_options& o,
             const Parallel& parallel_for, std::size_t rows_of_a_piece = 64);
template <auto Format, class Parallel>
void product(const packed_weights& w, const product_input& x, const product_output& y, const product_options& o,
             const Parallel& parallel_for, std::size_t rows_of_a_piece = 64);

// ---- implementation

namespace detail {

template <class Arch, compile_time_facts Known = compile_time_facts{}, class Format>
void product_of_family(const Format& f, const packed_weights& w, const product_call& c) noexcept {
    if (c.first >= c.last || c.x.count == 0) return;
    const rows_of<Arch, Known, Format> rows(f, w);
    product_walk<Arch>(rows, c).run();
}

}  // namespace detail

template <auto Format, class Arch>
void product(const packed_weights& w, const product_input& x, const product_output& y, const product_options& o) noexcept {
    if constexpr (detail::is_valid<Format>()) {
        detail::expect_product(Format, w, x, y, o);
        detail::product_of_family<Arch, detail::known_of(Format)>(Format, w, {x, y, o, o.rows.first, detail::last_row(w, o)});
    }
}
template <class Arch>
QK_APART void product(const format& f, const packed_weights& w, const product_input& x, const product_output& y,
                      const product_options& o) noexcept {
    detail::expect_product(f, w, x, y, o);
    detail::with_family(f, [&](const auto& g) { detail::product_of_family<Arch>(g, w, {x, y, o, o.rows.first, detail::last_row(w, o)}); });
}
template <class Parallel>
void product(const format& f, const packed_weights& w, const product_input& x, const product_output& y, const product_options& o,
             const Parallel& parallel_for, std::size_t rows_of_a_piece) {
    detail::in_pieces(w, o, parallel_for, rows_of_a_piece, [&](const product_options& piece) { product(f, w, x, y, piece); });
}
template <auto Format, class Parallel>
void product(const packed_weights& w, const product_input& x, const product_output& y, const product_options& o,
             const Parallel& parallel_for, std::size_t rows_of_a_piece) {
    detail::in_pieces(w, o, parallel_for, rows_of_a_piece, [&](const product_options& piece) { product<Format>(w, x, y, piece); });
}

}  // namespace qk

#include "qk/exact/end.hpp"
