// SPDX-License-Identifier: Apache-2.0
// Products over packed weights: y = W x and Y = X W^T, where W stays packed, in any format.
//
//   qk::product<qk::mxfp4>({rows, columns, planes}, x, y);                           // y = W x
//   qk::product(format, {rows, columns, planes}, {x, 8}, y, {.bias = b});            // eight vectors
//   qk::product<qk::int4>({rows, columns, {codes}, qk::per_block{...}}, x, y, {.plus = y});  // y += W x
//   qk::grouped_product<qk::mxfp4>(w, {.rows = r, .chosen = chosen}, {x, tokens}, y);         // what a router chose
//   qk::dot_rows<qk::fp8_e4m3fn>(keys, query, scores);                               // scores of attention over a packed cache
//   qk::weighted_rows<qk::fp8_e4m3fn>(values, scores, context);                      // and its context
//
// Contract, for every overload:
//   - W[r][k] is what decode gives for the planes and parameters (qk/codec.hpp), bit for bit. Blocks of block formats lie in rows.
//   - The order. y[m][r] is the sum over k of x[m][k] * W[r][k] in float32. There are sixteen partial sums, each of which begins at +0.
//     Weight k is added to number k % 16, k upwards, by one fused multiply-add (the exact product is added and the sum rounded once, to
//     nearest even). At the end p[i] + p[i + 8] gives eight sums, those four apart give four, then two, then one. So the bits do not
//     depend on the instruction set, on threads, on how rows are cut, nor on how many vectors a call has: a row gives the same alone.
//     (A processor without fused multiply-add computes the same in several steps, and slowly.) NaN is NaN, whatever its bits.
//   - The order of product_sums::chains. The sum is one chain: it begins at +0, and x[m][k] * W[r][k] is added by one fused multiply-add, k
//     upwards. It is the faster order for many vectors, and the slower one for few; the caller chooses, never the number of vectors.
//   - The order of product_sums::integers. x is cut into blocks of 32, from column 0 on. The scale of a block is its largest magnitude /
//     127, its whole numbers are x / scale to nearest even, from -127 to 127 (all 0 where the scale is 0; NaN or Inf make the scale NaN).
//     Elements of W, less their zero point, are whole numbers of a unit, the smallest magnitude that the format's elements have. The sum of
//     the products of weights 8 i to 8 i + 7 of a block is exact; it is converted to float32, multiplied by (scale * unit) * factor and
//     added by a fused multiply-add to partial sum i in blocks 0, 2, 4 ..., to number 4 + i in blocks 1, 3, 5 ..., block after block. The
//     eight partial sums are joined as above (number 8 to 15 are +0). It is for codes of at most 8 bits that are whole numbers
//     (takes_integers), whose factors are shared by a row, by 16 weights or by a multiple of 32.
//     A weight of ggml's blocks is number * factor + added: the numbers of ggml's own products (a code less 8, what a table holds), a unit
//     of 1, and what decode multiplies by and adds. Where a type adds something, the sum of the whole numbers of the 32 values of x that
//     meet one such constant (16 in q2_K) is exact; it is converted to float32, multiplied by scale and then, by a fused multiply-add,
//     by the constant, for partial sum 8 + block % 8. A product begins at a column that is a multiple of 32.
//   - The order of weighted_rows. y[m][c] is a chain: it begins at +0 or at begin[m][c], and each row's x[m][r] * V[r][c] is added by one
//     fused multiply-add, r upwards. So a cache in pages gives the bits of one in a piece, each page beginning where the last one ended.
//   - dot_rows has the order of product: column k of the rows is number k of the sum. grouped_product, too; where two choices have the
//     same `to` and `plus` is y, they are added in the order in which they stand.
//   - What follows the sum is in product_options, in order. y is float, float16 or bfloat16, as x is; both may be strided.
//   - Nothing is allocated, thrown or started; about 150 KiB of stack; one thread. Work is cut by `rows`, or by the overload that takes
//     parallel_for. x and y do not overlap; `times` and `plus` may be y itself.
//   - The processor rounds to nearest and keeps subnormals (its state when a program starts).
//   - Preconditions are asserted, as in fake_quantize.hpp.
#pragma once

#include "qk/exact/begin.hpp"

#include "qk/fake_quantize.hpp"
#include "qk/isa.hpp"
#include "qk/product/chains.hpp"
#include "qk/product/ggml_rows.hpp"
#include "qk/product/options.hpp"
#include "qk/product/panels.hpp"
#include "qk/product/pieces.hpp"
#include "qk/product/preconditions.hpp"
#include "qk/product/rounded.hpp"
#include "qk/product/rows.hpp"
#include "qk/product/walk.hpp"
#include "qk/product/weighted.hpp"
#include "qk/product/whole_numbers.hpp"

namespace qk {

inline namespace QK_ISA {

/// Format known when compiling.
template <auto Format, class Arch = kernels::native>
void product(const packed_weights& w, const product_input& x, const product_output& y, const product_options& o = {}) noexcept;

/// Format known when running; the same bits.
template <class Arch = kernels::native>
void product(const format& f, const packed_weights& w, const product_input& x, const product_output& y,
             const product_options& o = {}) noexcept;

/// Products of vectors with the experts that a router chose, in one call.
template <auto Format, class Arch = kernels::native>
void grouped_product(const packed_weights& w, const product_experts& e, const product_input& x, const product_output& y,
                     const product_options& o = {}) noexcept;
template <class Arch = kernels::native>
void grouped_product(const format& f, const packed_weights& w, const product_experts& e, const product_input& x, const product_output& y,
                     const product_options& o = {}) noexcept;

/// y[m][r] = the sum over k of x[m][k] * rows[r][k]: scores of queries x with a cache's keys. The options are those of product.
template <auto Format, class Arch = kernels::native>
void dot_rows(const packed_rows& rows, const product_input& x, const product_output& y, const product_options& o = {}) noexcept;
template <class Arch = kernels::native>
void dot_rows(const format& f, const packed_rows& rows, const product_input& x, const product_output& y,
              const product_options& o = {}) noexcept;

/// y[m][c] = the sum over r of x[m][r] * rows[r][c]: what attention makes of a cache's values. The vectors of x have as many values as
/// there are rows, those of y as many as there are columns.
template <auto Format, class Arch = kernels::native>
void weighted_rows(const packed_rows& rows, const product_input& x, const product_output& y, const weighted_options& o = {}) noexcept;
template <class Arch = kernels::native>
void weighted_rows(const format& f, const packed_rows& rows, const product_input& x, const product_output& y,
                   const weighted_options& o = {}) noexcept;

/// Rounds vectors as product_sums::integers does on its way, once for all products that share them (queries, keys and values; both halves
/// of a gated unit): product<mxfp4>(w, {rounded_vectors{q, scale}, count}, y, {.sums = product_sums::integers}) has the bits of the
/// product with x itself. Vectors of `columns` values; q and scale are those of rounded_vectors, and get the same bytes on every processor.
/// `round` is that of product_options.
template <class Arch = kernels::native>
void round_vectors(const product_input& x, std::size_t columns, std::span<std::int8_t> q, std::span<float> scale,
                   const input_rounding& round = {}) noexcept;

/// Cuts the rows into pieces of `rows_of_a_piece` and calls parallel_for(pieces, body), which calls body(i) once for each i below `pieces`,
/// on any threads, and returns when all have returned.
template <class Parallel>
void product(const format& f, const packed_weights& w, const product_input& x, const product_output& y, const product_options& o,
             const Parallel& parallel_for, std::size_t rows_of_a_piece = 64);
template <auto Format, class Parallel>
void product(const packed_weights& w, const product_input& x, const product_output& y, const product_options& o,
             const Parallel& parallel_for, std::size_t rows_of_a_piece = 64);

/// Gives x the numbers of a format on its way: product<mxfp4>(w, {x}, {y}, {.round = rounded_to<mxfp8_e4m3>()}). Blocks begin at column 0,
/// and their length divides 256; elementwise formats have a scale of 1.
template <auto Format, class Arch = kernels::native>
[[nodiscard]] constexpr input_rounding rounded_to() noexcept;

/// Every other call does not compile, and says why (wrong_use.hpp).
#define QK_REFUSES(function, ...)                                  \
    template <class Family>                                        \
    requires std::is_constructible_v<format, Family>               \
    void function(__VA_ARGS__) { wrong_use::of_family<Family>(); } \
    template <class F>                                             \
    requires(wrong_use::is_no_format<F>) void function(F&&, __VA_ARGS__) { wrong_use::of_format<F>(); }
QK_REFUSES(product, const packed_weights&, const product_input&, const product_output&, const product_options& = {})
QK_REFUSES(grouped_product, const packed_weights&, const product_experts&, const product_input&, const product_output&,
           const product_options& = {})
QK_REFUSES(dot_rows, const packed_rows&, const product_input&, const product_output&, const product_options& = {})
QK_REFUSES(weighted_rows, const packed_rows&, const product_input&, const product_output&, const weighted_options& = {})
#undef QK_REFUSES

}  // namespace QK_ISA

// ---- implementation

namespace detail {
inline namespace QK_ISA {

template <class Arch, compile_time_facts Known = compile_time_facts{}, class Format>
void product_of_family(const Format& f, const product_call& c) noexcept {
    if (c.first >= c.last || c.x.count == 0) return;
    const rows_of<Arch, Known, Format> rows(f, c.w.matrix);
    if (c.options.sums == product_sums::chains) return chains_walk<Arch>(rows, c).run();
    if (c.options.sums == product_sums::integers && product_in_panels<Arch>(rows, c)) return;
    product_walk<Arch>(rows, c).run();
}
template <class Arch, compile_time_facts Known = compile_time_facts{}, class Format>
void product_of_family(const Format& f, const weighted_call& c) noexcept {
    if (c.first >= c.last || c.x.count == 0) return;
    const rows_of<Arch, Known, Format> rows(f, c.w.matrix);
    weighted_walk<Arch>(rows, c).run();
}

template <auto Format, class Arch, class Call>
void product_known(const Call& c) noexcept {
    if constexpr (wrong_use::is_no_fault_of<Format, true>()) {
        if constexpr (std::same_as<Call, product_call>) expect_product(Format, c);
        else expect_weighted(Format, c);
        product_of_family<Arch, known_of(Format)>(Format, c);
    }
}
template <class Arch, class Call>
void product_of(const format& f, const Call& c) noexcept {
    if constexpr (std::same_as<Call, product_call>) expect_product(f, c);
    else expect_weighted(f, c);
    with_read_family(f, [&](const auto& g) { product_of_family<Arch>(g, c); });
}

}  // namespace QK_ISA
}  // namespace detail

inline namespace QK_ISA {

template <auto Format, class Arch>
void product(const packed_weights& w, const product_input& x, const product_output& y, const product_options& o) noexcept {
    detail::product_known<Format, Arch>(detail::call_of(detail::all_rows(w), x, y, o));
}
template <class Arch>
QK_APART void product(const format& f, const packed_weights& w, const product_input& x, const product_output& y,
                      const product_options& o) noexcept {
    detail::product_of<Arch>(f, detail::call_of(detail::all_rows(w), x, y, o));
}
template <auto Format, class Arch>
void grouped_product(const packed_weights& w, const product_experts& e, const product_input& x, const product_output& y,
                     const product_options& o) noexcept {
    detail::product_known<Format, Arch>(detail::call_of(w, e, x, y, o));
}
template <class Arch>
QK_APART void grouped_product(const format& f, const packed_weights& w, const product_experts& e, const product_input& x,
                              const product_output& y, const product_options& o) noexcept {
    detail::product_of<Arch>(f, detail::call_of(w, e, x, y, o));
}
template <auto Format, class Arch>
void dot_rows(const packed_rows& rows, const product_input& x, const product_output& y, const product_options& o) noexcept {
    detail::product_known<Format, Arch>(detail::call_of(rows, x, y, o));
}
template <class Arch>
QK_APART void dot_rows(const format& f, const packed_rows& rows, const product_input& x, const product_output& y,
                       const product_options& o) noexcept {
    detail::product_of<Arch>(f, detail::call_of(rows, x, y, o));
}
template <auto Format, class Arch>
void weighted_rows(const packed_rows& rows, const product_input& x, const product_output& y, const weighted_options& o) noexcept {
    detail::product_known<Format, Arch>(detail::call_of(rows, x, y, o));
}
template <class Arch>
QK_APART void weighted_rows(const format& f, const packed_rows& rows, const product_input& x, const product_output& y,
                            const weighted_options& o) noexcept {
    detail::product_of<Arch>(f, detail::call_of(rows, x, y, o));
}
template <class Arch>
void round_vectors(const product_input& x, std::size_t columns, std::span<std::int8_t> q, std::span<float> scale,
                   const input_rounding& round) noexcept {
    const detail::rounding_call c{x, columns, q, scale, round};
    detail::expect_rounding(c);
    detail::round_vectors_of<Arch>(c);
}
template <class Parallel>
void product(const format& f, const packed_weights& w, const product_input& x, const product_output& y, const product_options& o,
             const Parallel& parallel_for, std::size_t rows_of_a_piece) {
    detail::in_pieces(w.rows, o, parallel_for, rows_of_a_piece, [&](const product_options& piece) { product(f, w, x, y, piece); });
}
template <auto Format, class Parallel>
void product(const packed_weights& w, const product_input& x, const product_output& y, const product_options& o,
             const Parallel& parallel_for, std::size_t rows_of_a_piece) {
    detail::in_pieces(w.rows, o, parallel_for, rows_of_a_piece, [&](const product_options& piece) { product<Format>(w, x, y, piece); });
}

template <auto Format, class Arch>
constexpr input_rounding rounded_to() noexcept {
    if constexpr (is_block_format(Format)) static_assert(256 % block_size(Format) == 0, "the length of a block must divide 256");
    return {[](const void*, const float* x, float* y, std::size_t n) noexcept {
                fake_quantize<Format, Arch>(std::span<const float>(x, n), std::span<float>(y, n));
            },
            nullptr};
}

}  // namespace QK_ISA

}  // namespace qk

#include "qk/exact/end.hpp"
