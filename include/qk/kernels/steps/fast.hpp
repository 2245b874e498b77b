// SPDX-License-Identifier: Apache-2.0
// The fast forms of the steps: half-even by float addition, for the values and semantics that allow it. The drivers test a tile with one
// compare and leave everything else to the general form.
//
// Why they are exact. Let c be the largest power of two up to |x|, but at least the smallest normal number of the format, and
// K = 1.5 * 2^(23 - m) with m <= 20. c * K has an ulp of c * 2^-m, the step of the grid at x, and so has the sum c * K + x, which lies
// within 2c of it: the sum is x rounded half-even to that step, and the difference is exact, +0 if it is zero. c * K itself is exact, so it
// does not matter whether a compiler makes one fma of product and sum. Where a block has one step, the sum is with M = 1.5 * 2^23 steps.
// Both hold while the sums are finite, and in the default floating-point environment, which the drivers check.
#pragma once

#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

#include "qk/inline.hpp"
#include "qk/kernels/rounding/quotient.hpp"
#include "qk/kernels/steps/blocks.hpp"
#include "qk/kernels/steps/integer.hpp"

namespace qk::kernels {

/// Is true when the processor rounds to nearest even and flushes nothing, as the fast forms require.
template <class Arch>
bool default_environment() noexcept {
#if defined(__SSE2__)
    return (_mm_getcsr() & 0xe040u) == 0;  // rounding control, flush to zero, denormals are zero
#elif defined(__aarch64__)
    std::uint64_t fpcr;
    asm volatile("mrs %0, fpcr" : "=r"(fpcr));
    return (fpcr & 0x03c00000u) == 0;
#else
    // Sums that are ties, and a product and a sum of subnormals: another rounding or a flush gives other bits.
    volatile float one = 1.0f, tie = 0x1p-24f, next = 0x1.000002p+0f, least = 0x1p-126f, half = 0.5f, subnormal = 0x1p-149f;
    const float down = one + tie, up = next + tie, made = least * half, kept = subnormal + subnormal;
    return std::bit_cast<std::uint32_t>(down) == 0x3f800000u && std::bit_cast<std::uint32_t>(up) == 0x3f800002u &&
           std::bit_cast<std::uint32_t>(made) == 0x00400000u && std::bit_cast<std::uint32_t>(kept) == 0x00000002u;
#endif
}

inline constexpr std::int32_t exponent_mask = 0x7f800000;
inline constexpr std::int32_t half_bit = 0x00400000;  ///< with an exponent field: 1.5 times that power of two
inline constexpr std::int32_t no_value = -1;          ///< sentinel: every tile test fails, so the general form runs

/// Returns x rounded half-even to m mantissa bits, no finer than the step at `least`; `magic` is K. A zero is +0.
template <class Arch>
QK_INLINE vf<Arch> to_grid(vf<Arch> x, vi<Arch> least, vf<Arch> magic) noexcept {
    const vf<Arch> c = as_float<Arch>(max(as_int<Arch>(x) & vi<Arch>(exponent_mask), least));
    return fnma(c, magic, fma(c, magic, x));
}

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

/// The half-even form of floating formats (any_rounding.hpp has the other roundings). prepare(x, by) divides by the scale, limit
/// is the largest quotient that the form covers, and finish(x, i, by) rounds the quotient and multiplies. The vector stands at position i.
template <class Arch>
struct fast_floating {
    std::int32_t limit = no_value;
    bool saturates = false;  ///< values beyond the largest become the largest; the limit is the last value of a binade
    int tie_bits = 0;        ///< significant bits of a tie of the grid, for has_fast_quotient(); 0: divide
    int shift = 0;           ///< formats with float32's exponents: mantissa bits that are cut off; 0: round by float addition
    vi<Arch> least, kept_sign;
    vf<Arch> magic, largest;

    explicit fast_floating(const floating_rules& r) noexcept : kept_sign(r.zero_signs & sign_bit) {
        const int field = r.least_step + r.mantissa_bits - step_bias + 127;  // exponent field of the smallest normal number
        if (r.flush_below != 0 || r.least_input != 0 || r.powers_of_two || r.general) return;
        if (field < 1 || r.mantissa_bits > 20) return;
        saturates = r.infinity == r.largest && r.beyond[0] == r.largest && r.beyond[1] == r.largest;
        // Sums that carry into the exponent of Inf are right unless finite values saturate and Inf stays.
        const bool passes = r.how == rounding::toward_zero || r.beyond[0] != r.largest || r.beyond[1] != r.largest;
        if (field == 1 && passes && r.infinity == infinity_bits && r.zero_signs != 0 && r.largest >> 23 == 254) {
            shift = 23 - r.mantissa_bits;
            limit = infinity_bits;
        } else {
            limit = saturates ? ((std::min(230 + r.mantissa_bits, 254) << 23) | 0x7fffff)
                              : std::min<std::int32_t>(r.largest, ((230 + r.mantissa_bits) << 23) | 0x7fffff);
        }
        least = vi<Arch>(field << 23);
        magic = as_float<Arch>(vi<Arch>(((150 - r.mantissa_bits) << 23) | half_bit));
        largest = as_float<Arch>(vi<Arch>(r.largest));
        // Quotients so small that the product of two floats underflows must lie far below half of the least step.
        if (shift == 0 && r.mantissa_bits <= 18 && r.least_step > step_bias - 90) tie_bits = r.mantissa_bits + 2;
    }

    template <bool Scaled>
    QK_INLINE vf<Arch> prepare(vf<Arch> x, const fast_scale<Arch>& by) const noexcept {
        return divided<Scaled>(x, by);
    }
    template <bool Scaled>
    QK_INLINE vf<Arch> finish(vf<Arch> x, std::size_t, const fast_scale<Arch>& by) const noexcept {
        const vf<Arch> r = clamp_magnitude<Arch>(to_grid<Arch>(x, least, magic), largest);
        const vf<Arch> y = as_float<Arch>(as_int<Arch>(r) | (as_int<Arch>(x) & kept_sign));
        return multiplied<Scaled>(y, by);
    }
};

/// The half-even form of formats with float32's exponents, such as bf16, by integer addition; overflow becomes Inf by itself.
template <class Arch>
struct fast_truncation {
    std::int32_t limit;
    int shift;
    vi<Arch> below_half, one, kept;

    explicit fast_truncation(const fast_floating<Arch>& q) noexcept
        : limit(q.limit), shift(q.shift), below_half((1 << (q.shift - 1)) - 1), one(1), kept(-(1 << q.shift)) {}

    template <bool Scaled>
    QK_INLINE vf<Arch> prepare(vf<Arch> x, const fast_scale<Arch>& by) const noexcept {
        return divided<Scaled>(x, by);
    }
    template <bool Scaled>
    QK_INLINE vf<Arch> finish(vf<Arch> x, std::size_t, const fast_scale<Arch>& by) const noexcept {
        const vi<Arch> bits = as_int<Arch>(x);
        const vf<Arch> y = as_float<Arch>((bits + below_half + ((bits >> shift) & one)) & kept);
        return multiplied<Scaled>(y, by);
    }
};

/// The fast form of e8m0: a normal number becomes the nearest power of two, a negative one NaN.
template <class Arch>
struct fast_power_of_two {
    static constexpr bool declines_zero = true;
    std::int32_t limit = no_value;
    vi<Arch> nan;
    vi<Arch> half = opaque<Arch>(vi<Arch>(half_bit)), exponent = opaque<Arch>(vi<Arch>(exponent_mask));  ///< stay in registers

    explicit fast_power_of_two(const floating_rules& r) noexcept : nan(r.nan) {
        // From 1.5 * 2^127 on magnitudes round beyond the largest.
        if (r.powers_of_two && r.how == rounding::half_away && r.flush_below == 0 && r.least_input == 0)
            limit = (0x7f3fffff - min_normal_bits) ^ sign_bit;
    }
    bool usable() const noexcept { return limit != no_value; }

    /// Returns the distance from the smallest normal number, in unsigned order: what lies below that number is beyond every limit.
    QK_INLINE vi<Arch> tested(vf<Arch> x) const noexcept {
        return ((as_int<Arch>(x) & vi<Arch>(magnitude_bits)) - vi<Arch>(min_normal_bits)) ^ vi<Arch>(sign_bit);
    }
    template <bool Scaled>
    QK_INLINE vf<Arch> prepare(vf<Arch> x, const fast_scale<Arch>& by) const noexcept {
        return divided<Scaled>(x, by);
    }
    template <bool Scaled>
    QK_INLINE vf<Arch> finish(vf<Arch> x, std::size_t, const fast_scale<Arch>& by) const noexcept {
        using V = vi<Arch>;
        const V u = as_int<Arch>(x);
        const vf<Arch> y = as_float<Arch>(select(u < V(0), nan, (u + half) & exponent));
        return multiplied<Scaled>(y, by);
    }
};

/// The half-even form of integers of up to 20 bits: adding 1.5 * 2^23 rounds the quotient, which the tile test bounds. The bits of the sum
/// are its integer plus a constant, so the sum is clamped as an integer: a processor does more of that at a time than of floats.
template <class Arch>
struct fast_integer {
    static constexpr float middle = 0x1.8p23f;

    bool multiply;
    std::int32_t least_scale;  ///< least scale covered, as bits: loops over scales have this one condition, so compilers vectorise them

    explicit fast_integer(const integer_rules& r) noexcept
        : multiply(r.multiply), least_scale(r.flush_below == 0 && r.least_input == 0 && !r.zero_before ? min_normal_bits : INT32_MAX) {}

    /// Returns the largest magnitude that the form covers under a scale and these limits of the rounded quotient; no_value if none.
    QK_INLINE std::int32_t limit_of(float s, float lowest, float highest) const noexcept {
        // A subnormal scale has an infinite reciprocal, and 0 times that would be NaN. 2^21 times the scale must be finite.
        const auto bits = std::bit_cast<std::int32_t>(s);
        if (lowest < -0x1p21f || highest > 0x1p21f || bits < least_scale || bits >= infinity_bits - (22 << 23)) return no_value;
        return bits + (21 << 23);  // larger elements are far beyond the codes
    }
    /// Returns the same for rounded_integer's wide limits, which a quotient of this magnitude (2^40) always exceeds.
    QK_INLINE std::int32_t wide_limit_of(float s) const noexcept {
        const auto bits = std::bit_cast<std::int32_t>(s);
        return bits < least_scale || bits >= infinity_bits - (41 << 23) ? no_value : bits + (40 << 23);
    }
    /// Returns a limit of the rounded quotient as the bits that fast_scale holds.
    static QK_INLINE std::int32_t sum_of(float bound) noexcept { return std::bit_cast<std::int32_t>(bound + middle); }
    template <bool>
    QK_INLINE vf<Arch> prepare(vf<Arch> x, const fast_scale<Arch>&) const noexcept {
        return x;
    }
    /// Returns the bits of `middle` plus the clamped integer.
    template <bool Multiply>
    QK_INLINE vi<Arch> sum(vf<Arch> x, const fast_scale<Arch>& by) const noexcept {
        return clamped(Multiply ? opaque<Arch>(x * by.high) : quotient<Arch>(x, by.scale), by);
    }
    QK_INLINE vi<Arch> clamped(vf<Arch> t, const fast_scale<Arch>& by) const noexcept {
        return min(max(as_int<Arch>(t + vf<Arch>(middle)), by.lowest), by.highest);
    }
    template <bool Multiply>
    QK_INLINE vf<Arch> finish(vf<Arch> x, std::size_t, const fast_scale<Arch>& by) const noexcept {
        return value(sum<Multiply>(x, by), by);
    }
    QK_INLINE vf<Arch> value(vi<Arch> sum, const fast_scale<Arch>& by) const noexcept {
        return (as_float<Arch>(sum) - vf<Arch>(middle)) * by.scale;  // never -0: half-even gives x - x = +0
    }
};

/// fast_integer without a division, for scales with has_fast_quotient().
template <class Arch>
struct integer_by_product {
    fast_integer<Arch> fast;

    template <bool>
    QK_INLINE vf<Arch> prepare(vf<Arch> x, const fast_scale<Arch>&) const noexcept {
        return x;
    }
    template <bool>
    QK_INLINE vf<Arch> finish(vf<Arch> x, std::size_t, const fast_scale<Arch>& by) const noexcept {
        return fast.value(fast.clamped(fast_quotient<Arch>(x, {by.high, by.low}), by), by);
    }
};

/// fast_floating without a division, for scales with has_fast_quotient(), and an operation shorter. Where values saturate, the tile test
/// takes the exponents that are at hand; where they do not, nothing is clamped, since what is not beyond the largest value does not round
/// to more.
template <class Arch, bool Saturates>
struct floating_by_product {
    fast_floating<Arch> fast;

    template <bool>
    QK_INLINE vf<Arch> prepare(vf<Arch> x, const fast_scale<Arch>& by) const noexcept {
        return fast_quotient<Arch>(x, {by.high, by.low});
    }
    QK_INLINE vi<Arch> tested(vf<Arch> q) const noexcept {
        if constexpr (Saturates) return max(as_int<Arch>(q) & vi<Arch>(exponent_mask), fast.least);
        return as_int<Arch>(q) & vi<Arch>(magnitude_bits);
    }
    template <bool>
    QK_INLINE vf<Arch> finish(vf<Arch> q, std::size_t, const fast_scale<Arch>& by) const noexcept {
        vf<Arch> r = to_grid<Arch>(q, fast.least, fast.magic);
        if constexpr (Saturates) r = clamp_magnitude<Arch>(r, fast.largest);
        return as_float<Arch>(as_int<Arch>(r) | (as_int<Arch>(q) & fast.kept_sign)) * by.scale;
    }
};

}  // namespace qk::kernels
