// SPDX-License-Identifier: Apache-2.0
// The step of the floating formats: round to the grid of the target with gradual underflow, then overflow. Formats without subnormals,
// whose neighbours do not follow from a step, are rounded one by one: rare, and written for clarity.
#pragma once

#include <algorithm>

#include "qk/formats/floating/format.hpp"
#include "qk/inline.hpp"
#include "qk/isa.hpp"
#include "qk/semantics.hpp"
#include "qk/steps/general.hpp"

namespace qk::kernels {
inline namespace QK_ISA {

/// What decides between the neighbours of a value beside the step of the grid.
struct number_grid {
    int mantissa_bits = 0;
    int least = 0;  ///< exponent of the smallest normal number
    int bias = 0;
    bool subnormals = true;
    bool by_code = false;  ///< there is one digit of precision, and the rounding looks at the codes of neighbours

    constexpr number_grid() = default;
    constexpr number_grid(floating f, rounding how)
        : mantissa_bits(f.mantissa_bits),
          least(min_exponent(f)),
          bias(f.bias),
          subnormals(f.subnormals),
          by_code(f.mantissa_bits == 0 && (how == rounding::half_even || how == rounding::to_odd)) {}
    /// Is true where the step alone does not decide: the fast forms know nothing else.
    constexpr bool needed() const { return !subnormals || by_code; }
};

/// A positive number: digits * 2^exponent.
struct whole_number {
    std::uint64_t digits;
    int exponent;
};

/// Returns the bits of a float32 magnitude, finite and not 0, as a number.
constexpr whole_number number_of_bits(std::uint32_t a) {
    const std::uint32_t field = a >> 23;
    return field == 0 ? whole_number{a, -149} : whole_number{(a & 0x7fffffu) | 0x800000u, static_cast<int>(field) - 150};
}

/// Returns the neighbour that digits * 2^exponent, below the larger one, goes to: 0 or `large`, which is digits * 2^exponent, too.
constexpr bool reaches(whole_number x, whole_number large, bool negative, rounding_rule rule, std::uint32_t word) {
    // Both get the same exponent; x has 24 bits and is the smaller one, so what is shifted fits, or is far below a half. One bit stays free
    // for the doubling of the rest.
    const int up = x.exponent - large.exponent;
    if (up >= 0) x.digits <<= up;
    else if (-up < std::countl_zero(large.digits) - 1) large.digits <<= -up;
    else large.digits = std::uint64_t{1} << 62;  // or more, 2^38 times x at least: nearest is 0, and chance has no bit that small
    switch (rule.how) {
        case rounding::half_even: return 2 * x.digits > large.digits;
        case rounding::half_away: return 2 * x.digits >= large.digits;
        case rounding::half_up: return negative ? 2 * x.digits > large.digits : 2 * x.digits >= large.digits;
        case rounding::toward_zero: return false;
        case rounding::up: return !negative;
        case rounding::down: return negative;
        case rounding::to_odd: return true;
        case rounding::stochastic:
        case rounding::stochastic_b:
        case rounding::stochastic_c: break;
    }
    // floor(x * 2^bits / large), a bit at a time, and the rest.
    std::uint64_t count = 0, rest = x.digits;
    for (int k = 0; k < rule.bits; ++k) {
        rest *= 2;
        count = 2 * count + (rest >= large.digits ? 1 : 0);
        if (rest >= large.digits) rest -= large.digits;
    }
    if (rule.how == rounding::stochastic_b && 2 * rest >= large.digits) ++count;
    if (rule.how == rounding::stochastic_c && (2 * rest > large.digits || (2 * rest == large.digits && count % 2 != 0))) ++count;
    return count + (word >> (32 - rule.bits)) >= std::uint64_t{1} << rule.bits;
}

/// Returns x * 2^shift, for x below 2^24 digits, as the bits of a float32, rounded down; Inf beyond the largest one.
constexpr std::uint32_t bits_of_number(whole_number x) {
    while (x.digits != 0 && x.digits < 0x800000u) x.digits <<= 1, --x.exponent;
    while (x.digits >= 0x1000000u) x.digits >>= 1, ++x.exponent;
    const int field = x.exponent + 150;
    if (x.digits == 0 || field < -23) return 0;
    if (field >= 255) return 0x7f800000u;
    if (field <= 0) return static_cast<std::uint32_t>(x.digits >> (1 - field));
    return static_cast<std::uint32_t>(field) << 23 | (static_cast<std::uint32_t>(x.digits) & 0x7fffffu);
}

/// Returns the magnitude `a` (bits, finite) rounded to a number of the grid, which has no subnormals, times 2^scale. Such grids have digits
/// behind the leading one: one without them would have no zero.
constexpr std::uint32_t round_one(const number_grid& g, std::uint32_t a, bool negative, int scale, rounding_rule rule, std::uint32_t word) {
    if (a == 0) return 0;
    whole_number x = number_of_bits(a);
    const int width = 64 - std::countl_zero(x.digits), e = x.exponent + width - 1 - scale;  // floor(log2) in units of the scale
    const whole_number least{(std::uint64_t{1} << g.mantissa_bits) + 1, g.least - g.mantissa_bits + scale};
    const bool below = e < g.least || (e == g.least && (x.digits << (40 - width)) < (least.digits << (39 - g.mantissa_bits)));
    if (below) return reaches(x, least, negative, rule, word) ? bits_of_number(least) : 0;
    const int step = e - g.mantissa_bits + scale, drop = step - x.exponent;
    if (drop <= 0) return a;
    const std::uint64_t count = drop < 64 ? x.digits >> drop : 0, rest = drop < 64 ? x.digits - (count << drop) : x.digits;
    if (rest == 0) return a;
    const bool odd = count % 2 != 0;
    const bool more_than_half = drop < 64 && 2 * rest > std::uint64_t{1} << drop, half = drop < 64 && 2 * rest == std::uint64_t{1} << drop;
    bool up = false;
    switch (rule.how) {
        case rounding::half_even: up = more_than_half || (half && odd); break;
        case rounding::half_away: up = more_than_half || half; break;
        case rounding::half_up: up = more_than_half || (half && !negative); break;
        case rounding::toward_zero: break;
        case rounding::up: up = !negative; break;
        case rounding::down: up = negative; break;
        case rounding::to_odd: up = !odd; break;
        case rounding::stochastic:
        case rounding::stochastic_b:
        case rounding::stochastic_c: up = goes_up_by_chance(rest, drop, rule, word); break;
    }
    return bits_of_number({count + (up ? 1 : 0), step});
}

/// round_one for a vector of magnitudes; `scale` is a lane each.
template <class Arch>
QK_APART vi<Arch> round_lanes(const number_grid& g, vi<Arch> a, mask<Arch> negative, vi<Arch> scale, rounding_rule rule,
                              vi<Arch> random) noexcept {
    alignas(64) std::int32_t x[lanes<Arch>], sign[lanes<Arch>], exponent[lanes<Arch>], word[lanes<Arch>];
    store<Arch>(x, a);
    store<Arch>(sign, select(negative, vi<Arch>(-1), vi<Arch>(0)));
    store<Arch>(exponent, scale);
    store<Arch>(word, random);
    for (std::size_t i = 0; i < lanes<Arch>; ++i) {
        if (x[i] < infinity_bits)
            x[i] = static_cast<std::int32_t>(
                round_one(g, static_cast<std::uint32_t>(x[i]), sign[i] != 0, exponent[i], rule, static_cast<std::uint32_t>(word[i])));
    }
    return load<Arch>(x);
}

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

}  // namespace QK_ISA
}  // namespace qk::kernels
