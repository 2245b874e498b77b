// SPDX-License-Identifier: Apache-2.0
// What a table of formats says about each: largest and smallest numbers, special values. All of it is derived from the format.
#pragma once

#include "qk/exact/begin.hpp"

#include "qk/formats/format.hpp"
#include "qk/semantics.hpp"

namespace qk {

/// Does a rule for scales say anything of this format? MX follows all; NVFP4 and its like those that compare errors.
constexpr bool has_scale_rule(const format& f, scale_rule rule) {
    return std::holds_alternative<microscaling>(f) || (is_searched(rule) && std::holds_alternative<nvfloat>(f));
}

/// The numbers of a format (of one with more exponents than float32: those that float32 has), with scales at their extremes. Integers: in
/// units of the scale. NVFP4: in units of the tensor scale.
struct format_facts {
    double largest = 0;          ///< finite
    double lowest = 0;           ///< most negative finite
    double smallest = 0;         ///< smallest above 0: a subnormal where there are any
    double smallest_normal = 0;  ///< full precision from here up; equals `smallest` where there are no subnormals
    bool infinity = false;
    bool nan = false;  ///< block formats: as the code of a whole block
    bool negative_zero = false;
};

constexpr format_facts facts(floating f) {
    const double smallest = min_value(f), lowest = f.is_signed ? -max_value(f) : has_zero(f) ? 0 : smallest;
    return {max_value(f), lowest, smallest, f.subnormals ? min_normal(f) : smallest, has_infinity(f), has_nan(f), has_negative_zero(f)};
}
constexpr format_facts facts(integer f) { return {static_cast<double>(qmax(f)), static_cast<double>(qmin(f)), 1, 1, false, false, false}; }

/// The shared exponent E, with bias 2^(exponent_bits - 1) - 1, runs from 0 to 2^exponent_bits - 2; a step is 2^(E - bias - (m - 1)).
constexpr format_facts facts(const block_float& f) {
    const int bias = (1 << (f.exponent_bits - 1)) - 1, top = (1 << f.exponent_bits) - 2;
    const double magnitude = power_of_two(f.mantissa_bits) - 1;
    const double largest_step = power_of_two(top - bias - (f.mantissa_bits - 1)),
                 smallest_step = power_of_two(-bias - (f.mantissa_bits - 1));
    return {magnitude * largest_step, -(magnitude + int{f.bump}) * largest_step, smallest_step, smallest_step, false, true, !f.bump};
}
/// The step is 2^(E - 127 - D + 1 - m), E from 1 (subnormals become 0) to 254, D up to 2^shift_bits - 1.
constexpr format_facts facts(const microexponent& f) {
    const double largest = (power_of_two(f.mantissa_bits) - 1) * power_of_two(254 - 127 + 1 - f.mantissa_bits);
    const double step = power_of_two(1 - 127 - ((1 << f.shift_bits) - 1) + 1 - f.mantissa_bits);
    return {largest, -largest, step, step, false, true, true};
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
constexpr format_facts facts(const nvfloat& f) {
    const format_facts e = facts(f.element), s = facts(f.scale);
    return {e.largest * s.largest, e.lowest * s.largest, e.smallest * s.smallest, e.smallest_normal * s.smallest_normal, false, s.nan,
            e.negative_zero};
}
constexpr format_facts facts(const table& f) {
    const double smallest = smallest_value(f);
    return {max_value(f), lowest_value(f), smallest, smallest, false, has_nan(f), false};
}
constexpr format_facts facts(const format& f) {
    return detail::with_family(f, [](const auto& g) { return facts(g); });
}

/// Returns "floating", "integer", "block float", "microexponent", "microscaling" or "table".
constexpr const char* family_name(const format& f) {
    constexpr const char* names[] = {"floating", "integer", "block float", "microexponent", "microscaling", "microscaling", "table"};
    return names[f.index()];
}

}  // namespace qk

#include "qk/exact/end.hpp"
