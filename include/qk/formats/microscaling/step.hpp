// SPDX-License-Identifier: Apache-2.0
// The step of microscaling formats: general form, the constants of its fast form (steps/blocks.hpp), and the step whose scales
// are searched.
#pragma once

#include <algorithm>

#include "qk/formats/floating/step.hpp"
#include "qk/formats/microscaling/format.hpp"
#include "qk/isa.hpp"
#include "qk/steps/blocks.hpp"
#include "qk/steps/search.hpp"

namespace qk::kernels {
inline namespace QK_ISA {

constexpr block_shape shape_of(const microscaling& f) {
    return {f.block_size, has_integer_elements(f) ? element_step::block : element_step::element};
}

/// The step of microscaling formats: a power of two scales the elements of a block.
template <class Arch>
struct microscaling_step {
    static constexpr int sub_block_size = 0;
    static constexpr bool bump = false;
    int block_size, mantissa_bits, top_exponent;
    std::int32_t rule_fraction;  ///< rceil and ceil_7_25: the fraction of amax up to which it does not need a larger scale
    std::int32_t least_step;     ///< of an element, k + step_bias
    std::int32_t largest;        ///< magnitude of an element
    std::int32_t largest_negative;
    bool integers, clamp_scale;
    scale_rule rule;
    block_rules rules;
    bool nonnegative = false;  ///< elements have no sign: what is below zero becomes +0
    number_grid element_grid;  ///< where it is needed()

    struct shared {
        vi<Arch> scale;  ///< the exponent of X
        vi<Arch> worst;
    };

    microscaling_step(const microscaling& f, const semantics& how) noexcept
        : block_size(f.block_size),
          mantissa_bits(has_integer_elements(f) ? f.integer_bits - 2 : f.element.mantissa_bits),
          top_exponent(element_max_exponent(f)),
          rule_fraction(0),
          least_step(step_bias - mantissa_bits + (has_integer_elements(f) ? 0 : min_exponent(f.element))),
          largest(float_bits(largest_element(f))),
          largest_negative(has_integer_elements(f) && how.mxint_uses_lowest ? float_bits(2.0) : largest),
          integers(has_integer_elements(f)),
          clamp_scale(how.clamp_mx_scale),
          rule(how.scale_rule),
          rules(rules_of(how, how.mx_specials, integers ? how.mxint_zero : how.mx_zero)) {
        const std::int32_t fitting = rule == scale_rule::ceil_7_25 ? float_bits(stretched_maximum(f)) : largest;
        rule_fraction = fitting & 0x7fffff;
        if (integers) return;
        if (!has_negative_zero(f.element)) rules.zero = zero_sign::positive, rules.zero_signs = 0;
        nonnegative = !f.element.is_signed;
        element_grid = number_grid(f.element, how.rounding);
    }

    shared plan(const seen<Arch>& s) const noexcept {
        using V = vi<Arch>;
        const V amax = normalised<Arch>(select(s.finite < V(rules.least_input), V(0), s.finite));
        V exponent = amax >> 23;
        const V fraction = amax & V(0x7fffff);
        switch (rule) {
            case scale_rule::floor: break;
            case scale_rule::ceil: exponent = exponent + select(fraction > V(0), V(1), V(0)); break;
            case scale_rule::ceil_7_25:
            case scale_rule::four_over_six:
            case scale_rule::search:
            case scale_rule::rceil: exponent = exponent + select(fraction > V(rule_fraction), V(1), V(0)); break;
            case scale_rule::even: exponent = (amax + V((1 << 22) >> mantissa_bits)) >> 23; break;
        }
        exponent = exponent - V(127 + top_exponent);
        if (clamp_scale) exponent = min(max(exponent, V(-127)), V(127));
        return {exponent, s.all};
    }

    vf<Arch> apply(vf<Arch> x, const shared& b, vi<Arch> random) const noexcept {
        using V = vi<Arch>;
        const V bits = nonnegative ? without_negatives<Arch>(as_int<Arch>(x)) : as_int<Arch>(x);
        const V a = ordinary_magnitude<Arch>(bits, rules.least_input);
        const mask<Arch> negative = bits < V(0);
        const V least = b.scale + V(least_step);
        const rounding_rule how(rules.how, rules.random);
        V y = integers ? round_magnitude<Arch>(a, least, negative, how, random)
                       : round_to_grid<Arch>(a, mantissa_bits, least, element_grid, b.scale, negative, how, random);
        V limit = scaled_constant<Arch>(largest, b.scale);
        if (largest_negative != largest) limit = select(negative, scaled_constant<Arch>(largest_negative, b.scale), limit);
        y = min(y, limit);
        return finish<Arch>(y, bits, quotient_is_zero<Arch>(a, b.scale + V(step_bias)), b.worst, rules);
    }
};

template <class Arch>
microscaling_step<Arch> step_of(const microscaling& f, const semantics& how, float) noexcept {
    return {f, how};
}

/// Returns the fast form; `any_rounding`: for rounded_block.
template <class Arch>
fast_block<Arch> fast_block_of(const microscaling_step<Arch>& s, bool any_rounding) noexcept {
    const int m = s.mantissa_bits, least = s.least_step + m - step_bias;  // exponent of the smallest normal element
    fast_block<Arch> q(m);
    // Of ties that codes decide, the form of the other roundings knows those of half-even.
    const bool counts_ties = any_rounding && s.element_grid.subnormals && s.rules.how == rounding::half_even;
    if (s.nonnegative || (s.element_grid.needed() && !counts_ties)) return q;
    if (!q.covers(s.rules, any_rounding) || (s.largest_negative != s.largest && !any_rounding) || m > 20) return q;
    q.grid = !s.integers;
    switch (s.rule) {
        case scale_rule::floor: q.add = vi<Arch>(0); break;
        case scale_rule::ceil: q.add = vi<Arch>(0x7fffff); break;
        case scale_rule::ceil_7_25:
        case scale_rule::rceil: q.add = vi<Arch>(0x7fffff - s.rule_fraction); break;
        case scale_rule::four_over_six:
        case scale_rule::search: return q;  // they look at a block's values: run_searched
        case scale_rule::even: q.add = vi<Arch>((1 << 22) >> m); break;
    }
    q.lowest = (1 + s.top_exponent - (q.grid ? std::min(least, 0) : 0) + (flushes(s.rules) ? m + 2 : 0)) << 23;
    q.highest = ((q.grid ? 229 : 228) + std::min(m, 20)) << 23;
    q.to_base = vi<Arch>(q.grid ? (least - s.top_exponent) * (1 << 23) : ((23 - m - s.top_exponent) << 23) | half_bit);
    q.to_limit = vi<Arch>(s.largest - (127 + s.top_exponent) * (1 << 23));
    q.magic = as_float<Arch>(vi<Arch>(((150 - m) << 23) | half_bit));
    q.scale_from_base = vi<Arch>(q.grid ? -least * (1 << 23) : (m - 23) * (1 << 23));
    return q;
}

/// A microscaling step whose scales are searched. Nothing above rceil's scale is better, which clips nothing: its grid has every number of
/// the grids above it.
template <class Arch>
struct searched_microscaling : microscaling_step<Arch> {
    using base = microscaling_step<Arch>;
    using shared = typename base::shared;
    search_task task;
    base trial;
    element_rounding<Arch> rounded;
    int lowest;

    searched_microscaling(const microscaling& f, float, const search_task& t) noexcept
        : base(f, t.how),
          task(t),
          trial(f, for_search(t.how)),
          rounded(this->mantissa_bits, this->least_step + this->mantissa_bits - step_bias, std::bit_cast<float>(this->largest),
                  !this->nonnegative && !trial.element_grid.needed() && this->largest_negative == this->largest),
          lowest(t.how.clamp_mx_scale ? -127 : -400) {}

    bool may_search() const noexcept { return true; }
    ladder_steps<Arch> rule_steps(const seen<Arch>& all) const noexcept {
        ladder_steps<Arch> s;
        store<Arch>(s.at, this->plan(all).scale);
        return s;
    }
    shared shared_at(const ladder_steps<Arch>& at) const noexcept { return {load<Arch>(at.at), vi<Arch>(0)}; }
    std::int32_t scale_of(int at) const noexcept { return at; }
    /// Scales as floats, where they are normal numbers; else 0 or Inf.
    vf<Arch> units(vi<Arch> at) const noexcept { return as_float<Arch>(min(max(at + vi<Arch>(127), vi<Arch>(0)), vi<Arch>(255)) << 23); }
    /// The largest magnitudes under scales.
    vf<Arch> limits(const ladder_steps<Arch>& at) const noexcept {
        return as_float<Arch>(scaled_constant<Arch>(std::max(this->largest, this->largest_negative), load<Arch>(at.at)));
    }
    int end(int first, float) const noexcept { return first + 1; }
    int other(int first) const noexcept { return std::max(first - 1, lowest); }
    /// Blocks that lose the sign of zeros.
    mask<Arch> empties(vi<Arch> amax) const noexcept { return amax < vi<Arch>(0); }
};

template <class Arch>
searched_microscaling<Arch> searched_step(const microscaling& f, float t, const search_task& task) noexcept {
    return {f, t, task};
}

}  // namespace QK_ISA
}  // namespace qk::kernels
