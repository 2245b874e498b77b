// SPDX-License-Identifier: Apache-2.0
// Multiplies a row by many columns under an accumulator that aligns. Operands are taken apart once; lanes run over columns. Gives the bits
// of matrix_multiply_add where a serves_... function below accepts the accumulator; equations (D1) to (D4) of docs/reference/numerics.md.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "qk/dot/elements.hpp"
#include "qk/dot/whole.hpp"
#include "qk/isa.hpp"

namespace qk::detail {
inline namespace QK_ISA {

/// Elements of an operand in two arrays: value i is n[i] * 2^(exponent[i] - fraction), none of them infinite or NaN.
struct apart {
    const std::int16_t* n = nullptr;
    const std::int16_t* exponent = nullptr;
};

/// Returns the bits of a product that has `align` fraction bits; sums of 2^(31 - bits) such products fit 32 bits.
constexpr int aligned_bits(const accumulator& a, const element_kind& x, const element_kind& y) {
    return x.width + y.width + a.align - x.fraction - y.fraction;
}
/// Is true when the accumulator aligns without lanes, flushes or results that depend on the sign of a zero. C is zero at the start.
constexpr bool aligns_plainly(const accumulator& a) {
    return is_ieee(a.result) && a.cut != rounding::to_odd && a.sum == summation::aligned && a.place == place::inside && a.lanes == 1 &&
           a.flush_inputs == input_flush::none && !flushes_results(a) && !a.product_overflow && !a.product_range &&
           a.round != rounding::down && a.partial_round != rounding::down;
}
/// Is true when aligned_columns computes these sums: each product is a term.
constexpr bool serves_aligned_columns(const accumulator& a, const element_kind& x, const element_kind& y) {
    return aligns_plainly(a) && a.bundle == 1 && x.width <= 15 && y.width <= 15 && a.align >= x.fraction + y.fraction && a.align <= 30 &&
           aligned_bits(a, x, y) <= 30;
}

/// Returns the bits of an element that is counted in the lowest steps of its block.
constexpr int bits_in_block(const element_kind& k) { return k.width + k.highest - k.lowest; }
/// Returns by how many bits a bundle's sum is shifted left to have `align` fraction bits below its own exponent.
constexpr int bundle_raise(const accumulator& a, const element_kind& x, const element_kind& y) {
    return a.align + x.lowest + y.lowest - x.fraction - y.fraction;
}
/// Is true when bundled_columns computes these sums: the products of a bundle share their blocks' scales, so its sum is a whole number, and
/// its exponent is that of the scales.
constexpr bool serves_bundled_columns(const accumulator& a, const element_kind& x, std::int64_t x_block, const element_kind& y,
                                      std::int64_t y_block) {
    if (!aligns_plainly(a) || a.bundle < 2 || a.groups < a.bundle || a.groups / a.bundle > 64 || x_block < 1 || y_block < 1 ||
        x_block % a.bundle != 0 || y_block % a.bundle != 0)
        return false;
    const int bits = bits_in_block(x) + bits_in_block(y) + width_of(static_cast<std::uint64_t>(a.bundle)), raise = bundle_raise(a, x, y);
    return bits_in_block(x) <= 15 && bits_in_block(y) <= 15 && bits <= 31 && raise >= 0 && bits + raise <= 54;
}

/// Is true when exact_columns computes these sums: they are exact until the result and fit 62 bits in units of the smallest product. These
/// are integer registers that wrap, and exact sums of narrow formats in one group: nothing is rounded in between. C is zero at the start.
constexpr bool serves_exact_columns(const accumulator& a, const element_kind& x, const element_kind& y, std::size_t k) {
    const bool one_group = a.groups == 0 || static_cast<std::size_t>(a.groups) >= k;
    const bool exact = a.sum == summation::exact && is_ieee(a.result) && one_group && a.place == place::inside && a.bundle == 1 &&
                       a.flush_inputs == input_flush::none && !flushes_results(a) && a.round != rounding::down;
    const bool wrapping = a.sum == summation::integer && !a.saturate && x.whole && y.whole;
    const int range = x.width + y.width + x.highest - x.lowest + y.highest - y.lowest;
    const int widest = wrapping ? 16 : 15;  // products fit 32 bits
    return (exact || wrapping) && x.width <= widest && y.width <= widest && range + width_of(std::uint64_t{k}) < 62;
}

/// What registers hold between groups: significand * 2^(exponent - mantissa bits).
template <int Lanes>
struct held_registers {
    std::int32_t significand[Lanes];
    std::int32_t exponent[Lanes];
};

/// Rounds v * 2^lsb to a register of format f. Returns false where it overflows: the general form then decides the result.
QK_INLINE bool round_whole(floating f, rounding r, std::int64_t v, int lsb, std::uint32_t& code) {
    const bool negative = v < 0;
    const auto magnitude = static_cast<std::uint64_t>(negative ? -v : v);
    if (magnitude == 0) {
        code = 0;
        return true;
    }
    const int m = f.mantissa_bits, lowest = min_exponent(f), at = std::max(lsb + width_of(magnitude) - 1, lowest), drop = at - m - lsb;
    std::uint64_t kept = 0;
    if (drop <= 0) {
        kept = magnitude << -drop;
    } else {
        const int shift = std::min(drop, 63);  // magnitudes have fewer bits
        kept = magnitude >> shift;
        const std::uint64_t low = magnitude & ((std::uint64_t{1} << shift) - 1), half = std::uint64_t{1} << (shift - 1);
        const int rest = drop > 63 ? -1 : low > half ? 1 : low == half ? 0 : -1;
        if (low != 0 && goes_up(r, negative, (kept & 1) != 0, rest)) ++kept;
    }
    const std::uint64_t whole = (static_cast<std::uint64_t>(at - lowest) << m) + kept;
    code = static_cast<std::uint32_t>(whole | (negative ? sign_of(f) : 0));
    return whole < infinity_of(f);
}

/// Returns v / 2^right, cut down or toward zero.
template <bool Down, class Whole>
QK_INLINE Whole cut_right(Whole v, int right) {
    if constexpr (Down) return v >> right;
    const Whole magnitude = (v < 0 ? -v : v) >> right;
    return v < 0 ? -magnitude : magnitude;
}

/// Adds a group's sums, in units of 2^(top - align), to what the registers held. Returns false if one overflowed, or if the sign of its
/// zero depends on all terms.
template <int Lanes, bool Down>
QK_INLINE bool close_group(const accumulator& how, bool final, floating& held, const std::int32_t* top, const std::int64_t* sum,
                           held_registers<Lanes>& c, std::uint32_t* codes) {
    const floating to = final ? how.result : how.partial;
    for (int j = 0; j < Lanes; ++j) {
        const int right = top[j] - c.exponent[j] + held.mantissa_bits - how.align;  // right shift of the register's significand
        const std::int64_t own = c.significand[j];
        const std::int64_t aligned = right <= 0 ? own << -right : cut_right<Down>(own, std::min(right, 63));
        if (!round_whole(to, final ? how.round : how.partial_round, sum[j] + aligned, top[j] - how.align, codes[j])) return false;
        if (codes[j] == sign_of(to)) {  // -0: whether the next sum keeps its sign depends on all its terms
            if (how.zero == zero_rule::positive) codes[j] = 0;
            else if (!final) return false;
        }
        const unpacked u = unpack(to, codes[j]);
        c.significand[j] = static_cast<std::int32_t>(u.significand);
        c.exponent[j] = u.exponent;
    }
    held = to;
    return true;
}

/// Computes the codes of `Lanes` sums, in groups of `step` elements. Every `each`-th element of the row and of the columns has an exponent;
/// add(first, last, top, sum) computes the sums of a group in units of 2^(top - align). Returns false where close_group does.
template <int Lanes, bool Down, class Add>
QK_INLINE bool add_groups(const accumulator& how, std::size_t k, std::size_t step, std::size_t each, const std::int32_t* row_exponent,
                          apart b, std::size_t stride, std::uint32_t* codes, const Add& add) {
    held_registers<Lanes> c;
    std::fill_n(c.significand, Lanes, 0);
    std::fill_n(c.exponent, Lanes, -126);
    floating held = how.addend;
    std::size_t first = 0;
    do {
        const std::size_t last = std::min(k, first + step);
        alignas(64) std::int32_t top[Lanes];
        alignas(64) std::int64_t sum[Lanes];
        std::copy_n(c.exponent, Lanes, top);
        std::fill_n(sum, Lanes, 0);
        for (std::size_t i = first; i < last; i += each) {
            const std::int16_t* e = b.exponent + i * stride;
            for (int j = 0; j < Lanes; ++j) top[j] = std::max(top[j], row_exponent[i] + e[j]);
        }
        add(first, last, top, sum);
        if (!close_group<Lanes, Down>(how, last == k, held, top, sum, c, codes)) return false;
        first = last;
    } while (first < k);
    return true;
}

/// Multiplies a row of k elements by neighbouring columns; rows of B are `stride` elements apart. `row` holds n * 2^(align - fraction) of
/// A. Returns false where close_group does; the general form must then compute the sums.
template <int Lanes, bool Down>
bool aligned_columns(const accumulator& how, std::size_t k, const std::int32_t* row, const std::int32_t* row_exponent, apart b,
                     std::size_t stride, std::size_t chunk, std::uint32_t* codes) noexcept {
    const std::size_t step = how.groups == 0 ? std::max<std::size_t>(k, 1) : static_cast<std::size_t>(how.groups);
    return add_groups<Lanes, Down>(how, k, step, 1, row_exponent, b, stride, codes,
                                   [&](std::size_t first, std::size_t last, const std::int32_t* top, std::int64_t* sum) {
                                       for (std::size_t from = first; from < last; from += chunk) {
                                           alignas(64) std::int32_t part[Lanes] = {0};
                                           for (std::size_t i = from; i < std::min(last, from + chunk); ++i) {
                                               const std::int16_t *n = b.n + i * stride, *e = b.exponent + i * stride;
                                               for (int j = 0; j < Lanes; ++j)
                                                   part[j] += cut_right<Down>(std::int32_t{row[i] * n[j]},
                                                                              std::min<int>(31, top[j] - row_exponent[i] - e[j]));
                                           }
                                           for (int j = 0; j < Lanes; ++j) sum[j] += part[j];
                                       }
                                   });
}

/// Computes aligned_columns for bundles: `row` and B's n are whole numbers of their blocks' lowest steps, exponents those of the scales.
template <int Lanes, bool Down>
bool bundled_columns(const accumulator& how, int raise, std::size_t k, const std::int32_t* row, const std::int32_t* row_exponent, apart b,
                     std::size_t stride, std::uint32_t* codes) noexcept {
    const auto bundle = static_cast<std::size_t>(how.bundle), step = static_cast<std::size_t>(how.groups) / bundle * bundle;
    return add_groups<Lanes, Down>(how, k, step, bundle, row_exponent, b, stride, codes,
                                   [&](std::size_t first, std::size_t last, const std::int32_t* top, std::int64_t* sum) {
                                       for (std::size_t from = first; from < last; from += bundle) {
                                           alignas(64) std::int32_t part[Lanes] = {0};
                                           for (std::size_t i = from; i < std::min(last, from + bundle); ++i) {
                                               const std::int16_t* n = b.n + i * stride;
                                               for (int j = 0; j < Lanes; ++j) part[j] += row[i] * n[j];
                                           }
                                           const std::int16_t* e = b.exponent + from * stride;
                                           for (int j = 0; j < Lanes; ++j)
                                               sum[j] += cut_right<Down>(std::int64_t{part[j]} * (std::int64_t{1} << raise),
                                                                         std::min<int>(63, top[j] - row_exponent[from] - e[j]));
                                       }
                                   });
}

/// Computes the exact sums, in units of 2^(lowest exponents - fractions). `row_exponent` and B's exponents are counted from the lowest
/// ones; those of zeros are 0.
template <int Lanes>
void exact_columns(std::size_t k, const std::int32_t* row, const std::int32_t* row_exponent, apart b, std::size_t stride,
                   std::int64_t* sums) noexcept {
    alignas(64) std::int64_t sum[Lanes] = {0};
    for (std::size_t i = 0; i < k; ++i) {
        const std::int16_t *n = b.n + i * stride, *e = b.exponent + i * stride;
        for (int j = 0; j < Lanes; ++j) sum[j] += static_cast<std::int64_t>(row[i] * n[j]) << (row_exponent[i] + e[j]);
    }
    std::copy_n(sum, Lanes, sums);
}

/// Turns an exact sum into what the accumulator stores. Zero becomes +0. Returns false where the result overflows.
QK_INLINE bool store_exact(const accumulator& how, std::int64_t sum, int lsb, std::uint64_t& stored) {
    if (how.sum == summation::integer) {
        events ignored;
        stored = static_cast<std::uint64_t>(requantize(keep(sum, how.width, false, ignored), how.requantize));
        return true;
    }
    std::uint32_t code = 0;
    if (!round_whole(how.result, how.round, sum, lsb, code)) return false;
    if (code == sign_of(how.result) && how.zero == zero_rule::positive) code = 0;
    stored = stored_code(how.result, code);
    return true;
}

}  // namespace QK_ISA
}  // namespace qk::detail

namespace qk::device_sums {
inline namespace QK_ISA {

/// Sums of a row times columns side by side, in lanes: which accumulators and operands each way serves, and the ways.
using detail::aligned_columns, detail::bundled_columns, detail::exact_columns, detail::store_exact;
using detail::serves_aligned_columns, detail::serves_bundled_columns, detail::serves_exact_columns;
/// What they read: columns taken apart, the bits of their products, of an element within its block, and the shift of a bundle.
using detail::aligned_bits, detail::apart, detail::bits_in_block, detail::bundle_raise;

}  // namespace QK_ISA
}  // namespace qk::device_sums
