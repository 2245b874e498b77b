// SPDX-License-Identifier: Apache-2.0
// What the fast forms round by: half-even by float addition, for the values and semantics that allow it. The drivers test a tile with one
// compare and leave everything else to the general form.
//
// Why they are exact. Let c be the largest power of two up to |x|, but at least the smallest normal number of the format, and
// K = 1.5 * 2^(23 - m) with m <= 20. c * K has an ulp of c * 2^-m, the step of the grid at x, and so has the sum c * K + x, which lies
// within 2c of it: the sum is x rounded half-even to that step, and the difference is exact, +0 if it is zero. c * K itself is exact, so it
// does not matter whether a compiler makes one fma of product and sum. Where a block has one step, the sum is with M = 1.5 * 2^23 steps.
// Both hold while the sums are finite, and in the default floating-point environment, which the drivers check.
#pragma once

#include "qk/inline.hpp"
#include "qk/isa.hpp"
#include "qk/steps/general.hpp"

namespace qk::kernels {
inline namespace QK_ISA {

inline constexpr std::int32_t exponent_mask = 0x7f800000;
inline constexpr std::int32_t half_bit = 0x00400000;  ///< with an exponent field: 1.5 times that power of two
inline constexpr std::int32_t no_value = -1;          ///< sentinel: every tile test fails, so the general form runs

/// Returns x rounded half-even to m mantissa bits, no finer than the step at `least`; `magic` is K. A zero is +0.
template <class Arch>
QK_INLINE vf<Arch> to_grid(vf<Arch> x, vi<Arch> least, vf<Arch> magic) noexcept {
    const vf<Arch> c = as_float<Arch>(max(as_int<Arch>(x) & vi<Arch>(exponent_mask), least));
    return fnma(c, magic, fma(c, magic, x));
}

// The quotient by a product.
//
// Computes x / d, which is rounded to a coarse grid next, without a division: by 1 / d held in two floats, for divisors for which that is
// proved to be exact.
//
// high is 1 / d rounded down, low nearly all that is missing: with e = 1 - d * high, which is exact and less than 2^-23, it is e * high,
// rounded. So the fused x * high + (x * low), before it is rounded once, is x / d but for 2^-45 of it (2^-46 for e * e, 2^-47 each for the
// two products): 2^-21 of its ulp. The result is the float32 quotient unless a middle M between two floats lies that close to x / d, and it
// only matters where one of the two floats is a tie T of the grid that the quotient is rounded to next. Let T have at most p significant
// bits, and d = D * 2^a, x = X * 2^b with D and X integers of 24 bits. Then M = N * 2^i with N = +1 or -1 modulo 2^(25 - p), and what was
// said amounts to |X * 2^c - N * D| <= 16, where c is at least 24 for the sizes to fit. So, modulo 2^(25 - p), D is within 16 of zero. If D
// is a multiple of 2^(25 - p), which is at least 32, the difference is one too, so it is zero; but then 2^24 divides N * D, and it does
// not. There remain the divisors with D within 16 of such a multiple, and not on it: by those the kernels divide.

inline constexpr std::int32_t least_fast_divisor = (127 - 64) << 23, largest_fast_divisor = (127 + 64)
                                                                                            << 23;  ///< the sums stay normal numbers

/// Is set where the product may replace the quotient by d: every tie of the next grid has at most `tie_bits` (up to 20) significant bits.
template <class Arch>
QK_INLINE mask<Arch> has_fast_quotient(vi<Arch> d, int tie_bits) noexcept {
    using V = vi<Arch>;
    const V near = (d + V(16)) & V((1 << (25 - tie_bits)) - 1);  // 0 to 32: within 16 of a multiple
    return (d >= V(least_fast_divisor)) & (d <= V(largest_fast_divisor)) & ((near > V(32)) | (near == V(16)));
}

/// 1 / d in two floats.
template <class Arch>
struct two_part_reciprocal {
    vf<Arch> high, low;
};

template <class Arch>
QK_INLINE two_part_reciprocal<Arch> reciprocal_of(vf<Arch> d) noexcept {
    using V = vi<Arch>;
    const vf<Arch> one(1.0f), nearest = quotient<Arch>(one, d);
    const mask<Arch> above = as_int<Arch>(fma<Arch>(-nearest, d, one)) < V(0);
    const vf<Arch> high = as_float<Arch>(as_int<Arch>(nearest) - select(above, V(1), V(0)));
    return {high, fma<Arch>(-high, d, one) * high};  // not negative, so that zeros keep their sign
}

/// Returns x / d where has_fast_quotient() holds. The sign is that of x, for zeros too.
template <class Arch>
QK_INLINE vf<Arch> fast_quotient(vf<Arch> x, const two_part_reciprocal<Arch>& r) noexcept {
    return fma<Arch>(x, r.high, x * r.low);
}

/// What scales the elements of a vector, a lane each; all lanes may be the same.
template <class Arch>
struct fast_scale {
    vf<Arch> scale;
    vf<Arch> high,
        low;  ///< two_part_reciprocal where the quotient is a product; `high` alone is the rounded reciprocal that multiplies integers
    vi<Arch> lowest, highest;  ///< of integers: the limits of the rounded quotient, as bits of fast_integer's sums
    std::int32_t limit;        ///< the largest result of a tile's test that the fast form covers
};

/// Divides by one divisor. The quotient is rounded next to a grid whose ties have `tie_bits` significant bits; 0: it may be used otherwise.
template <class Arch>
struct fast_divisor {
    vf<Arch> divisor;
    two_part_reciprocal<Arch> reciprocal;
    bool product;

    fast_divisor(float d, int tie_bits) noexcept
        : divisor(d),
          reciprocal(reciprocal_of<Arch>(divisor)),
          product(has_fused<Arch>() && tie_bits != 0 && all(has_fast_quotient<Arch>(as_int<Arch>(divisor), tie_bits))) {}
    QK_INLINE vf<Arch> operator()(vf<Arch> x) const noexcept {
        return product ? fast_quotient<Arch>(x, reciprocal) : quotient<Arch>(x, divisor);
    }
};

/// Returns what a tile's test compares with the form's limit: the magnitude, unless the form has a tested() of its own.
template <class Arch, class Form>
QK_INLINE vi<Arch> tested(const Form& form, vf<Arch> x) noexcept {
    if constexpr (requires { form.tested(x); }) return form.tested(x);
    return as_int<Arch>(x) & vi<Arch>(magnitude_bits);
}

/// A scale other than one divides an element before it is rounded, and multiplies the result.
template <bool Scaled, class Arch>
QK_INLINE vf<Arch> divided(vf<Arch> x, const fast_scale<Arch>& by) noexcept {
    if constexpr (Scaled) return quotient<Arch>(x, by.scale);
    return x;
}
template <bool Scaled, class Arch>
QK_INLINE vf<Arch> multiplied(vf<Arch> y, const fast_scale<Arch>& by) noexcept {
    if constexpr (Scaled) return y * by.scale;
    return y;
}

}  // namespace QK_ISA
}  // namespace qk::kernels
