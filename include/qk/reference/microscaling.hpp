// SPDX-License-Identifier: Apache-2.0
// Quantizes a block to OCP Microscaling and to NVFP4. docs/reference/numerics.md, equations (13) to (20).
#pragma once

#include <cmath>

#include "qk/formats/microscaling.hpp"
#include "qk/reference/block.hpp"
#include "qk/reference/floating.hpp"

namespace qk::reference {

constexpr double element_max(const microscaling& f) {
    if (!has_integer_elements(f)) return max_value(f.element);
    return (power_of_two(f.integer_bits - 1) - 1) / power_of_two(f.integer_bits - 2);
}
constexpr int element_mantissa_bits(const microscaling& f) {
    return has_integer_elements(f) ? f.integer_bits - 2 : f.element.mantissa_bits;
}

/// Returns the exponent S of the block's scale, clamped if the semantics says so. amax 0 gives the smallest scale.
inline int scale_exponent(const microscaling& f, float amax, const semantics& how) {
    if (amax == 0) return -127;
    const int e = exponent_of(amax);
    int s = e - element_max_exponent(f);
    switch (how.scale_rule) {
        case scale_rule::floor: break;
        case scale_rule::ceil:
            if (amax > power_of_two(e)) ++s;
            break;
        case scale_rule::rceil:  // the least s with element_max * 2^s >= amax
            s = e - exponent_of(element_max(f));
            if (element_max(f) * power_of_two(s) < amax) ++s;
            break;
        case scale_rule::even: {  // amax rounded (ties away) to the element's mantissa bits
            const double step = power_of_two(e - element_mantissa_bits(f));
            s = exponent_of(round_whole(amax / step, rounding::half_away, 0) * step) - element_max_exponent(f);
            break;
        }
    }
    return how.clamp_mx_scale ? std::clamp(s, -127, 127) : s;
}

/// Returns the semantics of elements, which always saturate.
inline semantics element_semantics(const semantics& how) {
    semantics e = how;
    e.overflow = overflow_rule::saturate;
    return e;
}

/// Returns the element of a finite quotient x / X, where X is the block's scale.
inline double element_of(const microscaling& f, double quotient, const semantics& how, std::uint32_t random) {
    if (!has_integer_elements(f)) return to_grid(f.element, quotient, element_semantics(how), random);
    const double one = power_of_two(f.integer_bits - 2);
    const double highest = power_of_two(f.integer_bits - 1) - 1;
    const double lowest = how.mxint_uses_lowest ? -highest - 1 : -highest;
    return std::clamp(round_whole(quotient * one, how, random), lowest, highest) / one;
}

inline void quantize(const microscaling& f, const block& b) {
    const semantics& how = *b.how;
    const block_facts facts = survey(b);
    if (block_is_nan(facts, how.mx_specials)) return fill_nan(b);
    const double scale = power_of_two(scale_exponent(f, facts.amax, how));
    const bool integers = has_integer_elements(f);
    const bool keeps_zero_sign = integers || has_negative_zero(f.element);
    for (std::size_t i = 0; i < b.count; ++i) {
        const float x = b.in(i);
        if (!std::isfinite(x)) {
            b.out(i, x);
            continue;
        }
        if (facts.has_infinity && how.mx_specials == block_specials::nan_only) {
            b.out(i, std::copysign(0.0f, x));
            continue;
        }
        const double element = element_of(f, x / scale, how, b.random(i));
        const zero_sign rule = integers ? how.mxint_zero : keeps_zero_sign ? how.mx_zero : zero_sign::positive;
        b.out(i, element == 0 ? zero_of(x, x / scale, rule, how.rounding) : static_cast<float>(element * scale));
    }
}

/// Returns NVFP4's tensor scale for callers who give none: amax / (largest element * largest scale), over the finite values; 1 for formats
/// without a tensor scale.
inline float tensor_scale(const nvfloat& f, std::span<const float> x, const semantics& how) {
    if (!f.tensor_scale) return 1;
    const block all{x.data(), nullptr, 0, 1, x.size(), &how};
    return divide(survey(all).amax, static_cast<float>(max_value(f.element) * max_value(f.scale)));
}

/// Returns the block's scale as a number of the scale format.
inline float block_scale(const nvfloat& f, float amax, float tensor) {
    if (tensor == 0) return 0;
    semantics nearest;
    nearest.overflow = overflow_rule::saturate;
    return to_grid(f.scale, divide(divide(amax, static_cast<float>(max_value(f.element))), tensor), nearest, 0);
}

inline void quantize(const nvfloat& f, const block& b, float tensor) {
    const semantics& how = *b.how;
    const block_facts facts = survey(b);
    if (block_is_nan(facts, how.mx_specials)) return fill_nan(b);
    const float d = multiply(block_scale(f, facts.amax, tensor), tensor);
    for (std::size_t i = 0; i < b.count; ++i) {
        const float x = b.in(i);
        if (!std::isfinite(x)) {
            b.out(i, x);
            continue;
        }
        if (d == 0) {
            b.out(i, 0.0f);
            continue;
        }
        if (facts.has_infinity && how.mx_specials == block_specials::nan_only) {
            b.out(i, std::copysign(0.0f, x));
            continue;
        }
        const float quotient = divide(x, d);
        const float element = to_grid(f.element, quotient, element_semantics(how), b.random(i));
        const zero_sign rule = has_negative_zero(f.element) ? how.mx_zero : zero_sign::positive;
        b.out(i, element == 0 ? zero_of(x, quotient, rule, how.rounding) : multiply(element, d));
    }
}

}  // namespace qk::reference
