// SPDX-License-Identifier: Apache-2.0
// Quantizes one value to a floating format. docs/reference/numerics.md, equations (2) to (4).
#pragma once

#include <cmath>
#include <limits>

#include "qk/formats/floating.hpp"
#include "qk/isa.hpp"
#include "qk/reference/rounding.hpp"

namespace qk::reference {
inline namespace QK_ISA {

/// Is true when a value beyond the largest saturates, under this rule, in this format.
constexpr bool saturates(floating f, overflow_rule rule) {
    const bool has_no_other = !has_infinity(f) && !has_nan(f);
    switch (rule) {
        case overflow_rule::saturate:
        case overflow_rule::propagate: return true;
        case overflow_rule::by_width: return bits(f) <= 8 || has_no_other;
        case overflow_rule::ieee: return has_no_other;
        case overflow_rule::fn_saturates: return has_no_other || (!has_infinity(f) && f.specials.high_nans == high_nans::one);
    }
    return true;
}

/// Is true when the code of the largest number is odd, so that rounding to odd does not go beyond it.
constexpr bool largest_is_odd(floating f) {
    return (f.mantissa_bits > 0 ? static_cast<int>(max_mantissa(f)) : max_exponent(f) + f.bias) % 2 != 0;
}

/// Rounds to a power of two: a finite positive value goes to one of its two neighbours (ties up) and stops at the least and the largest
/// power; the rest is NaN. Under overflow_rule::ieee what rounds past the largest is NaN, too, except in roundings that do not go beyond.
inline float to_power_of_two(floating f, float x, const semantics& how, std::uint32_t random) {
    if (!(x > 0) || std::isinf(x)) return quiet_nan;
    const int e = exponent_of(static_cast<double>(x));
    const double part = static_cast<double>(x) / power_of_two(e) - 1;  // in [0, 1)
    const bool nearest = how.rounding == rounding::half_even || how.rounding == rounding::half_away || how.rounding == rounding::half_up;
    double up = 0;
    if (nearest) up = part >= 0.5 ? 1 : 0;
    else if (part != 0) up = goes_away(part, 1, false, (e + f.bias) % 2 != 0, how, random) ? 1 : 0;
    const double y = power_of_two(e + static_cast<int>(up));
    const bool stays =
        how.rounding == rounding::toward_zero || how.rounding == rounding::down || (how.rounding == rounding::to_odd && largest_is_odd(f));
    if (y > max_value(f) && how.overflow == overflow_rule::ieee && !stays) return quiet_nan;
    return static_cast<float>(y > max_value(f) ? max_value(f) : y < min_normal(f) ? min_normal(f) : y);
}

/// Returns what a value becomes that is too large after rounding, or infinite.
inline float overflow(floating f, double x, const semantics& how) {
    const auto largest = static_cast<float>(max_value(f));
    const bool stays =
        !std::isinf(x) && (how.rounding == rounding::toward_zero || (how.rounding == rounding::up && x < 0) ||
                           (how.rounding == rounding::down && x > 0) || (how.rounding == rounding::to_odd && largest_is_odd(f)));
    const float sign = std::signbit(x) ? -1.0f : 1.0f;
    const bool passes = std::isinf(x) && how.overflow == overflow_rule::propagate && has_infinity(f);
    if (!passes && (saturates(f, how.overflow) || stays)) return sign * largest;
    return has_infinity(f) ? sign * std::numeric_limits<float>::infinity() : quiet_nan;
}

/// Rounds a finite x to a number of f, or beyond its largest one: to a multiple of the step 2^(max(floor(log2 |x|), min_exponent) -
/// mantissa_bits). Two kinds of formats are different:
///   - without subnormals there is nothing between 0 and the smallest number;
///   - with one digit of precision neither neighbour of a tie is even as a number of steps: the one with the even code is taken, and to odd
///     the one with the odd code.
inline double to_number(floating f, double x, const semantics& how, std::uint32_t random) {
    if (x == 0) return 0;
    const double magnitude = std::fabs(x);
    const int e = exponent_of(x);
    if (!f.subnormals && magnitude < min_value(f))
        return goes_away(magnitude, min_value(f), x < 0, false, how, random) ? std::copysign(min_value(f), x) : 0.0;
    if (f.mantissa_bits == 0) {
        const bool is_normal = e >= min_exponent(f);
        const double below = is_normal ? power_of_two(e) : 0, step = is_normal ? below : min_normal(f);
        if (magnitude == below) return x;
        const bool odd = is_normal && (e + f.bias) % 2 != 0;
        return std::copysign(goes_away(magnitude - below, step, x < 0, odd, how, random) ? below + step : below, x);
    }
    const int step = (e > min_exponent(f) ? e : min_exponent(f)) - f.mantissa_bits;
    return round_whole(x * power_of_two(-step), how, random) * power_of_two(step);
}

/// Rounds x to a number of f, then to the range. In formats without a sign, what is below 0 becomes 0.
inline float to_grid(floating f, double x, const semantics& how, std::uint32_t random) {
    if (std::isnan(x)) {
        if (has_nan(f) || how.nan_without_code == nan_rule::nan) return quiet_nan;
        return how.nan_without_code == nan_rule::positive_zero ? 0.0f : -0.0f;
    }
    if (!is_signed(f) && x < 0) return 0.0f;
    if (std::isinf(x)) return overflow(f, x, how);
    const double y = to_number(f, x, how, random);
    if (std::fabs(y) > max_value(f)) return overflow(f, x, how);
    if (y != 0) return static_cast<float>(y);
    return has_negative_zero(f) && std::signbit(x) ? -0.0f : 0.0f;
}

/// Returns fake_quantize of one value without a scale.
inline float quantize(floating f, float x, const semantics& how, std::uint32_t random) {
    x = flush_input(x, how);
    if (f == fp32) return flush_output(x, 0x1p-126, how);
    if (f == no_format) return quiet_nan;
    if (!has_zero(f)) return to_power_of_two(f, x, how, random);
    const float y = flush_output(flush_output(to_grid(f, static_cast<double>(x), how, random), min_normal(f), how), 0x1p-126, how);
    return y == 0 && !has_negative_zero(f) ? 0.0f : y;
}

/// Returns y = scale * cast(x / scale); fp32 stays the identity.
inline float quantize(floating f, float x, float scale, const semantics& how, std::uint32_t random) {
    if (f == fp32 || scale == 1) return quantize(f, x, how, random);
    return flush_output(multiply(quantize(f, divide(flush_input(x, how), scale), how, random), scale), 0x1p-126, how);
}

}  // namespace QK_ISA
}  // namespace qk::reference
