// SPDX-License-Identifier: Apache-2.0
// Implements the functions of dot.hpp: reads rows and columns of the operands and sums their products.
#pragma once

#include <cmath>

#include "qk/dot.hpp"
#include "qk/isa.hpp"

namespace qk::detail {
inline namespace QK_ISA {

/// Turns a stored code into the register's own code: the inverse of stored_code.
QK_INLINE constexpr std::uint64_t own_code(floating f, std::uint64_t stored) {
    if (f == fp64 || bits(f) <= 16 || f == fp32) return stored;
    events ignored;
    const auto v = static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(stored)));
    return round_to(f, rounding::half_even, accumulator{}, v, ignored);
}

QK_INLINE void count(const events& seen, bool nan, dot_counts* counts) {
    if (counts == nullptr) return;
    counts->overflow += seen.overflow;
    counts->underflow += seen.underflow;
    counts->inexact += seen.inexact;
    counts->saturation += seen.saturation;
    counts->nan += nan;
}

/// Sums products of doubles, fma after fma.
inline std::uint64_t double_sum(const packed_row<floating>& a, const packed_row<floating>& b, std::size_t k, std::uint64_t c,
                                nan_answer nan) noexcept {
    const auto element = [](const packed_row<floating>& r, std::size_t i) {
        double v = 0;
        std::memcpy(&v, r.packed.elements.data() + 8 * ((r.outer * r.axis.length + i) * r.axis.inner + r.across), 8);
        return v;
    };
    auto sum = std::bit_cast<double>(c);
    for (std::size_t i = 0; i < k; ++i) sum = std::fma(element(a, i), element(b, i), sum);
    return sum != sum ? nan_of(fp64, nan) : std::bit_cast<std::uint64_t>(sum);
}

template <class Whole>
std::uint64_t floating_sum(const accumulator& how, const row_source& a, const row_source& b, std::size_t k, std::uint64_t c, bool counted,
                           events& seen) noexcept {
    term_window<Whole> w(a, b, k, how.bundle);
    if (how.sum == summation::exact || how.sum == summation::aligned) return fused_sum(how, w, c, seen);
    return rounded_sum(how, w, c, counted, seen);
}

/// Returns the code of the sum times `scale`, plus C (`start`), rounded again; the sum's own code where scale is 1.
inline std::uint64_t scaled_code(const accumulator& how, std::uint64_t code, float scale, std::uint64_t start, events& seen) noexcept {
    if (scale != 1) {
        const double sum = is_ieee(how.result) ? value_of_register(how.result, code)
                                               : static_cast<double>(value_of(how.result, static_cast<std::uint32_t>(code)));
        const double product = sum * static_cast<double>(scale);
        code = round_to(how.result, how.round, how, add_to_odd(product, value_of_register(how.addend, start)), seen);
    }
    return code;
}

/// Returns the stored code of one element of D; `scale` multiplies the sum of the products (1: C is a term like the others).
inline std::uint64_t one_sum(const accumulator& how, const row_source& a, const row_source& b, std::size_t k, std::uint64_t c, float scale,
                             dot_counts* counts) noexcept {
    events seen;
    const std::uint64_t start = own_code(how.addend, c);
    const std::uint64_t first = scale == 1 ? start : 0;
    const auto sum = how.bundle == 1 ? &floating_sum<std::int64_t> : &floating_sum<int128>;
    std::uint64_t code = sum(how, a, b, k, first, counts != nullptr, seen);
    code = scaled_code(how, code, scale, start, seen);
    count(seen, is_nan_code(how.result, code), counts);
    return stored_code(how.result, code);
}

/// An operand, whose rows are read as a device reads them.
struct operand {
    const format& form;
    const packed_matrix& packed;
    along_axis axis;
    const accumulator& how;

    /// Calls call(packed_row) for the row at (outer, across).
    template <class Call>
    void with_row(std::size_t outer, std::size_t across, const Call& call) const noexcept {
        with_family(form, [&](const auto& f) {
            packed_row<std::remove_cvref_t<decltype(f)>> r{f, packed.planes, axis, outer, across, reading_of(how, packed.zero_point), 1};
            if (how.sum == summation::exact) r.tensor = tensor_scale();
            call(r);
        });
    }
    /// Returns NVFP4's tensor scale, 1 for other formats.
    float tensor_scale() const noexcept {
        float scale = 1;
        if (has_floating_scales(form) && !packed.planes.tensor.empty()) std::memcpy(&scale, packed.planes.tensor.data(), sizeof scale);
        return scale;
    }
};

/// Computes D where rows fit a tile: each is taken apart once for several columns.
template <class GetC, class PutD>
void multiply_held(const operand& a, const operand& b, product_shape s, float scale, const GetC& get_c, const PutD& put_d,
                   dot_counts* counts) noexcept {
    constexpr std::size_t panel = 8;
    element_tile columns[panel], row;
    for (std::size_t j0 = 0; j0 < s.n; j0 += panel) {
        const std::size_t width = std::min(panel, s.n - j0);
        row_source any_b;
        for (std::size_t j = 0; j < width; ++j) {
            b.with_row(0, j0 + j, [&](const auto& r) {
                any_b = source_of(r);
                r.load(0, s.k, columns[j]);
            });
        }
        for (std::size_t i = 0; i < s.m; ++i) {
            row_source any_a;
            a.with_row(i, 0, [&](const auto& r) {
                any_a = source_of(r);
                r.load(0, s.k, row);
            });
            const row_source held_a = held_source(row, any_a);
            for (std::size_t j = 0; j < width; ++j) {
                const std::size_t at = i * s.n + j0 + j;
                put_d(at, one_sum(a.how, held_a, held_source(columns[j], any_b), s.k, get_c(at), scale, counts));
            }
        }
    }
}

/// Computes D. get_c(position) returns the stored codes of C, put_d(position, code) takes those of D.
template <class GetC, class PutD>
void multiply(const accumulator& how, const format& fa, const format& fb, product_shape s, const packed_matrix& a, const packed_matrix& b,
              const GetC& get_c, const PutD& put_d, dot_counts* counts) noexcept {
    const operand x{fa, a, {s.m, s.k, 1}, how}, y{fb, b, {1, s.k, s.n}, how};
    const float scale = how.sum == summation::exact ? 1.0f : x.tensor_scale() * y.tensor_scale();
    const bool floats = how.sum != summation::integer && how.partial != fp64;
    if (floats && s.k <= dot_tile && s.m * s.n > 1) return multiply_held(x, y, s, scale, get_c, put_d, counts);
    const auto one = [&]<class A, class B>(std::size_t at, const packed_row<A>& row, const packed_row<B>& column) {
        if (floats) {
            put_d(at, one_sum(how, source_of(row), source_of(column), s.k, get_c(at), scale, counts));
        } else if constexpr (std::is_same_v<A, integer> && std::is_same_v<B, integer>) {
            events seen;
            put_d(at, static_cast<std::uint64_t>(whole_sum(how, row, column, s.k, static_cast<std::int64_t>(get_c(at)), seen)));
            count(seen, false, counts);
        } else if constexpr (std::is_same_v<A, floating> && std::is_same_v<B, floating>) {
            put_d(at, double_sum(row, column, s.k, get_c(at), how.nan));
        }
    };
    for (std::size_t i = 0; i < s.m; ++i) {
        for (std::size_t j = 0; j < s.n; ++j) {
            x.with_row(i, 0, [&](const auto& row) { y.with_row(0, j, [&](const auto& column) { one(i * s.n + j, row, column); }); });
        }
    }
}

/// Turn values into stored codes and back.
template <accumulator Acc>
constexpr std::uint64_t stored_of(sum_type<Acc> v) {
    if constexpr (Acc.sum == summation::integer) return static_cast<std::uint64_t>(v);
    else if constexpr (Acc.addend == fp64) return std::bit_cast<std::uint64_t>(v);
    else return stored_code_of(Acc.addend, static_cast<double>(v));
}
template <accumulator Acc>
constexpr sum_type<Acc> value_of_stored(std::uint64_t code) {
    if constexpr (Acc.sum == summation::integer) return static_cast<std::int64_t>(code);
    else if constexpr (Acc.result == fp64) return std::bit_cast<double>(code);
    else if constexpr (bits(Acc.result) <= 16) return value_of(Acc.result, static_cast<std::uint32_t>(code));
    else return std::bit_cast<float>(static_cast<std::uint32_t>(code));
}

}  // namespace QK_ISA
}  // namespace qk::detail

namespace qk::device_sums {
inline namespace QK_ISA {

/// An operand, whose rows are read as a device reads them.
using detail::operand;
/// source_of(row): a row as a sum reads it. one_sum: the stored code of one element of D. scaled_code: a sum's code times a scale.
using detail::source_of, detail::one_sum, detail::scaled_code;

}  // namespace QK_ISA
}  // namespace qk::device_sums

namespace qk {

inline namespace QK_ISA {

template <auto A, auto B, accumulator Acc>
void matrix_multiply_add(product_shape shape, packed_matrix a, packed_matrix b, std::span<const sum_type<Acc>> c,
                         std::span<sum_type<Acc>> d, dot_counts* counts) noexcept {
    static_assert(check(Acc).empty(), "this accumulator cannot be computed: qk::check(accumulator) says why");
    static_assert(check_operands(format(A), format(B), Acc).empty(),
                  "this accumulator does not take these operands: qk::check_operands says why");
    static constexpr accumulator how = Acc;
    static constexpr format fa = A, fb = B;
    detail::multiply(
        how, fa, fb, shape, a, b, [&](std::size_t i) { return c.empty() ? 0 : detail::stored_of<Acc>(c[i]); },
        [&](std::size_t i, std::uint64_t code) { d[i] = detail::value_of_stored<Acc>(code); }, counts);
}
template <auto A, auto B, accumulator Acc>
sum_type<Acc> dot(packed_vector a, packed_vector b, sum_type<Acc> c, dot_counts* counts) noexcept {
    const along_axis axis{1, a.size, 1};
    sum_type<Acc> d = 0;
    matrix_multiply_add<A, B, Acc>({1, 1, a.size}, {planes_of(layout_of(A, axis), a.bytes), a.zero_point},
                                   {planes_of(layout_of(B, axis), b.bytes), b.zero_point}, std::span<const sum_type<Acc>>(&c, 1),
                                   std::span<sum_type<Acc>>(&d, 1), counts);
    return d;
}

inline void matrix_multiply_add(const format& fa, const format& fb, const accumulator& acc, product_shape shape, packed_matrix a,
                                packed_matrix b, std::span<const std::uint64_t> c, std::span<std::uint64_t> d,
                                dot_counts* counts) noexcept {
    detail::multiply(
        acc, fa, fb, shape, a, b, [&](std::size_t i) { return c.empty() ? 0 : c[i]; },
        [&](std::size_t i, std::uint64_t code) { d[i] = code; }, counts);
}
inline std::uint64_t dot(const format& fa, const format& fb, const accumulator& acc, packed_vector a, packed_vector b, std::uint64_t c,
                         dot_counts* counts) noexcept {
    const along_axis axis{1, a.size, 1};
    std::uint64_t d = 0;
    matrix_multiply_add(fa, fb, acc, {1, 1, a.size}, {planes_of(layout_of(fa, axis), a.bytes), a.zero_point},
                        {planes_of(layout_of(fb, axis), b.bytes), b.zero_point}, std::span<const std::uint64_t>(&c, 1),
                        std::span<std::uint64_t>(&d, 1), counts);
    return d;
}

}  // namespace QK_ISA

}  // namespace qk
