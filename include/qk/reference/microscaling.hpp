// SPDX-License-Identifier: Apache-2.0
// Quantizes a block to OCP Microscaling and to NVFP4. docs/reference/numerics.md, equations (13) to (20).
#pragma once

#include <cmath>
#include <vector>

#include "qk/exact/product.hpp"
#include "qk/formats/microscaling.hpp"
#include "qk/isa.hpp"
#include "qk/reference/block.hpp"
#include "qk/reference/floating.hpp"

namespace qk::reference {
inline namespace QK_ISA {

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
    const int e = exponent_of(static_cast<double>(amax));
    int s = e - element_max_exponent(f);
    switch (how.scale_rule) {
        case scale_rule::floor: break;
        case scale_rule::ceil:
            if (static_cast<double>(amax) > power_of_two(e)) ++s;
            break;
        case scale_rule::ceil_7_25: {  // the same with 5/8 of the largest element's step more
            const int top = exponent_of(element_max(f));
            const double stretched = element_max(f) + 0.625 * power_of_two(top - element_mantissa_bits(f));
            s = e - top;
            if (stretched * power_of_two(s) < static_cast<double>(amax)) ++s;
            break;
        }
        case scale_rule::four_over_six:  // searched_exponent starts from it
        case scale_rule::search:
        case scale_rule::rceil:  // the least s with element_max * 2^s >= amax
            s = e - exponent_of(element_max(f));
            if (element_max(f) * power_of_two(s) < static_cast<double>(amax)) ++s;
            break;
        case scale_rule::even: {  // amax rounded (ties away) to the element's mantissa bits
            const double step = power_of_two(e - element_mantissa_bits(f));
            s = exponent_of(round_whole(static_cast<double>(amax) / step, rounding::half_away, 0) * step) - element_max_exponent(f);
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
    if (!has_integer_elements(f)) return static_cast<double>(to_grid(f.element, quotient, element_semantics(how), random));
    const double one = power_of_two(f.integer_bits - 2);
    const double highest = power_of_two(f.integer_bits - 1) - 1;
    const double lowest = how.mxint_uses_lowest ? -highest - 1 : -highest;
    return std::clamp(round_whole(quotient * one, how, random), lowest, highest) / one;
}

/// What an element costs that becomes y: its objective, weighted. Inf, NaN and what has no weight cost nothing.
inline double cost_of(const block& b, std::size_t i, double y) {
    if (!std::isfinite(b.in(i)) || b.weight(i) == 0) return 0;
    const double d = std::abs(static_cast<double>(b.in(i)) - y);
    return rounded_product(b.weight(i), b.how->scale_objective == scale_objective::mae ? d : d * d);
}
/// Candidates are compared under rounding to nearest even, whatever the elements are rounded by.
inline semantics search_semantics(const semantics& how) {
    semantics s = how;
    s.rounding = rounding::half_even;
    return s;
}

/// Returns the exponent of least error among all that a scale can have; of equal ones the rule's (rceil), then the next above
/// it, then those below.
inline int searched_exponent(const microscaling& f, const block& b, int rule) {
    const semantics& how = *b.how;
    const semantics nearest = search_semantics(how);
    const auto error = [&](int s) {
        double sum = 0;
        for (std::size_t i = 0; i < b.count; ++i)
            sum += cost_of(b, i,
                           static_cast<double>(static_cast<float>(
                               element_of(f, static_cast<double>(b.in(i)) / power_of_two(s), nearest, 0) * power_of_two(s))));
        return sum;
    };
    int best = rule;
    double least = error(rule);
    const auto offer = [&](int s) {
        const double now = error(s);
        if (now < least) {
            least = now;
            best = s;
        }
    };
    const int lowest = how.clamp_mx_scale ? -127 : -400;
    const bool two = how.scale_rule == scale_rule::four_over_six;
    for (int s = rule + 1; s <= 127 && !two; ++s) offer(s);
    for (int s = rule - 1; s >= (two ? std::max(rule - 1, lowest) : lowest); --s) offer(s);
    return best;
}

/// Returns the exponent of a block's scale under any rule.
inline int block_exponent(const microscaling& f, const block& b, float amax) {
    const int rule = scale_exponent(f, amax, *b.how);
    return is_searched(b.how->scale_rule) ? searched_exponent(f, b, rule) : rule;
}

/// Returns what an Inf or NaN becomes where it is kept; elements without a sign have no -Inf.
inline float special_of(float x, bool is_signed) { return !is_signed && x < 0 ? 0.0f : x; }

inline void quantize(const microscaling& f, const block& b) {
    const semantics& how = *b.how;
    const block_facts facts = survey(b);
    if (block_is_nan(facts, how.mx_specials)) return fill_nan(b);
    const double scale = power_of_two(block_exponent(f, b, facts.amax));
    const bool integers = has_integer_elements(f);
    const bool keeps_zero_sign = integers || has_negative_zero(f.element);
    for (std::size_t i = 0; i < b.count; ++i) {
        const float x = b.in(i);
        if (!std::isfinite(x)) {
            b.out(i, special_of(x, integers || f.element.is_signed));
            continue;
        }
        if (facts.has_infinity && how.mx_specials == block_specials::nan_only) {
            b.out(i, keeps_zero_sign ? std::copysign(0.0f, x) : 0.0f);
            continue;
        }
        const double element = element_of(f, static_cast<double>(x) / scale, how, b.random(i));
        const zero_sign rule = integers ? how.mxint_zero : keeps_zero_sign ? how.mx_zero : zero_sign::positive;
        b.out(i, element == 0 ? zero_of(x, static_cast<double>(x) / scale, rule, how.rounding) : static_cast<float>(element * scale));
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
    return to_grid(f.scale, static_cast<double>(divide(divide(amax, static_cast<float>(max_value(f.element))), tensor)), nearest, 0);
}

/// Returns the finite numbers above 0 of a format of at most 16 bits, in their order.
inline std::vector<float> positive_numbers(const floating& f) {
    std::vector<float> all;
    for (std::uint64_t code = 1; code <= largest_magnitude(f); ++code) {
        const auto field = static_cast<int>(code >> f.mantissa_bits);
        const double fraction = static_cast<double>(code & ((std::uint64_t{1} << f.mantissa_bits) - 1)) / power_of_two(f.mantissa_bits);
        const bool subnormal = field == 0 && f.subnormals;
        all.push_back(static_cast<float>((subnormal ? 2 * fraction : 1 + fraction) * power_of_two(field - f.bias)));
    }
    return all;
}

/// Returns the block scale of least error among all of its format's numbers; of equal ones the rule's, then the next above, then those
/// below.
inline float searched_scale(const nvfloat& f, const block& b, float rule, float tensor) {
    if (rule == 0 && (tensor == 0 || survey(b).amax == 0)) return 0;
    const semantics nearest = element_semantics(search_semantics(*b.how));
    const auto error = [&](float scale) {
        const float d = multiply(scale, tensor);
        double sum = 0;
        for (std::size_t i = 0; i < b.count; ++i)
            sum += cost_of(
                b, i,
                d == 0 ? 0.0 : static_cast<double>(multiply(to_grid(f.element, static_cast<double>(divide(b.in(i), d)), nearest, 0), d)));
        return sum;
    };
    float best = rule;
    double least = error(rule);
    const auto offer = [&](float scale) {
        const double now = error(scale);
        if (now < least) {
            least = now;
            best = scale;
        }
    };
    semantics saturating;
    saturating.overflow = overflow_rule::saturate;
    if (b.how->scale_rule == scale_rule::four_over_six) {
        offer(to_grid(f.scale, static_cast<double>(multiply(1.5f, rule)), saturating, 0));
        return best;
    }
    const std::vector<float> all = positive_numbers(f.scale);
    for (const float scale : all)
        if (scale > rule) offer(scale);
    for (auto scale = all.rbegin(); scale != all.rend(); ++scale)
        if (*scale < rule) offer(*scale);
    return best;
}

/// Returns a block's scale under any rule.
inline float block_scale(const nvfloat& f, const block& b, float amax, float tensor) {
    const float rule = block_scale(f, amax, tensor);
    return is_searched(b.how->scale_rule) ? searched_scale(f, b, rule, tensor) : rule;
}

inline void quantize(const nvfloat& f, const block& b, float tensor) {
    const semantics& how = *b.how;
    const block_facts facts = survey(b);
    if (block_is_nan(facts, how.mx_specials)) return fill_nan(b);
    const float d = multiply(block_scale(f, b, facts.amax, tensor), tensor);
    for (std::size_t i = 0; i < b.count; ++i) {
        const float x = b.in(i);
        if (!std::isfinite(x)) {
            b.out(i, special_of(x, f.element.is_signed));
            continue;
        }
        if (d == 0) {
            b.out(i, 0.0f);
            continue;
        }
        if (facts.has_infinity && how.mx_specials == block_specials::nan_only) {
            b.out(i, has_negative_zero(f.element) ? std::copysign(0.0f, x) : 0.0f);
            continue;
        }
        const float quotient = divide(x, d);
        const float element = to_grid(f.element, static_cast<double>(quotient), element_semantics(how), b.random(i));
        const zero_sign rule = has_negative_zero(f.element) ? how.mx_zero : zero_sign::positive;
        b.out(i, element == 0 ? zero_of(x, static_cast<double>(quotient), rule, how.rounding) : multiply(element, d));
    }
}

}  // namespace QK_ISA
}  // namespace qk::reference
