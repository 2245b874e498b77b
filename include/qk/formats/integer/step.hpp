// SPDX-License-Identifier: Apache-2.0
// The step of the affine integers: y = (clamp(round(x / scale) + zero_point) - zero_point) * scale.
//
// The clamp is done on round(x / scale), against the limits less the zero point, each rounded to float32 (low, high). That is exact for
// every width: a rounded quotient beyond a limit is at least that limit rounded, because rounding keeps order, so clamping to
// the rounded limit gives what rounding the clamped integer gives.
#pragma once

#include "qk/formats/integer/format.hpp"
#include "qk/isa.hpp"
#include "qk/parameters.hpp"
#include "qk/semantics.hpp"
#include "qk/steps/general.hpp"

namespace qk::kernels {
inline namespace QK_ISA {

/// The part of a step that is the same for every scale.
struct integer_rules {
    std::int64_t lowest = 0;
    std::int64_t highest = 0;
    integer_special nan = integer_special::zero_point;
    integer_special infinity = integer_special::highest;
    std::int32_t flush_below = 0;
    std::int32_t least_input = 0;
    bool multiply = false;     ///< by the reciprocal
    bool zero_before = false;  ///< zero point added before rounding
    rounding how = rounding::half_even;
    random_source random;
};

constexpr integer_rules rules_of(integer f, const semantics& how, bool one_scale) {
    return {.lowest = qmin(f),
            .highest = qmax(f),
            .nan = how.integer_nan,
            .infinity = one_scale ? how.integer_infinity : how.integer_infinity_per_channel,
            .flush_below = how.flush_outputs ? min_normal_bits : 0,
            .least_input = how.flush_inputs ? min_normal_bits : 0,
            .multiply = how.integer_mode == integer_mode::reciprocal,
            .zero_before = how.zero_point_before,
            .how = how.rounding,
            .random = random_source(how)};
}

/// Returns round(t) as a float with the sign of t, which is not NaN.
template <class Arch>
vf<Arch> round_to_integer(vf<Arch> t, rounding_rule how, vi<Arch> random) noexcept {
    using V = vi<Arch>;
    const V bits = as_int<Arch>(t);
    const V r = round_magnitude<Arch>(bits & V(magnitude_bits), V(step_bias), bits < V(0), how, random);
    return as_float<Arch>(r | (bits & V(sign_bit)));
}

/// Returns min(max(v, low), high) for finite bounds and v not NaN.
template <class Arch>
vf<Arch> clamp(vf<Arch> v, vf<Arch> low, vf<Arch> high) noexcept {
    return min(max(v, low), high);
}

/// The step of the integer formats. Scale and zero point are one for the tensor or a lane each.
template <class Arch>
struct integer_step {
    integer_rules rules;
    vf<Arch> scale, low, high;
    alignas(64) std::int64_t zero_point[lanes<Arch>];

    integer_step(const integer_rules& r, float s, std::int64_t zero) noexcept
        : rules(r), scale(s), low(static_cast<float>(r.lowest - zero)), high(static_cast<float>(r.highest - zero)) {
        for (std::int64_t& z : zero_point) z = zero;
    }
    integer_step(const integer_rules& r, vf<Arch> s, const std::int64_t* zero, std::size_t count) noexcept : rules(r), scale(s) {
        alignas(64) float l[lanes<Arch>], h[lanes<Arch>];
        for (std::size_t i = 0; i < lanes<Arch>; ++i) {
            zero_point[i] = zero != nullptr && i < count ? zero[i] : 0;
            l[i] = static_cast<float>(r.lowest - zero_point[i]);
            h[i] = static_cast<float>(r.highest - zero_point[i]);
        }
        low = load<Arch>(l);
        high = load<Arch>(h);
    }

    const random_source& random() const noexcept { return rules.random; }

    vf<Arch> general(vf<Arch> x, vi<Arch> random) const noexcept {
        using V = vi<Arch>;
        const V bits = as_int<Arch>(x);
        const V a = bits & V(magnitude_bits);
        const vf<Arch> finite = flushed<Arch>(x, rules.least_input);
        const vf<Arch> t = rules.multiply ? opaque<Arch>(finite * quotient<Arch>(vf<Arch>(1.0f), scale)) : quotient<Arch>(finite, scale);
        const rounding_rule how(rules.how, rules.random);
        vf<Arch> n = rules.zero_before ? zero_point_first(t, random) : clamp<Arch>(round_to_integer<Arch>(t, how, random), low, high);
        const V ratio = as_int<Arch>(t) & V(magnitude_bits);  // 0 times an infinite reciprocal is NaN too
        n = special(n, a == V(infinity_bits), bits > V(0), rules.infinity);
        n = special(n, (a > V(infinity_bits)) | (ratio > V(infinity_bits)), bits == bits, rules.nan);
        return flushed<Arch>((n + vf<Arch>(0.0f)) * scale, rules.flush_below);
    }

  private:
    /// Returns n with `what` in its place where `where`, for positive elements; negative ones become the lowest code.
    vf<Arch> special(vf<Arch> n, mask<Arch> where, mask<Arch> positive, integer_special what) const noexcept {
        using V = vi<Arch>;
        const vf<Arch> up = what == integer_special::highest ? high : what == integer_special::lowest ? low : vf<Arch>(0.0f);
        const V v = select(positive, as_int<Arch>(up), as_int<Arch>(low));
        return as_float<Arch>(select(where, v, as_int<Arch>(n)));
    }

    /// Returns clamp(round(t + zero_point)) - zero_point. The difference is rounded once, for which wide integers need doubles.
    vf<Arch> zero_point_first(vf<Arch> t, vi<Arch> random) const noexcept {
        alignas(64) float zero[lanes<Arch>], n[lanes<Arch>];
        for (std::size_t i = 0; i < lanes<Arch>; ++i) zero[i] = static_cast<float>(zero_point[i]);
        store<Arch>(n, round_to_integer<Arch>(t + load<Arch>(zero), {rules.how, rules.random}, random));
        for (std::size_t i = 0; i < lanes<Arch>; ++i) {
            double v = static_cast<double>(n[i]);
            v = v < static_cast<double>(rules.lowest) ? static_cast<double>(rules.lowest) : v;
            v = v > static_cast<double>(rules.highest) ? static_cast<double>(rules.highest) : v;
            n[i] = static_cast<float>(v - static_cast<double>(zero_point[i]));
        }
        return load<Arch>(n);
    }
};

}  // namespace QK_ISA
}  // namespace qk::kernels
