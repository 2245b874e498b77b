// SPDX-License-Identifier: Apache-2.0
// The step of block float, and of microexponents: general form, and the constants of its fast form (steps/blocks.hpp).
#pragma once

#include <algorithm>

#include "qk/formats/block_float/format.hpp"
#include "qk/isa.hpp"
#include "qk/steps/blocks.hpp"

namespace qk::kernels {
inline namespace QK_ISA {

constexpr block_shape shape_of(const block_float& f) { return {f.block_size, element_step::block}; }

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
    /// For families that differ in these facts alone.
    block_float_step(int block, int sub_block, int mantissa, int largest_field, int shift, const block_rules& r) noexcept
        : block_size(block),
          sub_block_size(sub_block),
          mantissa_bits(mantissa),
          least_exponent(0),
          largest_exponent(largest_field),
          largest_shift(shift),
          bump(false),
          rules(r) {}

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

template <class Arch>
block_float_step<Arch> step_of(const block_float& f, const semantics& how, float) noexcept {
    return {f, how};
}

/// Returns the fast form; `any_rounding`: for rounded_block.
template <class Arch>
fast_block<Arch> fast_block_of(const block_float_step<Arch>& s, bool any_rounding) noexcept {
    const int m = s.mantissa_bits;
    const bool micro = s.sub_block_size > 0;
    fast_block<Arch> q(m);
    if (!q.covers(s.rules, any_rounding) || s.bump || m > 21) return q;
    // From this exponent of a block on, elements that are flushed (the microexponents always do that) lie below half a step.
    q.lowest = std::max(micro || flushes(s.rules) ? m + s.largest_shift + 3 : 1, s.least_exponent) << 23;
    q.highest = (std::min(s.largest_exponent, 229 + m) << 23) | 0x7fffff;
    q.sub_block_size = s.sub_block_size;
    q.largest_shift = vi<Arch>(s.largest_shift << 23);
    q.add = vi<Arch>(0);
    q.scale_from_base = vi<Arch>(-23 * (1 << 23));
    q.to_base = vi<Arch>(((24 - m) << 23) | half_bit);
    q.to_limit = vi<Arch>(((1 << (m - 1)) - 1) << (24 - m));
    return q;
}

}  // namespace QK_ISA
}  // namespace qk::kernels
