// SPDX-License-Identifier: Apache-2.0
// The step of the floating formats: round to the grid of the target with gradual underflow, then overflow.
#pragma once

#include "qk/formats/floating.hpp"
#include "qk/inline.hpp"
#include "qk/kernels/rounding/general.hpp"
#include "qk/semantics.hpp"

#include <algorithm>

namespace qk::kernels {

/// What a floating format does under a semantics, as bits of float32 magnitudes.
struct floating_rules {
    int mantissa_bits = 23;
    std::int32_t least_step = 0;   ///< k + step_bias of the step 2^k of the subnormals
    std::int32_t largest = 0;      ///< largest finite magnitude
    std::int32_t beyond[2] = {};   ///< what a finite magnitude above `largest` becomes: positive, negative
    std::int32_t infinity = 0;     ///< what Inf becomes
    std::int32_t nan = 0;          ///< what NaN becomes, with its sign
    std::int32_t flush_below = 0;  ///< results below this magnitude become zero (0: none)
    std::int32_t least_input = 0;  ///< inputs below this magnitude count as zero (0: none)
    std::int32_t zero_signs = -1;  ///< mask: all ones where -0 exists
    bool powers_of_two = false;    ///< e8m0
    rounding how = rounding::half_even;
    random_source random;
};

/// Does a value beyond the largest one become the largest one?
constexpr bool saturates(floating f, overflow_rule rule) {
    const bool fn = rule == overflow_rule::fn_saturates && f.specials == specials::fn;
    return rule == overflow_rule::saturate || !has_nan(f) || fn || (rule == overflow_rule::by_width && bits(f) <= 8);
}

constexpr std::int32_t float_bits(double v) { return std::bit_cast<std::int32_t>(static_cast<float>(v)); }

QK_INLINE constexpr floating_rules rules_of(floating f, const semantics& how) {
    floating_rules r;
    r.mantissa_bits = f.mantissa_bits;
    r.least_step = min_exponent(f) - f.mantissa_bits + step_bias;
    r.largest = float_bits(max_value(f));
    r.powers_of_two = f.specials == specials::e8m0;
    const bool stops = r.powers_of_two ? how.overflow != overflow_rule::ieee : f != fp32 && saturates(f, how.overflow);
    r.infinity = stops ? r.largest : has_infinity(f) ? infinity_bits : nan_bits;
    // IEEE 754-2019, 7.4: a finite value that is rounded toward zero does not go past the largest.
    const bool stops_above = how.rounding == rounding::toward_zero || how.rounding == rounding::down;
    const bool stops_below = how.rounding == rounding::toward_zero || how.rounding == rounding::up;
    r.beyond[0] = stops_above ? r.largest : r.infinity;
    r.beyond[1] = stops_below ? r.largest : r.infinity;
    const std::int32_t none = how.nan_without_code == nan_rule::nan             ? nan_bits
                              : how.nan_without_code == nan_rule::negative_zero ? sign_bit
                                                                                : 0;
    r.nan = has_nan(f) ? nan_bits : none;
    r.flush_below = how.flush_outputs ? std::max(float_bits(min_normal(f)), min_normal_bits) : 0;
    r.least_input = how.flush_inputs ? min_normal_bits : 0;
    r.zero_signs = has_negative_zero(f) ? -1 : 0;
    r.how =
        r.powers_of_two && (how.rounding == rounding::half_even || how.rounding == rounding::half_up) ? rounding::half_away : how.rounding;
    r.random = random_source(how);
    return r;
}

/// rules_of, not inlined: where rules of several formats are made, it is compiled once.
template <class Arch>
QK_APART floating_rules rules_apart(floating f, const semantics& how) noexcept {
    return rules_of(f, how);
}

/// Returns the magnitude a rounded to the grid that `mantissa_bits` and `least_step` describe (least_step a lane each).
template <class Arch>
vi<Arch> round_to_grid(vi<Arch> a, int mantissa_bits, vi<Arch> least_step, mask<Arch> negative, rounding how, vi<Arch> random) noexcept {
    const vi<Arch> step = (normalised<Arch>(a) >> 23) + vi<Arch>(23 - mantissa_bits);
    return round_magnitude<Arch>(a, max(step, least_step), negative, how, random);
}

/// Rounds a magnitude that is finite and not zero to a power of two from 2^-127 on (e8m0).
template <class Arch>
vi<Arch> round_to_power_of_two(vi<Arch> a, rounding how, vi<Arch> random) noexcept {
    using V = vi<Arch>;
    const V least(0x00400000);  // 2^-127
    const V step = max(normalised<Arch>(a) >> 23, V(0)) + V(23);
    return max(round_magnitude<Arch>(a, step, a < V(0), how, random), least);
}

/// Is true when the rules of a family flush subnormal inputs or results.
template <class Rules>
QK_INLINE constexpr bool flushes(const Rules& r) noexcept {
    return r.least_input != 0 || r.flush_below != 0;
}
/// Returns x with magnitudes below `least` replaced by zero of their sign.
template <class Arch>
vf<Arch> flushed(vf<Arch> x, std::int32_t least) noexcept {
    using V = vi<Arch>;
    const V bits = as_int<Arch>(x);
    return as_float<Arch>(select((bits & V(magnitude_bits)) < V(least), bits & V(sign_bit), bits));
}

/// Rounds one vector in the general form.
template <class Arch>
vf<Arch> cast_completely(vf<Arch> x, const floating_rules& r, vi<Arch> random) noexcept {
    using V = vi<Arch>;
    const V bits = as_int<Arch>(x);
    V a = bits & V(magnitude_bits);
    const V sign = bits & V(sign_bit);
    const mask<Arch> negative = bits < V(0);
    a = select(a < V(r.least_input), V(0), a);
    V y;
    if (r.powers_of_two) {
        y = round_to_power_of_two<Arch>(a, r.how, random);
        y = select(y > V(r.largest), V(r.beyond[0]), y);
        y = select(a == V(infinity_bits), V(r.nan), y);
        return as_float<Arch>(select(negative | (a == V(0)) | (a > V(infinity_bits)), V(r.nan), y));
    }
    y = round_to_grid<Arch>(a, r.mantissa_bits, V(r.least_step), negative, r.how, random);
    y = select(y > V(r.largest), select(negative, V(r.beyond[1]), V(r.beyond[0])), y);
    y = select(y < V(r.flush_below), V(0), y);
    y = select(a == V(infinity_bits), V(r.infinity), y);
    const V signs = select(y == V(0), sign & V(r.zero_signs), sign);
    return as_float<Arch>(select(a > V(infinity_bits), V(r.nan), y | signs));
}

/// y = scale * cast(x / scale); the scale is one for the tensor or a lane each.
template <class Arch>
struct floating_step {
    floating_rules rules;
    vf<Arch> scale;
    bool scaled;

    floating_step(const floating_rules& r, vf<Arch> s, bool has_scale) noexcept : rules(r), scale(s), scaled(has_scale) {}

    const random_source& random() const noexcept { return rules.random; }

    vf<Arch> complete(vf<Arch> x, vi<Arch> random) const noexcept {
        if (!scaled) return cast_completely<Arch>(x, rules, random);
        const vf<Arch> y = cast_completely<Arch>(quotient<Arch>(flushed<Arch>(x, rules.least_input), scale), rules, random) * scale;
        const vf<Arch> out = flushed<Arch>(y, std::min(rules.flush_below, min_normal_bits));
        if (!rules.powers_of_two) return out;
        // e8m0 has no zero: its 2^-127 is flushed only where a scale has multiplied it.
        return as_float<Arch>(select(as_int<Arch>(scale) == as_int<Arch>(vf<Arch>(1.0f)), as_int<Arch>(y), as_int<Arch>(out)));
    }
};

}  // namespace qk::kernels
