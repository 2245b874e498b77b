// SPDX-License-Identifier: Apache-2.0
// Checks formats, scales and zero points that came from outside. A check returns a sentence that says what is wrong, empty if nothing is.
#pragma once

#include <cstdint>

#include "qk/formats/format.hpp"
#include "qk/formats/p3109.hpp"
#include "qk/text.hpp"

namespace qk {

namespace detail {

/// Returns "NAME is N; it must be LOWEST to HIGHEST", or nothing.
constexpr message in_range(std::string_view name, std::int64_t n, std::int64_t lowest, std::int64_t highest) {
    message m;
    if (n < lowest || n > highest)
        m.append(name).append(" is ").append(n).append("; it must be ").append(lowest).append(" to ").append(highest);
    return m;
}
constexpr message first_of(std::initializer_list<message> candidates) {
    for (const message& m : candidates) {
        if (!m.empty()) return m;
    }
    return {};
}

inline constexpr int largest_block = 1 << 20;

}  // namespace detail

namespace detail {

/// Checks the facts about special values, zero and sign; the widths are right already.
constexpr message check_facts(floating f) {
    if (!f.is_signed && f.specials.negative_zero) return "an unsigned format has no -0: negative_zero must be 0";
    if (f.specials.high_nans == high_nans::mantissas && f.exponent_bits < 2)
        return "special=ieee keeps the highest exponent for Inf and NaN, so exponent must be at least 2";
    if (f.specials.high_nans == high_nans::mantissas && f.mantissa_bits < 1)
        return "special=ieee tells NaN from Inf by the mantissa, so mantissa must be at least 1";
    if (f.specials == specials::fn && f.mantissa_bits == 0 && f.exponent_bits < 2)
        return "special=fn with exponent 1 and mantissa 0 leaves no number but 0";
    if (!has_zero(f) && (f.is_signed || f.specials != specials::unsigned_nan))
        return "subnormals=0 with mantissa 0 leaves no zero: that is for unsigned formats whose highest code is NaN (sign=0,special=nan)";
    if (largest_magnitude(f) >> f.mantissa_bits == 0 && f.subnormals)
        return "the special values leave no normal number: use more bits, or special=none";
    return {};
}

}  // namespace detail

/// A floating format has 2 to 16 bits, every code is exact in float32, and at least one finite number is above 0. fp32 itself passes, and
/// the formats of IEEE P3109 do, some of which have more exponents than float32.
constexpr message check(floating f) {
    if (f == fp32 || is_p3109(f)) return {};
    if (f == no_format) return "this is no format: parse_format failed, and its error says why";
    const message widths = detail::first_of(
        {detail::in_range("exponent", f.exponent_bits, 1, 8), detail::in_range("mantissa", f.mantissa_bits, 0, 15 - int{f.is_signed}),
         detail::in_range(f.is_signed ? "the width 1 + exponent + mantissa" : "the width exponent + mantissa", bits(f), 2, 16),
         detail::in_range("bias", f.bias, -127, 255)});
    if (!widths.empty()) return widths;
    const message facts = detail::check_facts(f);
    if (!facts.empty()) return facts;
    if (max_exponent(f) > 127 || min_exponent(f) - f.mantissa_bits < -149) {
        return message("the numbers run from 2^")
            .append(min_exponent(f) - f.mantissa_bits)
            .append(" to 2^")
            .append(max_exponent(f))
            .append("; they must lie in float32's 2^-149 to 2^127: change exponent or bias");
    }
    return {};
}

constexpr message check(integer f) {
    const message widths = detail::in_range("bits", f.bits, 1, 32);
    if (!widths.empty()) return widths;
    if (used_bits(f) < (f.is_signed ? 2 : 1) || qmin(f) >= qmax(f))
        return message("an integer of ").append(f.bits).append(" bits with these modifiers has fewer than two codes; use more bits");
    return {};
}

constexpr message check(const block_float& f) {
    return detail::first_of({detail::in_range("block", f.block_size, 1, detail::largest_block),
                             detail::in_range("exponent", f.exponent_bits, 2, 8), detail::in_range("mantissa", f.mantissa_bits, 1, 23)});
}

constexpr message check(const microexponent& f) {
    return detail::first_of({detail::in_range("block", f.block_size, 1, detail::largest_block),
                             detail::in_range("sub_block", f.sub_block_size, 1, f.block_size),
                             detail::in_range("exponent", f.exponent_bits, 8, 8), detail::in_range("shift", f.shift_bits, 1, 3),
                             detail::in_range("mantissa", f.mantissa_bits, 1, 15)});
}

namespace detail {
/// Elements of block formats have 8 bits or fewer, so that element times scale is exact wherever float32 can hold it.
constexpr message check_element(floating f, std::string_view what) {
    if (f == fp32 || !has_zero(f)) return message(what).append(" must be a float of 2 to 8 bits with a zero, for instance fp6_e3m2");
    message m = check(f);
    if (m.empty()) m = in_range(fixed_text<64>(what).append(" bits"), bits(f), 2, 8);
    if (m.empty() && max_value(f) < 0x1p-16) m = message(what).append("'s largest value must be at least 2^-16: choose a smaller bias");
    return m;
}
}  // namespace detail

constexpr message check(const microscaling& f) {
    const message block = detail::in_range("block", f.block_size, 1, detail::largest_block);
    if (!block.empty()) return block;
    if (has_integer_elements(f)) return detail::in_range("bits of an MX integer element", f.integer_bits, 2, 16);
    return detail::check_element(f.element, "element");
}

constexpr message check(const nvfloat& f) {
    return detail::first_of({detail::in_range("block", f.block_size, 1, detail::largest_block), detail::check_element(f.element, "element"),
                             detail::check_element(f.scale, "scale")});
}

/// A table has 2 to 256 values, numbers or NaN, and two different numbers at least.
constexpr message check(const table& f) {
    const message sizes = detail::in_range("the number of a table's values", f.size(), 2, 256);
    if (!sizes.empty()) return sizes;
    for (std::uint32_t i = 0; i < static_cast<std::uint32_t>(f.size()); ++i)
        if (value_of(f, i) == value_of(f, i) && !detail::is_finite(value_of(f, i))) return "a table's values are finite numbers or NaN";
    if (!(lowest_value(f) < max_value(f))) return "a table needs two different numbers";
    return {};
}

constexpr message check(const format& f) {
    return detail::with_family(f, [](const auto& g) { return check(g); });
}

/// A scale must be finite and above 0.
constexpr message check_scale(float scale) {
    if (scale != scale) return "the scale is NaN; it must be a finite number above 0";
    if (!detail::is_finite(scale)) return "the scale is infinite; it must be a finite number above 0";
    if (!(scale > 0))
        return scale == 0 ? "the scale is 0; it must be a finite number above 0"
                          : "the scale is negative; it must be a finite number above 0";
    return {};
}

/// A zero point must be a code of the format.
constexpr message check_zero_point(integer f, std::int64_t zero_point) {
    return detail::in_range("the zero point", zero_point, qmin(f), qmax(f));
}

}  // namespace qk
