// SPDX-License-Identifier: Apache-2.0
// OCP Microscaling (MX v1.0): a block of small floats or integers under one power-of-two scale (E8M0).
#pragma once

#include "qk/exact/begin.hpp"

#include "qk/formats/floating/format.hpp"
#include "qk/inline.hpp"
#include "qk/isa.hpp"

namespace qk {

/// `element` is a floating format, or with integer_bits > 0 a signed integer with integer_bits - 2 fraction bits (int8: n / 64).
struct microscaling {
    int block_size = 32;
    floating element = fp8_e4m3fn;
    int integer_bits = 0;  ///< 0: the elements are `element`
    friend QK_INLINE constexpr bool operator==(const microscaling&, const microscaling&) = default;
};

inline constexpr microscaling mxfp8_e4m3{.element = fp8_e4m3fn};
inline constexpr microscaling mxfp8_e5m2{.element = fp8_e5m2};
inline constexpr microscaling mxfp6_e3m2{.element = fp6_e3m2};
inline constexpr microscaling mxfp6_e2m3{.element = fp6_e2m3};
inline constexpr microscaling mxfp4{.element = fp4_e2m1};
inline constexpr microscaling mxfp4_e3m0{.element = fp4_e3m0};
inline constexpr microscaling mxfp4_e1m2{.element = fp4_e1m2};
inline constexpr microscaling mxint8{.element = {}, .integer_bits = 8};

inline namespace QK_ISA {

constexpr bool has_integer_elements(microscaling f) { return f.integer_bits > 0; }
constexpr int element_bits(microscaling f) { return has_integer_elements(f) ? f.integer_bits : bits(f.element); }
constexpr double bits_per_value(microscaling f) { return element_bits(f) + 8.0 / f.block_size; }
/// Exponent of the largest element, which the `floor` rule subtracts from the exponent of amax.
constexpr int element_max_exponent(microscaling f) { return has_integer_elements(f) ? 0 : max_exponent(f.element); }

/// Largest element, and what scale_rule::ceil_7_25 lets it stand for: five eighths of its last step more, 7.25 for E2M1's 6.
constexpr double largest_element(microscaling f) {
    return has_integer_elements(f) ? 2.0 - power_of_two(2 - f.integer_bits) : max_value(f.element);
}
constexpr double stretched_maximum(microscaling f) {
    const int step = has_integer_elements(f) ? 2 - f.integer_bits : max_exponent(f.element) - f.element.mantissa_bits;
    return largest_element(f) + 0.625 * power_of_two(step);
}

constexpr int block_size(const microscaling& f) { return f.block_size; }

constexpr message check(const microscaling& f) {
    const message block = detail::in_range("block", f.block_size, 1, detail::largest_block);
    if (!block.empty()) return block;
    if (has_integer_elements(f)) return detail::in_range("bits of an MX integer element", f.integer_bits, 2, 16);
    return detail::check_element(f.element, "element");
}

constexpr format_facts facts(const microscaling& f) {
    if (has_integer_elements(f)) {
        const double one = power_of_two(f.integer_bits - 2), largest = (power_of_two(f.integer_bits - 1) - 1) / one * power_of_two(127);
        return {largest, -largest, power_of_two(-127) / one, power_of_two(-127) / one, false, true, false};
    }
    const format_facts e = facts(f.element);
    return {e.largest * power_of_two(127),
            e.lowest * power_of_two(127),
            e.smallest * power_of_two(-127),
            e.smallest_normal * power_of_two(-127),
            e.infinity,
            true,
            e.negative_zero};
}

/// Is true when every result of fake_quantize under this semantics has a code.
constexpr bool encodable(const microscaling& f, const semantics& how) {
    if (!how.clamp_mx_scale || !search_has_codes(f.block_size, how)) return false;
    if (has_integer_elements(f)) return how.mx_specials == block_specials::block_nan && how.mxint_zero == zero_sign::positive;
    return how.mx_specials == block_specials::block_nan || (has_infinity(f.element) && has_nan(f.element));
}

}  // namespace QK_ISA

namespace detail {
inline namespace QK_ISA {

constexpr packing packing_of(const microscaling& f) { return {element_bits(f), f.block_size, 8}; }

}  // namespace QK_ISA
}  // namespace detail

}  // namespace qk

#include "qk/exact/end.hpp"
