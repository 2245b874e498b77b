// SPDX-License-Identifier: Apache-2.0
// The steps of the block formats, in their general form. A lane is an element, and carries what its block shares.
//
// Each step answers three questions: what must be known of the elements of a block (`seen`), what it shares (`plan`), and what becomes of
// an element (`apply`). The driver asks them along any axis.
#pragma once

#include "qk/formats/format.hpp"
#include "qk/kernels/steps/floating.hpp"

namespace qk::kernels {

/// The largest finite magnitude seen in a block, and the largest of all (Inf and NaN are above the finite ones).
template <class Arch>
struct seen {
    vi<Arch> finite = vi<Arch>(0);
    vi<Arch> all = vi<Arch>(0);

    void add(vf<Arch> x) noexcept {
        const vi<Arch> a = as_int<Arch>(x) & vi<Arch>(magnitude_bits);
        all = max(all, a);
        finite = max(finite, select(a < vi<Arch>(infinity_bits), a, vi<Arch>(0)));
    }
};

/// What the block formats take from a semantics.
struct block_rules {
    block_specials specials = block_specials::block_nan;
    zero_sign zero = zero_sign::kept;
    std::int32_t flush_below = 0;
    std::int32_t least_input = 0;
    std::int32_t zero_signs = -1;  ///< mask: nothing where elements have no -0, so that a zero beside an Inf is +0
    rounding how = rounding::half_even;
    random_source random;
};

constexpr block_rules rules_of(const semantics& how, block_specials special, zero_sign zero) {
    // Quark keeps the sign of zero in roundings other than half-even.
    const bool as_kept = zero == zero_sign::underflow_positive && how.rounding != rounding::half_even;
    return {.specials = special,
            .zero = as_kept ? zero_sign::kept : zero,
            .flush_below = how.flush_outputs ? min_normal_bits : 0,
            .least_input = how.flush_inputs ? min_normal_bits : 0,
            .how = how.rounding,
            .random = random_source(how)};
}

/// Returns the result for a rounded magnitude y, the element's bits and `worst`, the largest magnitude of its block. `lost` is where the
/// float32 quotient x / scale is zero.
template <class Arch>
vf<Arch> finish(vi<Arch> y, vi<Arch> bits, mask<Arch> lost, vi<Arch> worst, const block_rules& r) noexcept {
    using V = vi<Arch>;
    const V a = bits & V(magnitude_bits);
    const V sign = bits & V(sign_bit);
    V zero = sign;
    switch (r.zero) {
        case zero_sign::kept: break;
        case zero_sign::positive: zero = V(0); break;
        case zero_sign::underflow_positive: zero = select(lost, sign, V(0)); break;
        case zero_sign::zero_quotient_positive: zero = select(lost, V(0), sign); break;
    }
    const V signs = select(y == V(0), zero, sign);
    y = signs | select(y < V(r.flush_below), V(0), y);
    switch (r.specials) {
        case block_specials::block_nan: y = select(worst >= V(infinity_bits), V(nan_bits), y); break;
        case block_specials::pass_through: y = select(a >= V(infinity_bits), bits, y); break;
        case block_specials::nan_only:
            y = select(worst == V(infinity_bits), select(a == V(infinity_bits), bits, sign & V(r.zero_signs)), y);
            y = select(worst > V(infinity_bits), V(nan_bits), y);
            break;
    }
    return as_float<Arch>(y);
}

/// Returns the bits of an element that has no sign: what is below zero, -Inf too, becomes +0.
template <class Arch>
vi<Arch> without_negatives(vi<Arch> bits) noexcept {
    using V = vi<Arch>;
    return select((bits < V(0)) & ((bits & V(magnitude_bits)) <= V(infinity_bits)), V(0), bits);
}

/// Returns the magnitude of a finite element, and 0 for special values and for what the semantics flushes.
template <class Arch>
vi<Arch> ordinary_magnitude(vi<Arch> bits, std::int32_t least_input) noexcept {
    const vi<Arch> a = bits & vi<Arch>(magnitude_bits);
    return select((a >= vi<Arch>(infinity_bits)) | (a < vi<Arch>(least_input)), vi<Arch>(0), a);
}

/// The step of block float and, with sub-blocks, of the microexponents. With E the exponent field of a block, its elements are multiples of
/// 2^(E - 127 - (m - 1)).
template <class Arch>
struct block_float_step {
    int block_size, sub_block_size, mantissa_bits, least_exponent, largest_exponent, largest_shift;
    bool bump;
    block_rules rules;

    struct shared {
        vi<Arch> exponent;  ///< field of a float32, 0 for subnormals
        vi<Arch> worst;
    };

    block_float_step(const block_float& f, const semantics& how) noexcept
        : block_size(f.block_size),
          sub_block_size(0),
          mantissa_bits(f.mantissa_bits),
          least_exponent(127 - ((1 << (f.exponent_bits - 1)) - 1)),
          largest_exponent(least_exponent + (1 << f.exponent_bits) - 2),
          largest_shift(0),
          bump(f.bump),
          rules(rules_of(how, how.bfp_specials, has_negative_zero(f) ? how.bfp_zero : zero_sign::positive)) {}
    block_float_step(const microexponent& f, const semantics& how) noexcept
        : block_size(f.block_size),
          sub_block_size(f.sub_block_size),
          mantissa_bits(f.mantissa_bits),
          least_exponent(0),
          largest_exponent(254),
          largest_shift((1 << f.shift_bits) - 1),
          bump(false),
          rules(rules_of(how, block_specials::block_nan, zero_sign::kept)) {
        rules.least_input = min_normal_bits;
    }

    shared plan(const seen<Arch>& s) const noexcept {
        using V = vi<Arch>;
        const V amax = select(s.finite < V(rules.least_input), V(0), s.finite);
        return {min(max(amax >> 23, V(least_exponent)), V(largest_exponent)), s.all};
    }

    /// Returns the exponent of a sub-block, which is at most `largest_shift` below that of its block.
    shared narrow(const shared& block, const seen<Arch>& s) const noexcept {
        using V = vi<Arch>;
        const V amax = select(s.finite < V(rules.least_input), V(0), s.finite);
        const V shift = min(max(block.exponent - (amax >> 23), V(0)), V(largest_shift));
        return {block.exponent - shift, block.worst};
    }

    vi<Arch> step(const shared& b) const noexcept { return b.exponent + vi<Arch>(step_bias - 126 - mantissa_bits); }

    vi<Arch> round(vi<Arch> bits, const shared& b, vi<Arch> random) const noexcept {
        return round_magnitude<Arch>(ordinary_magnitude<Arch>(bits, rules.least_input), step(b), bits < vi<Arch>(0),
                                     {rules.how, rules.random}, random);
    }

    /// Returns the largest magnitude: 2^m - 1 steps, or 2^m for a negative element in two's complement (unless that is 2^128).
    vi<Arch> limit(const shared& b, mask<Arch> negative) const noexcept {
        using V = vi<Arch>;
        const V highest = limit(b);
        if (!bump) return highest;
        return select(negative & (b.exponent < V(254)), (b.exponent + V(1)) << 23, highest);
    }
    vi<Arch> limit(const shared& b) const noexcept {
        using V = vi<Arch>;
        const V normal = (b.exponent << 23) + V(((1 << (mantissa_bits - 1)) - 1) << (24 - mantissa_bits));
        return select(b.exponent > V(0), normal, V(((1 << mantissa_bits) - 1) << (23 - mantissa_bits)));
    }

    /// Returns 1 where an element rounds past the range of its block and the exponent can be raised, else 0.
    vi<Arch> exceeds(vf<Arch> x, const shared& b, vi<Arch> random) const noexcept {
        using V = vi<Arch>;
        const V bits = as_int<Arch>(x);
        return select((round(bits, b, random) > limit(b, bits < V(0))) & (b.exponent < V(largest_exponent)), V(1), V(0));
    }
    shared raise(const shared& b, vi<Arch> by) const noexcept { return {b.exponent + by, b.worst}; }

    vf<Arch> apply(vf<Arch> x, const shared& b, vi<Arch> random) const noexcept {
        using V = vi<Arch>;
        const V bits = as_int<Arch>(x);
        const V y = min(round(bits, b, random), limit(b, bits < V(0)));
        return finish<Arch>(y, bits, quotient_is_zero<Arch>(ordinary_magnitude<Arch>(bits, rules.least_input), step(b)), b.worst, rules);
    }
};

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

/// The step of NVFP4 and its like: each block has a floating scale, and the tensor a scale above these.
template <class Arch>
struct nvfloat_step {
    static constexpr int sub_block_size = 0;
    static constexpr bool bump = false;
    int block_size;
    floating_rules element, scale;
    float element_max, tensor_scale;
    block_rules rules;

    struct shared {
        vf<Arch> d;  ///< block scale times tensor scale
        vi<Arch> worst;
    };

    nvfloat_step(const nvfloat& f, const semantics& how, float t) noexcept
        : block_size(f.block_size),
          element(rules_apart<Arch>(f.element, how)),
          scale(rules_apart<Arch>(f.scale, semantics{.overflow = overflow_rule::saturate})),
          element_max(static_cast<float>(max_value(f.element))),
          tensor_scale(t),
          rules(rules_of(how, how.mx_specials, has_negative_zero(f.element) ? how.mx_zero : zero_sign::positive)) {
        element.beyond[0] = element.beyond[1] = element.infinity = element.largest;
        element.flush_below = element.least_input = 0;
        if (!has_negative_zero(f.element)) rules.zero_signs = 0;
    }

    /// Returns the scales of blocks, as numbers of their format.
    vf<Arch> block_scale(const seen<Arch>& s) const noexcept {
        using V = vi<Arch>;
        const bool none = tensor_scale == 0;  // in a tensor so small that its scale is 0, everything becomes 0
        const V amax = select(s.finite < V(none ? infinity_bits : rules.least_input), V(0), s.finite);
        const vf<Arch> ratio = quotient<Arch>(quotient<Arch>(as_float<Arch>(amax), vf<Arch>(element_max)), vf<Arch>(tensor_scale));
        return as_float<Arch>(select(amax == V(0), V(0), as_int<Arch>(cast_general<Arch>(ratio, scale, V(0)))));
    }
    shared plan(const seen<Arch>& s) const noexcept { return {block_scale(s) * vf<Arch>(tensor_scale), s.all}; }

    vf<Arch> apply(vf<Arch> x, const shared& b, vi<Arch> random) const noexcept {
        using V = vi<Arch>;
        const V bits = element.nonnegative ? without_negatives<Arch>(as_int<Arch>(x)) : as_int<Arch>(x);
        const V a = ordinary_magnitude<Arch>(bits, rules.least_input);
        const mask<Arch> empty = as_int<Arch>(b.d) == V(0);  // d = 0 gives +0
        const vf<Arch> divisor = as_float<Arch>(select(empty, as_int<Arch>(vf<Arch>(1.0f)), as_int<Arch>(b.d)));
        const vf<Arch> q = quotient<Arch>(as_float<Arch>(a | (bits & V(sign_bit))), divisor);
        const V y = as_int<Arch>(cast_general<Arch>(q, element, random) * b.d) & V(magnitude_bits);
        const mask<Arch> lost = (as_int<Arch>(q) & V(magnitude_bits)) == V(0);
        return finish<Arch>(select(empty, V(0), y), select(empty, special_only(bits), bits), lost, b.worst, rules);
    }

  private:
    /// Keeps special values and returns +0 for the rest.
    static vi<Arch> special_only(vi<Arch> bits) noexcept {
        using V = vi<Arch>;
        return select((bits & V(magnitude_bits)) >= V(infinity_bits), bits, V(0));
    }
};

}  // namespace qk::kernels
