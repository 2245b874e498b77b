// SPDX-License-Identifier: Apache-2.0
// The step of the floating formats: round to the grid of the target with gradual underflow, then overflow.
#pragma once

#include "qk/formats/floating.hpp"
#include "qk/inline.hpp"
#include "qk/kernels/rounding/general.hpp"
#include "qk/kernels/rounding/one_by_one.hpp"
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
    std::int32_t least = 0;        ///< formats without a zero: the smallest number
    bool powers_of_two = false;    ///< e8m0, which has no zero
    bool no_zero = false;          ///< powers of two alone, e8m0 among them
    bool nonnegative = false;      ///< no sign: what is below zero becomes +0
    bool general = false;          ///< only the general form covers this format or this rounding
    number_grid grid;              ///< where it is needed()
    rounding how = rounding::half_even;
    random_source random;
};

/// Does a value beyond the largest one become the largest one?
constexpr bool saturates(floating f, overflow_rule rule) {
    const bool fn = rule == overflow_rule::fn_saturates && !has_infinity(f) && f.specials.high_nans == high_nans::one;
    const bool always = rule == overflow_rule::saturate || rule == overflow_rule::propagate;
    return always || (!has_nan(f) && !has_infinity(f)) || fn || (rule == overflow_rule::by_width && bits(f) <= 8);
}

constexpr std::int32_t float_bits(double v) { return std::bit_cast<std::int32_t>(static_cast<float>(v)); }

/// Returns the bits of 2^e, from 2^-149 on, whatever the processor does to subnormals.
constexpr std::int32_t power_bits(int e) { return e >= -126 ? (e + 127) << 23 : e >= -149 ? 1 << (e + 149) : 0; }

QK_INLINE constexpr floating_rules rules_of(floating f, const semantics& how) {
    floating_rules r;
    r.mantissa_bits = f.mantissa_bits;
    r.least_step = min_exponent(f) - f.mantissa_bits + step_bias;
    r.largest = float_bits(max_value(f));
    r.powers_of_two = f == e8m0 || f == no_format;
    r.no_zero = !has_zero(f);
    r.least = r.no_zero ? power_bits(min_exponent(f)) : 0;
    const bool stops = r.no_zero ? how.overflow != overflow_rule::ieee : f != fp32 && saturates(f, how.overflow);
    const std::int32_t beyond = stops ? r.largest : has_infinity(f) ? infinity_bits : nan_bits;
    r.infinity = how.overflow == overflow_rule::propagate && has_infinity(f) ? infinity_bits : beyond;
    // IEEE 754-2019, 7.4: a finite value that is rounded toward zero does not go past the largest, nor does one that is rounded to an odd
    // code if the largest has one.
    const bool largest_is_odd = ((f.mantissa_bits > 0 ? static_cast<int>(max_mantissa(f)) : max_exponent(f) + f.bias) & 1) != 0;
    const bool stops_both = how.rounding == rounding::toward_zero || (how.rounding == rounding::to_odd && largest_is_odd);
    r.beyond[0] = stops_both || how.rounding == rounding::down ? r.largest : beyond;
    r.beyond[1] = stops_both || how.rounding == rounding::up ? r.largest : beyond;
    const std::int32_t none = how.nan_without_code == nan_rule::nan             ? nan_bits
                              : how.nan_without_code == nan_rule::negative_zero ? sign_bit
                                                                                : 0;
    r.nan = has_nan(f) ? nan_bits : none == sign_bit && !has_negative_zero(f) ? 0 : none;
    r.flush_below = how.flush_outputs ? std::max(float_bits(min_normal(f)), min_normal_bits) : 0;
    r.least_input = how.flush_inputs ? min_normal_bits : 0;
    r.zero_signs = has_negative_zero(f) ? -1 : 0;
    r.how = r.no_zero && (how.rounding == rounding::half_even || how.rounding == rounding::half_up) ? rounding::half_away : how.rounding;
    r.random = random_source(how);
    r.nonnegative = !f.is_signed && !r.no_zero;
    r.grid = number_grid(f, how.rounding);
    r.general = r.nonnegative || (r.no_zero ? !r.powers_of_two : r.grid.needed()) || !is_counted(how.rounding, r.random);
    return r;
}

/// rules_of, not inlined: where rules of several formats are made, it is compiled once.
template <class Arch>
QK_APART floating_rules rules_apart(floating f, const semantics& how) noexcept {
    return rules_of(f, how);
}

/// Returns the magnitude a rounded to the grid that `mantissa_bits` and `least_step` describe (least_step a lane each). `grid` says what
/// else decides; its numbers are those of the format, of which a's are 2^scale times as large.
template <class Arch>
vi<Arch> round_to_grid(vi<Arch> a, int mantissa_bits, vi<Arch> least_step, const number_grid& grid, vi<Arch> scale, mask<Arch> negative,
                       rounding_rule how, vi<Arch> random) noexcept {
    using V = vi<Arch>;
    if (!grid.subnormals) return round_lanes<Arch>(grid, a, negative, scale, how, random);
    const V field = normalised<Arch>(a) >> 23, own = field + V(23 - mantissa_bits), step = max(own, least_step);
    if (!grid.by_code) return round_magnitude<Arch>(a, step, negative, how, random);
    // Below the smallest number there is 0, whose code is even.
    const mask<Arch> odd = (((field - V(127) - scale + V(grid.bias)) & V(1)) != V(0)) & (own == step);
    return round_magnitude<Arch>(a, step, negative, how, random, &odd);
}

/// Rounds a magnitude that is finite and not zero to a power of two from `least` on (e8m0: 2^-127). The code of 2^e is e + bias.
template <class Arch>
vi<Arch> round_to_power_of_two(vi<Arch> a, std::int32_t least, int bias, rounding_rule how, vi<Arch> random) noexcept {
    using V = vi<Arch>;
    const V field = max(normalised<Arch>(a) >> 23, V(0)), step = field + V(23);
    const mask<Arch> odd = ((field + V(bias - 127)) & V(1)) != V(0);
    return max(round_magnitude<Arch>(a, step, a < V(0), how, random, &odd), V(least));
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
vf<Arch> cast_general(vf<Arch> x, const floating_rules& r, vi<Arch> random) noexcept {
    using V = vi<Arch>;
    const V bits = as_int<Arch>(x);
    V a = bits & V(magnitude_bits);
    const V sign = bits & V(sign_bit);
    const mask<Arch> negative = bits < V(0);
    a = select(a < V(r.least_input), V(0), a);
    const rounding_rule how(r.how, r.random);
    V y;
    if (r.no_zero) {
        y = round_to_power_of_two<Arch>(a, r.least, r.grid.bias, how, random);
        y = select(y > V(r.largest), V(r.beyond[0]), y);
        y = select(a == V(infinity_bits), V(r.nan), y);
        return as_float<Arch>(select(negative | (a == V(0)) | (a > V(infinity_bits)), V(r.nan), y));
    }
    y = round_to_grid<Arch>(a, r.mantissa_bits, V(r.least_step), r.grid, V(0), negative, how, random);
    y = select(y > V(r.largest), select(negative, V(r.beyond[1]), V(r.beyond[0])), y);
    y = select(y < V(r.flush_below), V(0), y);
    y = select(a == V(infinity_bits), V(r.infinity), y);
    if (r.nonnegative) return as_float<Arch>(select(a > V(infinity_bits), V(r.nan), select(negative, V(0), y)));
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

    vf<Arch> general(vf<Arch> x, vi<Arch> random) const noexcept {
        if (!scaled) return cast_general<Arch>(x, rules, random);
        const vf<Arch> y = cast_general<Arch>(quotient<Arch>(flushed<Arch>(x, rules.least_input), scale), rules, random) * scale;
        const vf<Arch> out = flushed<Arch>(y, std::min(rules.flush_below, min_normal_bits));
        if (!rules.no_zero) return out;
        // e8m0 has no zero: its 2^-127 is flushed only where a scale has multiplied it.
        return as_float<Arch>(select(as_int<Arch>(scale) == as_int<Arch>(vf<Arch>(1.0f)), as_int<Arch>(y), as_int<Arch>(out)));
    }
};

}  // namespace qk::kernels
