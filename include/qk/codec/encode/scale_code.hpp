// SPDX-License-Identifier: Apache-2.0
// The code of a block's scale or exponent, from what fake_quantize decided: docs/reference/numerics.md, equations (7), (10) and (13).
#pragma once

#include <algorithm>

#include "qk/codec/layout/pack.hpp"
#include "qk/semantics.hpp"

namespace qk::detail {

/// What a block's scale depends on: the largest finite magnitude, and the largest of all, as bits.
struct survey {
    std::uint32_t finite = 0;
    std::uint32_t all = 0;
};

/// Is the block NaN as a whole?
QK_INLINE constexpr bool is_nan_block(survey s, block_specials rule) {
    return s.all >= 0x7f800000u && (rule == block_specials::block_nan || (rule == block_specials::nan_only && s.all > 0x7f800000u));
}

/// A shared code, and the exponent of the step (MX: of the scale) that it stands for.
struct shared_code {
    std::uint32_t code = 0;
    int exponent = 0;
};

QK_INLINE constexpr shared_code exponent_code(const block_float& f, std::uint32_t amax) {
    const int bias = (1 << (f.exponent_bits - 1)) - 1, top = (1 << f.exponent_bits) - 2;
    const int code = std::clamp(static_cast<int>(amax >> 23) - 127 + bias, 0, top);
    return {static_cast<std::uint32_t>(code), code - bias - (f.mantissa_bits - 1)};
}
QK_INLINE constexpr int step_exponent(const microexponent& f, int field, int shift) { return field - 127 - shift + 1 - f.mantissa_bits; }

/// Returns the code and exponent of the scale by the rule. amax is the bits of a finite float32.
QK_INLINE constexpr shared_code scale_code(const microscaling& f, std::uint32_t amax, scale_rule rule) {
    if (amax == 0) return {0, -127};
    // Exponent and fraction; a subnormal is made normal by an exact product.
    const std::uint32_t u = amax >= 0x00800000u ? amax : as_bits(as_float(amax) * 0x1p64f);
    int e = static_cast<int>(u >> 23) - 127 - (amax >= 0x00800000u ? 0 : 64);
    const std::uint32_t fraction = u & 0x7fffffu;
    const int m = has_integer_elements(f) ? f.integer_bits - 2 : f.element.mantissa_bits;
    // The significand of the largest element, as a fraction of float32.
    const std::uint32_t top = has_integer_elements(f) ? low_bits(m) << (23 - m) : max_mantissa(f.element) << (23 - m);
    switch (rule) {
        case scale_rule::floor: break;
        case scale_rule::ceil: e += int{fraction != 0}; break;
        case scale_rule::four_over_six:  // share_block takes what was searched
        case scale_rule::search:
        case scale_rule::rceil: e += int{fraction > top}; break;
        case scale_rule::ceil_7_25: e += int{fraction > (as_bits(static_cast<float>(stretched_maximum(f))) & 0x7fffffu)}; break;
        case scale_rule::even: e += int{fraction + (1u << (22 - m)) >= 0x800000u}; break;
    }
    e = std::clamp(e - element_max_exponent(f), -127, 127);
    return {static_cast<std::uint32_t>(e + 127), e};
}

}  // namespace qk::detail
