// SPDX-License-Identifier: Apache-2.0
// The fast forms of NVFP4 and its like (steps/fast.hpp says why they are exact).
#pragma once

#include "qk/formats/nvfloat/step.hpp"
#include "qk/isa.hpp"
#include "qk/steps/blocks.hpp"

namespace qk::kernels {
inline namespace QK_ISA {

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

// Where the semantics flushes subnormals: under scales from 2^-100 on, subnormal elements lie below half of a step of 2^-20.

/// The fast form of NVFP4 and its like: divides by the scale of the block, then rounds to the grid of the element. `Product`: the quotient
/// is computed as a product (steps/fast.hpp), which is exact enough for half-even alone.
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
        // Of ties that codes decide, the form of the other roundings knows those of half-even.
        const bool counts_ties = any_rounding && !s.element.nonnegative && !s.element.no_zero && s.element.grid.subnormals &&
                                 s.rules.how == rounding::half_even && is_counted(s.rules.how, s.rules.random);
        plain = (!s.element.general || counts_ties) && !s.scale.grid.needed() && (any_rounding || s.rules.how == rounding::half_even) &&
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

/// The form for any rounding.
template <class Arch>
struct rounded_nvfloat {
    static constexpr bool uses_lowest = false;
    fast_nvfloat<Arch, false> fast;
    int mantissa_bits;
    fast_rounding<Arch> rounds;
    signs_of_zeros<Arch> zeros;
    fast_flush flush;
    bool by_code;  ///< elements have one digit, and ties go to even codes

    explicit rounded_nvfloat(const nvfloat_step<Arch>& s) noexcept
        : fast(s, true),
          mantissa_bits(s.element.mantissa_bits),
          rounds(s.rules.how, s.rules.random),
          zeros(s.rules.zero),
          flush(s.rules.least_input, 0),
          by_code(s.element.grid.by_code) {}

    template <bool = false, bool = false, bool Integers = false>
    QK_INLINE counted<Arch, Integers> count(std::size_t i, vf<Arch> x, const nvfloat_shared<Arch, false>& b) const noexcept {
        using V = vi<Arch>;
        const V q = as_int<Arch>(clamp_magnitude<Arch>(quotient<Arch>(flush.input<Arch>(x), b.scale), fast.largest)), u = as_int<Arch>(x),
                m(mantissa_bits << 23);
        const V c = max(q & V(exponent_mask), fast.least), a = q & V(magnitude_bits);
        const V tied = __builtin_expect(by_code, 0) ? tied_by_code<Arch>(a, c, fast.least) : a;
        const auto k = rounds.template count<Integers>(as_float<Arch>(tied), as_float<Arch>(V(254 << 23) + m - c), u, rounds.words(i));
        V sign = u & as_int<Arch>(b.kept_sign);
        sign = zeros.of(sign, k, [&] { return a == V(0); });
        return {k, c, sign};
    }
    template <bool = false>
    QK_INLINE vf<Arch> value(std::size_t i, vf<Arch> x, const nvfloat_shared<Arch, false>& b) const noexcept {
        const counted<Arch> c = count(i, x, b);
        const vf<Arch> size = as_float<Arch>(c.binade - vi<Arch>(mantissa_bits << 23));
        return as_float<Arch>(as_int<Arch>(opaque<Arch>(c.steps * size) * b.scale) | c.sign);
    }
};

template <class Arch>
fast_nvfloat<Arch> fast_of(const nvfloat_step<Arch>& step) noexcept {
    return fast_nvfloat<Arch>(step);
}
template <class Arch>
rounded_nvfloat<Arch> rounded_of(const nvfloat_step<Arch>& step) noexcept {
    return rounded_nvfloat<Arch>(step);
}

}  // namespace QK_ISA
}  // namespace qk::kernels
