// SPDX-License-Identifier: Apache-2.0
// Quantizes one value to a floating format. docs/reference/numerics.md, equations (2) to (4).
#pragma once

#include <cmath>
#include <limits>

#include "qk/reference/rounding.hpp"

namespace qk::reference {

/// Is true when a value beyond the largest saturates, under this rule, in this format.
constexpr bool saturates(floating f, overflow_rule rule) {
    switch (rule) {
        case overflow_rule::saturate: return true;
        case overflow_rule::by_width: return bits(f) <= 8 || f.specials == specials::none;
        case overflow_rule::ieee: return f.specials == specials::none;
        case overflow_rule::fn_saturates: return f.specials == specials::none || f.specials == specials::fn;
    }
    return true;
}

/// Rounds to a power of two: a finite positive value goes to one of its two neighbours (ties up) and stops at 2^-127 and 2^127; the rest is
/// NaN. Under overflow_rule::ieee what rounds past 2^127 is NaN, too, except in roundings toward zero and down.
inline float to_power_of_two(float x, const semantics& how, std::uint32_t random) {
    if (!(x > 0) || std::isinf(x)) return quiet_nan;
    const int e = exponent_of(x);
    const double part = x / power_of_two(e) - 1;  // in [0, 1)
    const bool nearest = how.rounding == rounding::half_even || how.rounding == rounding::half_away || how.rounding == rounding::half_up;
    const double up = nearest ? (part >= 0.5 ? 1 : 0) : round_whole(part, how.rounding, random);
    const double y = power_of_two(e + static_cast<int>(up));
    if (y > 0x1p127 && how.overflow == overflow_rule::ieee && how.rounding != rounding::toward_zero && how.rounding != rounding::down)
        return quiet_nan;
    return static_cast<float>(y > 0x1p127 ? 0x1p127 : y < 0x1p-127 ? 0x1p-127 : y);
}

/// Returns what a value becomes that is too large after rounding, or infinite.
inline float overflow(floating f, double x, const semantics& how) {
    const auto largest = static_cast<float>(max_value(f));
    const bool toward_zero = !std::isinf(x) && (how.rounding == rounding::toward_zero || (how.rounding == rounding::up && x < 0) ||
                                                (how.rounding == rounding::down && x > 0));
    const float sign = std::signbit(x) ? -1.0f : 1.0f;
    if (saturates(f, how.overflow) || toward_zero) return sign * largest;
    return has_infinity(f) ? sign * std::numeric_limits<float>::infinity() : quiet_nan;
}

/// Rounds x to the grid of f, whose step is 2^(max(floor(log2 |x|), min_exponent) - mantissa_bits), then to the range.
inline float to_grid(floating f, double x, const semantics& how, std::uint32_t random) {
    if (std::isnan(x)) {
        if (has_nan(f) || how.nan_without_code == nan_rule::nan) return quiet_nan;
        return how.nan_without_code == nan_rule::positive_zero ? 0.0f : -0.0f;
    }
    if (std::isinf(x)) return overflow(f, x, how);
    if (x != 0) {
        const int e = exponent_of(x);
        const int step = (e > min_exponent(f) ? e : min_exponent(f)) - f.mantissa_bits;
        const double y = round_whole(x * power_of_two(-step), how.rounding, random) * power_of_two(step);
        if (std::fabs(y) > max_value(f)) return overflow(f, x, how);
        if (y != 0) return static_cast<float>(y);
    }
    return has_negative_zero(f) && std::signbit(x) ? -0.0f : 0.0f;
}

/// Returns fake_quantize of one value without a scale.
inline float quantize(floating f, float x, const semantics& how, std::uint32_t random) {
    x = flush_input(x, how);
    if (f == fp32) return flush_output(x, 0x1p-126, how);
    if (f == no_format) return quiet_nan;
    if (f.specials == specials::e8m0) return to_power_of_two(x, how, random);
    const float y = flush_output(flush_output(to_grid(f, x, how, random), min_normal(f), how), 0x1p-126, how);
    return y == 0 && !has_negative_zero(f) ? 0.0f : y;
}

/// Returns y = scale * cast(x / scale); fp32 stays the identity.
inline float quantize(floating f, float x, float scale, const semantics& how, std::uint32_t random) {
    if (f == fp32 || scale == 1) return quantize(f, x, how, random);
    return flush_output(multiply(quantize(f, divide(flush_input(x, how), scale), how, random), scale), 0x1p-126, how);
}

}  // namespace qk::reference
