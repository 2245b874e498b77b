// SPDX-License-Identifier: Apache-2.0
// The fast forms of the block steps: half-even by float addition, for blocks whose shared scale follows from amax alone. The sums of
// kernels/steps/fast.hpp take signed values here: they are as exact, and x - x = +0 is the zero of formats without -0.
#pragma once

#include "qk/kernels/steps/blocks.hpp"
#include "qk/kernels/steps/fast.hpp"

namespace qk::kernels {

// What the elements of a block share is a struct for each family, with a block in each lane. `parts` lists its members, so that drivers can
// store and broadcast them without knowing what they mean.

/// Formats whose blocks share what follows from amax alone.
template <class Arch>
struct block_shared {
    vf<Arch> base{};     ///< M, or the least c (kernels/steps/fast.hpp)
    vf<Arch> largest{};  ///< largest magnitude
    static constexpr vf<Arch> block_shared::*parts[] = {&block_shared::base, &block_shared::largest};
};

/// NVFP4 and its like. With `Product` elements are multiplied by 1 / scale = high + low; without it they are divided.
template <class Arch, bool Product>
struct nvfloat_shared {
    vf<Arch> scale, high, low;  // not cleared: g++ clears arrays of these by `rep stos`, which waits for streamed lines
    static constexpr vf<Arch> nvfloat_shared::*parts[] = {&nvfloat_shared::scale, &nvfloat_shared::high, &nvfloat_shared::low};
};
template <class Arch>
struct nvfloat_shared<Arch, false> {
    vf<Arch> scale{};
    vf<Arch> kept_sign{};  ///< the sign bit; nothing in a block of zeros, whose elements become +0
    static constexpr vf<Arch> nvfloat_shared::*parts[] = {&nvfloat_shared::scale, &nvfloat_shared::kept_sign};
};

// Where the semantics flushes subnormals, only blocks are covered whose least step is so large that no result is subnormal and that
// subnormal elements lie below half of it. (nvfloat: under scales from 2^-100 on, subnormal elements lie below half of a step of 2^-20.)

/// The fast form of formats whose blocks share what follows from amax alone. It covers amax from `lowest` to `highest`, and 0.
template <class Arch>
struct fast_block {
    using shared_type = block_shared<Arch>;
    static constexpr bool has_ratio = false;
    std::int32_t lowest = 0, highest = no_value;
    bool grid = false;       ///< small floats: each element has its own step
    int sub_block_size = 0;  ///< 0: none
    int mantissa_bits = 0;
    vi<Arch> add, to_base, to_limit, kept_sign;
    vi<Arch> largest_shift = vi<Arch>(0);
    vi<Arch> lowest_held = vi<Arch>(0);  ///< lower bound for exponents of blocks with sub-blocks
    vi<Arch> scale_from_base;            ///< exponent field of the scale less that of the base
    vf<Arch> magic;

    /// `any_rounding`: for rounded_block, which covers every rounding and sign of zero.
    explicit fast_block(const block_float_step<Arch>& s, bool any_rounding = false) noexcept : mantissa_bits(s.mantissa_bits) {
        const int m = s.mantissa_bits;
        const bool micro = s.sub_block_size > 0;
        if (!ordinary(s.rules, any_rounding) || s.bump || m > 21) return;
        // From this exponent of a block on, elements that are flushed (the microexponents always do that) lie below half a step.
        lowest = std::max(micro || flushes(s.rules) ? m + s.largest_shift + 3 : 1, s.least_exponent) << 23;
        highest = (std::min(s.largest_exponent, 229 + m) << 23) | 0x7fffff;
        sub_block_size = s.sub_block_size;
        largest_shift = vi<Arch>(s.largest_shift << 23);
        add = vi<Arch>(0);
        scale_from_base = vi<Arch>(-23 * (1 << 23));
        to_base = vi<Arch>(((24 - m) << 23) | half_bit);
        to_limit = vi<Arch>(((1 << (m - 1)) - 1) << (24 - m));
    }

    explicit fast_block(const microscaling_step<Arch>& s, bool any_rounding = false) noexcept : mantissa_bits(s.mantissa_bits) {
        if (s.nonnegative || s.element_grid.needed()) return;
        if (!ordinary(s.rules, any_rounding) || (s.largest_negative != s.largest && !any_rounding) || s.mantissa_bits > 20) return;
        const int m = s.mantissa_bits, least = s.least_step + m - step_bias;  // exponent of the smallest normal element
        grid = !s.integers;
        switch (s.rule) {
            case scale_rule::floor: add = vi<Arch>(0); break;
            case scale_rule::ceil: add = vi<Arch>(0x7fffff); break;
            case scale_rule::ceil_7_25:
            case scale_rule::rceil: add = vi<Arch>(0x7fffff - s.rule_fraction); break;
            case scale_rule::four_over_six:
            case scale_rule::search: return;  // they look at a block's values: run_searched
            case scale_rule::even: add = vi<Arch>((1 << 22) >> m); break;
        }
        lowest = (1 + s.top_exponent - (grid ? std::min(least, 0) : 0) + (flushes(s.rules) ? m + 2 : 0)) << 23;
        highest = ((grid ? 229 : 228) + std::min(m, 20)) << 23;
        to_base = vi<Arch>(grid ? (least - s.top_exponent) * (1 << 23) : ((23 - m - s.top_exponent) << 23) | half_bit);
        to_limit = vi<Arch>(s.largest - (127 + s.top_exponent) * (1 << 23));
        magic = as_float<Arch>(vi<Arch>(((150 - m) << 23) | half_bit));
        scale_from_base = vi<Arch>(grid ? -least * (1 << 23) : (m - 23) * (1 << 23));
    }

    bool usable() const noexcept { return highest != no_value; }
    /// Excludes blocks whose steps, or the factors that count in them, are not normal numbers. A format with few exponents may have no
    /// others.
    void raise_lowest() noexcept {
        lowest += (28 + mantissa_bits) << 23;
        lowest_held = vi<Arch>(lowest);
        if (lowest > highest) highest = no_value;
    }

    /// The latency-bound part of share(), started one tile earlier. Unused here.
    QK_INLINE vf<Arch> ratio(vi<Arch>) const noexcept { return vf<Arch>(0.0f); }
    /// Computes what blocks share from the largest magnitude of each. With sub-blocks `base` holds the least exponent that those may have.
    /// Returns false if some block is not covered and needs the general form.
    template <std::size_t Sub>
    QK_INLINE bool share(vi<Arch> amax, vf<Arch>, shared_type& b) const noexcept {
        using V = vi<Arch>;
        const V offset = (amax - V(lowest)) ^ V(sign_bit), room((highest - lowest) ^ sign_bit);  // compared as unsigned
        if (__builtin_expect(any(offset > room), 0)) {
            if (any((offset > room) & (amax != V(0)))) return false;
        }
        if constexpr (Sub != 0) {
            b.base = as_float<Arch>(max(amax & V(exponent_mask), lowest_held) - largest_shift);
        } else {
            const V exponent = max(amax + add, V(lowest)) & V(exponent_mask);  // a block of zeros may have any scale
            b = {as_float<Arch>(exponent + to_base), as_float<Arch>(exponent + to_limit)};
        }
        return true;
    }
    /// Returns what sub-blocks share, from what share() found for their block and from their largest magnitude.
    QK_INLINE shared_type held(const shared_type& block, vi<Arch> largest) const noexcept {
        const vi<Arch> exponent = max(largest & vi<Arch>(exponent_mask), as_int<Arch>(block.base));
        return {as_float<Arch>(exponent + to_base), as_float<Arch>(exponent + to_limit)};
    }

    template <bool Grid>
    QK_INLINE vf<Arch> apply(vf<Arch> x, const shared_type& b) const noexcept {
        const vf<Arch> r = Grid ? to_grid<Arch>(x, as_int<Arch>(b.base), magic) : (x + b.base) - b.base;
        return as_float<Arch>(as_int<Arch>(clamp_magnitude<Arch>(r, b.largest)) | (as_int<Arch>(x) & kept_sign));
    }

  private:
    bool ordinary(const block_rules& r, bool any_rounding) noexcept {
        kept_sign = vi<Arch>(r.zero == zero_sign::kept ? sign_bit : 0);
        if (!is_counted(r.how, r.random)) return false;
        return any_rounding ||
               (r.how == rounding::half_even && !r.random.used && (r.zero == zero_sign::kept || r.zero == zero_sign::positive));
    }
};

/// The fast form of NVFP4 and its like: divides by the scale of the block, then rounds to the grid of the element. `Product`: the quotient
/// is computed as a product (kernels/rounding/quotient.hpp), which is exact enough for half-even alone.
template <class Arch, bool Product = has_fused<Arch>()>
struct fast_nvfloat {
    using shared_type = nvfloat_shared<Arch, Product>;
    static constexpr bool grid = true;
    static constexpr int sub_block_size = 0;
    static constexpr bool has_ratio = true;
    bool plain;
    int tie_bits;
    vi<Arch> least, scale_least;
    vf<Arch> magic, largest, scale_magic, scale_largest, element_max, tensor_scale;

    /// `any_rounding`: for rounded_nvfloat, which covers every rounding and sign of zero.
    explicit fast_nvfloat(const nvfloat_step<Arch>& s, bool any_rounding = false) noexcept
        : tie_bits(s.element.mantissa_bits + 2), element_max(s.element_max), tensor_scale(s.tensor_scale) {
        plain = !s.element.general && !s.scale.grid.needed() && (any_rounding || s.rules.how == rounding::half_even) &&
                (!Product || (tie_bits <= 20 && s.element.least_step > step_bias - 90)) &&
                (!flushes(s.rules) || s.element.least_step > step_bias - 20) && (any_rounding || s.rules.zero == zero_sign::kept) &&
                of(s.element, least, magic, largest) && of(s.scale, scale_least, scale_magic, scale_largest) && !s.scale.powers_of_two;
    }
    bool usable() const noexcept { return plain; }

    /// Returns what share() rounds to the scale of the block.
    QK_INLINE vf<Arch> ratio(vi<Arch> amax) const noexcept {
        return min(quotient<Arch>(quotient<Arch>(as_float<Arch>(amax), element_max), tensor_scale), scale_largest);
    }

    /// Scales from 2^-100 to 2^100 keep every quotient and product that matters a normal number (has_fast_quotient() is stricter). A block
    /// of zeros is covered, and becomes +0.
    template <std::size_t>
    QK_INLINE bool share(vi<Arch> amax, vf<Arch> ratio_of_amax, shared_type& b) const noexcept {
        using V = vi<Arch>;
        const V d = as_int<Arch>(to_grid<Arch>(ratio_of_amax, scale_least, scale_magic) * tensor_scale);
        const mask<Arch> empty = amax == V(0);
        mask<Arch> wide = amax >= V(infinity_bits);
        if constexpr (Product) wide = wide | ~has_fast_quotient<Arch>(d, tie_bits);
        else wide = wide | (d < V(27 << 23)) | (d > V(227 << 23));
        if (__builtin_expect(any(wide & ~empty), 0)) return false;
        b.scale = as_float<Arch>(select(empty, V(0x3f800000), d));
        if constexpr (Product) {
            const two_part_reciprocal<Arch> r = reciprocal_of<Arch>(b.scale);
            b.high = r.high;
            b.low = as_float<Arch>(
                select(empty, as_int<Arch>(vf<Arch>(-1.0f)), as_int<Arch>(r.low)));  // -0 * -1 + -0 is +0, and so is +0 * -1 + +0
        } else {
            b.kept_sign = as_float<Arch>(select(empty, V(0), V(sign_bit)));
        }
        return true;
    }
    /// x over its block's scale; +0 in a block of zeros. Of a product the ties are right, not every bit.
    QK_INLINE vf<Arch> ratio_of(vf<Arch> x, const shared_type& b) const noexcept {
        if constexpr (Product) return fast_quotient<Arch>(x, {b.high, b.low});
        else
            return as_float<Arch>((as_int<Arch>(quotient<Arch>(x, b.scale)) & vi<Arch>(magnitude_bits)) |
                                  (as_int<Arch>(x) & as_int<Arch>(b.kept_sign)));
    }
    template <bool>
    QK_INLINE vf<Arch> apply(vf<Arch> x, const shared_type& b) const noexcept {
        const vf<Arch> q = clamp_magnitude<Arch>(ratio_of(x, b), largest);
        const vf<Arch> y = to_grid<Arch>(q, least, magic) * b.scale;
        return as_float<Arch>(as_int<Arch>(y) | (as_int<Arch>(q) & vi<Arch>(sign_bit)));
    }

  private:
    /// Sets the constants of a cast; returns whether the fast form covers it.
    static bool of(const floating_rules& r, vi<Arch>& least_normal, vf<Arch>& k, vf<Arch>& most) noexcept {
        const int m = r.mantissa_bits, field = r.least_step + m - step_bias + 127;
        least_normal = vi<Arch>(field << 23);
        k = as_float<Arch>(vi<Arch>(((150 - m) << 23) | half_bit));
        most = as_float<Arch>(vi<Arch>(r.largest));
        return field - m >= 1 && m <= 20 && (r.largest >> 23) + 24 - m < 254;
    }
};

/// Is true for forms of blocks that may have sub-blocks.
template <class Form, class Arch>
concept may_have_sub_blocks = requires(const Form& form, const typename Form::shared_type& b) {
    form.held(b, vi<Arch>(0));
};

/// Calls Form::share for blocks that lie in a lane each. `Pairs`: they may have sub-blocks.
template <class Arch, bool Pairs, class Form>
QK_INLINE bool share_in_lanes(const Form& form, vi<Arch> amax, typename Form::shared_type& b) noexcept {
    if constexpr (Pairs) {
        if (form.sub_block_size > 0) return form.template share<1>(amax, form.ratio(amax), b);
    }
    return form.template share<0>(amax, form.ratio(amax), b);
}

/// Returns the fast form of a step: fast_nvfloat for nvfloat, else fast_block.
template <class Arch>
fast_nvfloat<Arch> fast_of(const nvfloat_step<Arch>& step) noexcept {
    return fast_nvfloat<Arch>(step);
}
template <class Arch, class Step>
fast_block<Arch> fast_of(const Step& step) noexcept {
    return fast_block<Arch>(step);
}

}  // namespace qk::kernels
