// SPDX-License-Identifier: Apache-2.0
// The short forms of the steps: half-even by float addition, for the values and semantics that allow it. The drivers test a tile
// with one compare and hand everything else to the complete form.
//
// Why they are exact. Let c be the power of two of |x| (or of the smallest normal number, if that is larger) and K = 1.5 * 2^(23 - m).
// c * K has an ulp of c * 2^-m, the step of the grid at x, so the sum c * K + |x| is |x| rounded half-even to that step, and the
// difference is exact. c * K itself is exact, so it does not matter whether a compiler makes one fma of product and sum. Where a block
// has one step, the sum is with M = 1.5 * 2^23 steps. Both hold while the sums are finite, and in the default floating-point environment,
// which the drivers ask for.
#pragma once

#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

#include "qk/kernels/block_steps.hpp"
#include "qk/kernels/integer_step.hpp"

namespace qk::kernels {

/// Round to nearest even, nothing flushed: what the short forms rely on.
template <class Arch>
bool default_environment() noexcept {
#if defined(__SSE2__)
    return (_mm_getcsr() & 0xe040u) == 0;  // rounding control, flush to zero, denormals are zero
#elif defined(__aarch64__)
    std::uint64_t fpcr;
    asm volatile("mrs %0, fpcr" : "=r"(fpcr));
    return (fpcr & 0x03c00000u) == 0;
#else
    return false;
#endif
}

inline constexpr std::int32_t exponent_mask = 0x7f800000;
inline constexpr std::int32_t half_bit = 0x00400000;  ///< with an exponent field: 1.5 times that power of two
inline constexpr std::int32_t no_value = -1;          ///< a limit that no magnitude keeps: the short form does not apply

/// y with the sign of x; a zero keeps it if `NegativeZero`, or becomes +0.
template <bool NegativeZero, class Arch>
vf<Arch> signed_like(vf<Arch> magnitude, vi<Arch> bits) noexcept {
    using V = vi<Arch>;
    const V y = as_int<Arch>(magnitude), sign = bits & V(sign_bit);
    if constexpr (NegativeZero) return as_float<Arch>(y | sign);
    return as_float<Arch>(y | xsimd::select(y > V(0), sign, V(0)));
}

/// |x| rounded to m mantissa bits, no finer than the step at `least`; `magic` is K.
template <class Arch>
vf<Arch> to_grid(vi<Arch> a, vi<Arch> least, vf<Arch> magic) noexcept {
    const vf<Arch> c = as_float<Arch>(xsimd::max(a & vi<Arch>(exponent_mask), least));
    return xsimd::fnma(c, magic, xsimd::fma(c, magic, as_float<Arch>(a)));
}

/// Floating formats. prepare(x) is what is rounded, limit the largest magnitude of it that the short form serves.
template <class Arch, bool NegativeZero>
struct quick_floating {
    std::int32_t limit = no_value;
    int shift = 0;  ///< of formats with float32's exponents: bits that go; 0: round by addition
    vi<Arch> least;
    vf<Arch> magic, largest, scale;
    bool scaled;

    explicit quick_floating(const floating_step<Arch>& step) noexcept : scale(step.scale), scaled(step.scaled) {
        const floating_rules& r = step.rules;
        const int field = r.least_step + r.mantissa_bits - step_bias + 127;  // of the smallest normal number
        if (r.how != rounding::half_even || r.random.used || r.flush_below != 0 || r.least_input != 0 || r.powers_of_two) return;
        if (NegativeZero != (r.zero_signs != 0)) return;
        if (field < 1 || r.mantissa_bits >= 23) return;
        const bool stops = r.infinity == r.largest && r.beyond[0] == r.largest && r.beyond[1] == r.largest;
        if (field == 1 && r.infinity == infinity_bits && r.zero_signs != 0 && r.largest >> 23 == 254) {
            shift = 23 - r.mantissa_bits;
            limit = infinity_bits;
        } else {
            limit = stops ? ((std::min(230 + r.mantissa_bits, 254) << 23) | 0x7fffff) : std::min(r.largest, ((230 + r.mantissa_bits) << 23) | 0x7fffff);
        }
        least = vi<Arch>(field << 23);
        magic = as_float<Arch>(vi<Arch>(((150 - r.mantissa_bits) << 23) | half_bit));
        largest = as_float<Arch>(vi<Arch>(r.largest));
    }

    template <bool Scaled>
    vf<Arch> prepare(vf<Arch> x) const noexcept {
        if constexpr (Scaled) return quotient<Arch>(x, scale);
        return x;
    }
    template <bool Scaled>
    vf<Arch> finish(vf<Arch> x) const noexcept {
        const vi<Arch> bits = as_int<Arch>(x);
        const vf<Arch> r = xsimd::min(to_grid<Arch>(bits & vi<Arch>(magnitude_bits), least, magic), largest);
        const vf<Arch> y = signed_like<NegativeZero, Arch>(r, bits);
        if constexpr (Scaled) return y * scale;
        return y;
    }
};

/// Formats with the exponents of float32: bf16 and its like. Half-even by integer addition; overflow becomes Inf by itself.
template <class Arch>
struct quick_truncation {
    std::int32_t limit;
    int shift;
    vi<Arch> below_half, one, kept;
    vf<Arch> scale;

    explicit quick_truncation(const quick_floating<Arch, true>& q) noexcept
        : limit(q.limit), shift(q.shift), below_half((1 << (q.shift - 1)) - 1), one(1), kept(-(1 << q.shift)), scale(q.scale) {}

    template <bool Scaled>
    vf<Arch> prepare(vf<Arch> x) const noexcept {
        if constexpr (Scaled) return quotient<Arch>(x, scale);
        return x;
    }
    template <bool Scaled>
    vf<Arch> finish(vf<Arch> x) const noexcept {
        const vi<Arch> bits = as_int<Arch>(x);
        const vf<Arch> y = as_float<Arch>((bits + below_half + ((bits >> shift) & one)) & kept);
        if constexpr (Scaled) return y * scale;
        return y;
    }
};

/// Integers of at most 16 bits or so: the clamped quotient rounds by adding 1.5 * 2^23.
template <class Arch>
struct quick_integer {
    std::int32_t limit = no_value;
    vf<Arch> scale, reciprocal, low, high;
    bool multiply = false;

    explicit quick_integer(const integer_step<Arch>& step) noexcept : scale(step.scale), low(step.low), high(step.high) {
        const integer_rules& r = step.rules;
        if (r.how != rounding::half_even || r.random.used || r.flush_below != 0 || r.least_input != 0 || r.zero_before) return;
        if (xsimd::any(xsimd::abs(low) > vf<Arch>(0x1p21f)) || xsimd::any(xsimd::abs(high) > vf<Arch>(0x1p21f))) return;
        multiply = r.multiply;
        reciprocal = quotient<Arch>(vf<Arch>(1.0f), scale);
        // 0 times an infinite reciprocal would be NaN; a subnormal scale makes one.
        if (xsimd::any(as_int<Arch>(scale) < vi<Arch>(min_normal_bits))) return;
        limit = r.infinity == integer_special::highest ? infinity_bits : infinity_bits - 1;
    }

    template <bool>
    vf<Arch> prepare(vf<Arch> x) const noexcept {
        return x;
    }
    template <bool Multiply>
    vf<Arch> finish(vf<Arch> x) const noexcept {
        const vf<Arch> t = Multiply ? rounded<Arch>(x * reciprocal) : quotient<Arch>(x, scale);
        const vf<Arch> middle(0x1.8p23f);
        return ((clamp<Arch>(t, low, high) + middle) - middle) * scale;  // never -0: half-even gives x - x = +0
    }
};

/// What a block of elements shares in the short form.
template <class Arch>
struct quick_shared {
    vf<Arch> base;   ///< M, or the least c
    vf<Arch> limit;  ///< largest magnitude
};

/// Formats whose blocks are described by amax alone. lowest and highest bound the amax that the short form serves (0 is served too).
template <class Arch>
struct quick_block {
    std::int32_t lowest = 0, highest = no_value;
    bool grid = false;        ///< small floats: each element has its own step
    bool sub_blocks = false;
    bool negative_zero = false;
    int sub_block_size = 0;
    vi<Arch> add, to_base, to_limit, largest_shift;
    vf<Arch> magic;

    explicit quick_block(const block_float_step<Arch>& s) noexcept {
        const int m = s.mantissa_bits;
        const bool micro = s.sub_block_size > 0;
        if (!ordinary(s.rules, micro ? min_normal_bits : 0) || s.bump || m > 21) return;
        // Elements that the microexponents flush are below half a step when the block's exponent is at least this.
        lowest = std::max(micro ? m + s.largest_shift + 3 : 1, s.least_exponent) << 23;
        highest = (std::min(s.largest_exponent, 229 + m) << 23) | 0x7fffff;
        sub_blocks = micro;
        sub_block_size = s.sub_block_size;
        largest_shift = vi<Arch>(s.largest_shift << 23);
        add = vi<Arch>(0);
        to_base = vi<Arch>(((24 - m) << 23) | half_bit);
        to_limit = vi<Arch>(((1 << (m - 1)) - 1) << (24 - m));
    }

    explicit quick_block(const microscaling_step<Arch>& s) noexcept {
        if (!ordinary(s.rules, 0) || s.largest_negative != s.largest || s.mantissa_bits > 20) return;
        const int m = s.mantissa_bits, least = s.least_step + m - step_bias;  // exponent of the smallest normal element
        grid = !s.integers;
        switch (s.rule) {
            case scale_rule::floor: add = vi<Arch>(0); break;
            case scale_rule::ceil: add = vi<Arch>(0x7fffff); break;
            case scale_rule::rceil: add = vi<Arch>(0x7fffff - (s.largest & 0x7fffff)); break;
            case scale_rule::even: add = vi<Arch>((1 << 22) >> m); break;
        }
        lowest = std::max(1 + s.top_exponent - (grid ? std::min(least, 0) : 0), 1 + s.top_exponent) << 23;
        highest = ((grid ? 229 : 228) + std::min(m, 20)) << 23;
        to_base = vi<Arch>(grid ? (least - s.top_exponent) * (1 << 23) : ((23 - m - s.top_exponent) << 23) | half_bit);
        to_limit = vi<Arch>(s.largest - (127 + s.top_exponent) * (1 << 23));
        magic = as_float<Arch>(vi<Arch>(((150 - m) << 23) | half_bit));
    }

    bool usable() const noexcept { return highest != no_value; }

    /// Whether some block's amax is outside what the short form serves.
    bool declines(vi<Arch> amax) const noexcept {
        using V = vi<Arch>;
        const V offset = (amax - V(lowest)) ^ V(sign_bit), room((highest - lowest) ^ sign_bit);  // compared as unsigned
        if (__builtin_expect(xsimd::any(offset > room), 0)) return xsimd::any((offset > room) & (amax != V(0)));
        return false;
    }

    /// From the block's amax, and that of the sub-block (the same where there are none).
    quick_shared<Arch> share(vi<Arch> amax, vi<Arch> sub_amax) const noexcept {
        using V = vi<Arch>;
        V exponent = (amax + add) & V(exponent_mask);
        if (sub_blocks) exponent = xsimd::max(sub_amax & V(exponent_mask), exponent - largest_shift);
        // A block of zeros has any positive base and limit.
        return {as_float<Arch>(xsimd::max(exponent + to_base, V(min_normal_bits))), as_float<Arch>(xsimd::max(exponent + to_limit, V(0)))};
    }

    template <bool Grid, bool NegativeZero>
    vf<Arch> apply(vf<Arch> x, const quick_shared<Arch>& b) const noexcept {
        const vi<Arch> bits = as_int<Arch>(x), a = bits & vi<Arch>(magnitude_bits);
        const vf<Arch> r = Grid ? to_grid<Arch>(a, as_int<Arch>(b.base), magic) : (as_float<Arch>(a) + b.base) - b.base;
        return signed_like<NegativeZero, Arch>(xsimd::min(r, b.limit), bits);
    }

private:
    bool ordinary(const block_rules& r, std::int32_t least_input) noexcept {
        negative_zero = r.zero == zero_sign::kept;
        return r.how == rounding::half_even && !r.random.used && r.flush_below == 0 && r.least_input == least_input &&
               (r.zero == zero_sign::kept || r.zero == zero_sign::positive);
    }
};

/// NVFP4 and its like: the quotient by the block's scale is a float32 division, then the grid of the element.
template <class Arch>
struct quick_nvfloat {
    static constexpr bool grid = true, negative_zero = true, sub_blocks = false;
    static constexpr int sub_block_size = 0;
    const nvfloat_step<Arch>* step;
    bool plain;
    vi<Arch> least;
    vf<Arch> magic, largest;

    explicit quick_nvfloat(const nvfloat_step<Arch>& s) noexcept : step(&s) {
        const int m = s.element.mantissa_bits, field = s.element.least_step + m - step_bias + 127;
        plain = s.rules.how == rounding::half_even && s.rules.flush_below == 0 && s.rules.least_input == 0 && s.rules.zero == zero_sign::kept &&
                field - m >= 1 && (s.element.largest >> 23) + 24 - m < 254;
        least = vi<Arch>(field << 23);
        magic = as_float<Arch>(vi<Arch>(((150 - m) << 23) | half_bit));
        largest = as_float<Arch>(vi<Arch>(s.element.largest));
    }
    bool usable() const noexcept { return plain; }

    /// Scales from 2^-100 to 2^100 make every quotient and product that matters a normal number. A block of zeros is fine.
    bool declines(vi<Arch> amax) const noexcept {
        using V = vi<Arch>;
        const V d = as_int<Arch>(step->plan({amax, amax}).d);
        const mask<Arch> wide = (d < V(27 << 23)) | (d > V(227 << 23)) | (amax >= V(infinity_bits));
        return xsimd::any(wide & (amax != V(0)));
    }
    /// base is the scale, limit the bits of the sign that elements keep: a block of zeros is +0.
    quick_shared<Arch> share(vi<Arch> amax, vi<Arch>) const noexcept {
        using V = vi<Arch>;
        const mask<Arch> empty = amax == V(0);
        const V d = as_int<Arch>(step->plan({amax, amax}).d);
        return {as_float<Arch>(xsimd::select(empty, V(0x3f800000), d)), as_float<Arch>(xsimd::select(empty, V(0), V(sign_bit)))};
    }
    template <bool, bool>
    vf<Arch> apply(vf<Arch> x, const quick_shared<Arch>& b) const noexcept {
        const vi<Arch> bits = as_int<Arch>(x);
        const vf<Arch> q = xsimd::min(quotient<Arch>(as_float<Arch>(bits & vi<Arch>(magnitude_bits)), b.base), largest);
        const vf<Arch> y = to_grid<Arch>(as_int<Arch>(q), least, magic) * b.base;
        return as_float<Arch>(as_int<Arch>(y) | (bits & as_int<Arch>(b.limit)));
    }
};

}  // namespace qk::kernels
