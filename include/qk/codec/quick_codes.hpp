// SPDX-License-Identifier: Apache-2.0
// Codes straight from the sums of the short forms (kernels/quick_steps.hpp): of the elementwise formats, a vector at a time.
//
// A sum's bits are those of c * K plus the rounded element counted in steps of its binade, so the code of a float is that count, plus
// 2^m for each binade above the lowest: the mantissa's carry into the exponent comes by itself. What the short forms decline goes
// through encode_elements' tiles.
#pragma once

#include "qk/codec/bits.hpp"
#include "qk/codec/code.hpp"
#include "qk/kernels/quick_steps.hpp"

namespace qk::detail {

/// Signs where the code has them: bit width - 1.
template <class Arch>
kernels::vi<Arch> with_sign(kernels::vi<Arch> code, kernels::vi<Arch> bits, int width) noexcept {
    using V = kernels::vi<Arch>;
    return code | (kernels::as_int<Arch>(kernels::as_unsigned<Arch>(bits) >> (32 - width)) & V(1 << (width - 1)));
}

/// Codes of small floats from the signless sum: t = |x| + c * K.
template <class Arch>
struct grid_codes {
    int shift, width;
    kernels::vi<Arch> offset, highest;
    bool lone_zero;  ///< no -0

    explicit grid_codes(floating f) noexcept
        : shift(23 - f.mantissa_bits), width(bits(f)),
          offset(((23 - f.mantissa_bits) << 23) | kernels::half_bit), highest(static_cast<std::int32_t>(code_of(f, static_cast<float>(max_value(f))))),
          lone_zero(!has_negative_zero(f)) {}

    /// `least` is the c of the lowest binade.
    kernels::vi<Arch> operator()(kernels::vf<Arch> x, kernels::vi<Arch> least, kernels::vf<Arch> magic) const noexcept {
        using V = kernels::vi<Arch>;
        const V u = kernels::as_int<Arch>(x), a = u & V(kernels::magnitude_bits);
        const V c = xsimd::max(u & V(kernels::exponent_mask), least);
        const V sum = kernels::as_int<Arch>(xsimd::fma(kernels::as_float<Arch>(c), magic, kernels::as_float<Arch>(a)));
        const V code = xsimd::min((sum - c - offset) + ((c - least) >> shift), highest);
        if (lone_zero) return xsimd::select(code > V(0), with_sign<Arch>(code, u, width), code);
        return with_sign<Arch>(code, u, width);
    }
};

/// Elementwise coders: prepare() is what the tile test looks at, code() what is stored.
template <class Arch>
struct floating_coder {
    kernels::quick_floating<Arch> quick;
    grid_codes<Arch> grid;
    bool scaled;

    floating_coder(floating f, const semantics& how, float scale) noexcept
        : quick(kernels::rules_of(f, how)), grid(f), scaled(scale != 1.0f) {
        quick.scale = kernels::vf<Arch>(scale);
        if (how.rounding == rounding::half_even) return;
        quick.limit = kernels::no_value;
        quick.shift = 0;
    }
    bool usable() const noexcept { return quick.limit != kernels::no_value && grid.width <= 16; }
    std::int32_t limit() const noexcept { return quick.limit; }
    kernels::vf<Arch> prepare(kernels::vf<Arch> x) const noexcept { return scaled ? kernels::quotient<Arch>(x, quick.scale) : x; }
    kernels::vi<Arch> code(kernels::vf<Arch> x) const noexcept { return grid(x, quick.least, quick.magic); }
};

/// Formats with the exponents of float32.
template <class Arch>
struct truncated_coder {
    kernels::quick_truncation<Arch> quick;
    bool scaled;

    explicit truncated_coder(const floating_coder<Arch>& c) noexcept : quick(c.quick), scaled(c.scaled) {}
    bool usable() const noexcept { return true; }
    std::int32_t limit() const noexcept { return quick.limit; }
    kernels::vf<Arch> prepare(kernels::vf<Arch> x) const noexcept { return scaled ? kernels::quotient<Arch>(x, quick.scale) : x; }
    kernels::vi<Arch> code(kernels::vf<Arch> x) const noexcept {
        const kernels::vi<Arch> u = kernels::as_int<Arch>(x);
        return kernels::as_int<Arch>(kernels::as_unsigned<Arch>(u + quick.below_half + ((u >> quick.shift) & quick.one)) >> quick.shift);
    }
};

template <class Arch>
struct integer_coder {
    kernels::quick_integer<Arch> quick;
    kernels::vi<Arch> offset, mask;
    bool set;

    integer_coder(integer f, const semantics& how, bool one_scale, float scale, std::int64_t zero) noexcept
        : quick(kernels::rules_of(f, how, one_scale)),
          offset(static_cast<std::int32_t>(zero) - std::bit_cast<std::int32_t>(kernels::quick_integer<Arch>::middle)),
          mask(static_cast<std::int32_t>(low_bits(f.bits))),
          set(how.rounding == rounding::half_even && f.bits <= 16 && quick.set(scale, static_cast<float>(qmin(f) - zero), static_cast<float>(qmax(f) - zero))) {}
    bool usable() const noexcept { return set; }
    std::int32_t limit() const noexcept { return quick.limit; }
    kernels::vf<Arch> prepare(kernels::vf<Arch> x) const noexcept { return x; }
    kernels::vi<Arch> code(kernels::vf<Arch> x) const noexcept {
        return ((quick.multiply ? quick.template sum<true>(x) : quick.template sum<false>(x)) + offset) & mask;
    }
};

/// n values from `first` of the plane on, which is a whole byte there; complete(begin, count) does what the coder declines, and the end.
template <class Arch, class Code, class Coder, class Complete>
void encode_row(const Coder& given, const float* x, std::size_t n, std::byte* out, int width, const Complete& complete) noexcept {
    constexpr std::size_t w = kernels::lanes<Arch>, count = 4 * w;
    using V = kernels::vi<Arch>;
    const Coder coder = given;
    const V limit(coder.limit()), magnitude(kernels::magnitude_bits);
    std::size_t i = 0;
    for (; i + count <= n; i += count) {
        kernels::vf<Arch> v[4];
        V most(0);
        for (std::size_t k = 0; k < 4; ++k) {
            v[k] = coder.prepare(kernels::rounded<Arch>(kernels::load<Arch>(x + i + k * w)));
            most = xsimd::max(most, kernels::as_int<Arch>(v[k]) & magnitude);
        }
        if (__builtin_expect(xsimd::any(most > limit), 0)) {
            complete(i, count);
            continue;
        }
        if (width == 8 * static_cast<int>(sizeof(Code))) {
            Code* to = reinterpret_cast<Code*>(out) + i;
            for (std::size_t k = 0; k < 4; ++k) kernels::store_codes<Arch>(to + k * w, coder.code(v[k]));
            continue;
        }
        Code codes[count];
        for (std::size_t k = 0; k < 4; ++k) kernels::store_codes<Arch>(codes + k * w, coder.code(v[k]));
        if constexpr (sizeof(Code) == 1) {
            with_width(width, [&](auto each) { join_codes<decltype(each)::value>(codes, count, out + i * static_cast<std::size_t>(width) / 8); });
        }
    }
    if (i < n) complete(i, n - i);
}

/// Whether the coder served a run that starts at value `first` of the plane.
template <class Arch, class Coder, class Complete>
bool encode_quickly(const Coder& coder, const float* x, std::size_t first, std::size_t n, std::span<std::byte> plane, int width,
                    const Complete& complete) noexcept {
    const std::size_t bit = first * static_cast<std::size_t>(width);
    if (!coder.usable() || bit % 8 != 0 || n < 4 * kernels::lanes<Arch> || !kernels::default_environment<Arch>()) return false;
    if (width == 16)
        encode_row<Arch, std::uint16_t>(coder, x, n, plane.data() + bit / 8, width, complete);
    else if (width <= 8)
        encode_row<Arch, std::uint8_t>(coder, x, n, plane.data() + bit / 8, width, complete);
    else
        return false;
    return true;
}

}  // namespace qk::detail
