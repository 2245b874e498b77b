// SPDX-License-Identifier: Apache-2.0
// The oracle's encode and decode: one code for each element, and the codes that blocks share, each in a word of its own. The codec decides
// how bits are packed; this file says what they mean. docs/reference/numerics.md, "Codes".
#pragma once

#include <cmath>

#include "qk/isa.hpp"
#include "qk/reference.hpp"

namespace qk::reference {
inline namespace QK_ISA {

// Floating: sign (or none), exponent field, mantissa field, from the top. Magnitudes from the top down: NaNs, Inf, numbers.

constexpr std::uint32_t sign_bit(floating f) { return is_signed(f) ? std::uint32_t{1} << (bits(f) - 1) : 0; }
constexpr std::uint32_t all_ones(floating f) { return (std::uint32_t{1} << (f.exponent_bits + f.mantissa_bits)) - 1; }
/// Returns how many of the highest magnitudes are NaN.
constexpr std::uint32_t count_of_high_nans(floating f) {
    if (f.specials.high_nans == high_nans::mantissas) return (std::uint32_t{1} << f.mantissa_bits) - 1;
    return f.specials.high_nans == high_nans::one ? 1 : 0;
}
constexpr std::uint32_t nan_code(floating f) {
    if (f.specials.high_nans == high_nans::mantissas)
        return all_ones(f) ^ ((std::uint32_t{1} << (f.mantissa_bits - 1)) - 1);  // quiet, the rest zero
    if (f.specials.high_nans == high_nans::one) return all_ones(f);
    return f.specials.negative_zero ? 0 : sign_bit(f);
}

/// Returns the code of a value that f represents.
inline std::uint32_t code_of(floating f, float y) {
    if (f == fp32) return std::bit_cast<std::uint32_t>(y);
    if (std::isnan(y)) return reference::nan_code(f);
    const std::uint32_t sign = std::signbit(y) ? sign_bit(f) : 0;
    const std::uint32_t one = std::uint32_t{1} << f.mantissa_bits;
    if (std::isinf(y)) return sign | (all_ones(f) - count_of_high_nans(f));
    if (y == 0) return sign;
    if (f.subnormals && std::fabs(y) < min_normal(f)) return sign | static_cast<std::uint32_t>(std::fabs(y) / min_subnormal(f));
    const int e = exponent_of(y);
    const auto significand = static_cast<std::uint32_t>(std::fabs(y) / power_of_two(e - f.mantissa_bits));  // in [one, 2 one)
    return sign | static_cast<std::uint32_t>(e + f.bias) << f.mantissa_bits | (significand - one);
}

/// Returns the number of a code as a float32: rounded, where the format has more exponents than float32.
inline float value_of(floating f, std::uint32_t code) {
    if (f == fp32) return std::bit_cast<float>(code);
    const std::uint32_t one = std::uint32_t{1} << f.mantissa_bits;
    const std::uint32_t magnitude = code & all_ones(f);
    const double sign = code & sign_bit(f) ? -1 : 1;
    const std::uint32_t mantissa = magnitude & (one - 1);
    const auto field = static_cast<int>(magnitude >> f.mantissa_bits);
    const std::uint32_t highest = all_ones(f) - count_of_high_nans(f);  // of Inf or, without it, of the largest number
    if (magnitude > highest) return quiet_nan;
    if (f.specials.infinity && magnitude == highest) return static_cast<float>(sign * std::numeric_limits<double>::infinity());
    if (magnitude == 0 && sign < 0 && !f.specials.negative_zero) return quiet_nan;
    if (magnitude == 0 && has_zero(f)) return static_cast<float>(sign * 0.0);
    if (field == 0 && f.subnormals) return static_cast<float>(sign * std::ldexp(mantissa, 1 - f.bias - f.mantissa_bits));
    return static_cast<float>(sign * std::ldexp(one + mantissa, field - f.bias - f.mantissa_bits));
}

// Integers of `width` bits: two's complement, or plain when unsigned. Sign and magnitude: the sign above the magnitude.

constexpr std::uint32_t low_bits(std::int64_t n, int width) { return static_cast<std::uint32_t>(n & ((std::int64_t{1} << width) - 1)); }
constexpr std::int64_t sign_extend(std::uint32_t code, int width) {
    const std::int64_t half = std::int64_t{1} << (width - 1);
    return (static_cast<std::int64_t>(code) ^ half) - half;
}
inline std::uint32_t sign_magnitude(double element, bool negative, int magnitude_bits) {
    return std::uint32_t{negative} << magnitude_bits | static_cast<std::uint32_t>(std::fabs(element));
}
inline double from_sign_magnitude(std::uint32_t code, int magnitude_bits) {
    const double magnitude = code & ((std::uint32_t{1} << magnitude_bits) - 1);
    return code >> magnitude_bits ? -magnitude : magnitude;
}

/// Where codes are: an element's at its position, a block's at the block's index, the shifts of a block's sub-blocks side by side.
struct coded {
    std::span<std::uint32_t> elements;
    std::span<std::uint32_t> blocks;
    std::span<std::uint32_t> shifts;
};

constexpr std::size_t sub_blocks(const microexponent& f) {
    return static_cast<std::size_t>((f.block_size + f.sub_block_size - 1) / f.sub_block_size);
}

// Block float.

inline void encode(const block_float& f, const block& b, std::size_t k, float, const coded& out) {
    const block_facts facts = survey(b);
    const bool nan = facts.has_nan || facts.has_infinity;
    const int code = nan ? largest_exponent_code(f) + 1 : exponent_code(f, b);
    out.blocks[k] = static_cast<std::uint32_t>(code);
    for (std::size_t i = 0; i < b.count; ++i) {
        const double element = nan ? 0 : element_of(f, code, b.in(i), *b.how, b.random(i));
        out.elements[b.position(i)] = f.bump ? low_bits(static_cast<std::int64_t>(element), f.mantissa_bits + 1)
                                             : sign_magnitude(element, !nan && std::signbit(b.in(i)), f.mantissa_bits);
    }
}
inline void decode(const block_float& f, const block& b, std::size_t k, float, const coded& in) {
    const auto code = static_cast<int>(in.blocks[k]);
    if (code > largest_exponent_code(f)) return fill_nan(b);
    for (std::size_t i = 0; i < b.count; ++i) {
        const std::uint32_t bits = in.elements[b.position(i)];
        const double element =
            f.bump ? static_cast<double>(sign_extend(bits, f.mantissa_bits + 1)) : from_sign_magnitude(bits, f.mantissa_bits);
        b.out(i, static_cast<float>(element * power_of_two(step_exponent(f, code))));
    }
}

// Shared microexponents.

inline void encode(const microexponent& f, const block& b, std::size_t k, float, const coded& out) {
    const block_facts facts = survey(b);
    const bool nan = facts.has_nan || facts.has_infinity;
    int field = nan ? 255 : 0;
    for (std::size_t i = 0; i < b.count && !nan; ++i) field = std::max(field, exponent_field(b.in(i)));
    out.blocks[k] = static_cast<std::uint32_t>(field);
    for (std::size_t j = 0; j < sub_blocks(f); ++j) {
        const std::size_t start = j * static_cast<std::size_t>(f.sub_block_size);
        std::uint32_t& shift = out.shifts[k * sub_blocks(f) + j];
        shift = 0;
        if (start >= b.count) continue;
        const block pair = b.part(start, static_cast<std::size_t>(f.sub_block_size));
        if (!nan) shift = static_cast<std::uint32_t>(shift_of(f, pair, field));
        for (std::size_t i = 0; i < pair.count; ++i) {
            const double element = nan ? 0 : element_of(f, field, static_cast<int>(shift), pair.in(i), *b.how, pair.random(i));
            out.elements[pair.position(i)] = sign_magnitude(element, !nan && std::signbit(pair.in(i)), f.mantissa_bits);
        }
    }
}
inline void decode(const microexponent& f, const block& b, std::size_t k, float, const coded& in) {
    const auto field = static_cast<int>(in.blocks[k]);
    if (field == 255) return fill_nan(b);
    for (std::size_t i = 0; i < b.count; ++i) {
        const auto shift = static_cast<int>(in.shifts[k * sub_blocks(f) + i / static_cast<std::size_t>(f.sub_block_size)]);
        const double element = from_sign_magnitude(in.elements[b.position(i)], f.mantissa_bits);
        b.out(i, static_cast<float>(element * power_of_two(step_exponent(f, field, shift))));
    }
}

// Microscaling: the scale is e8m0, 0xff marks a block of NaN. Integer elements are two's complement.

inline void encode(const microscaling& f, const block& b, std::size_t k, float, const coded& out) {
    const block_facts facts = survey(b);
    const bool nan = facts.has_nan || facts.has_infinity;
    const int s = nan ? 128 : block_exponent(f, b, facts.amax);
    out.blocks[k] = static_cast<std::uint32_t>(s + 127);
    for (std::size_t i = 0; i < b.count; ++i) {
        const double element = nan ? 0 : element_of(f, b.in(i) / power_of_two(s), *b.how, b.random(i));
        out.elements[b.position(i)] = has_integer_elements(f)
                                          ? low_bits(static_cast<std::int64_t>(element * power_of_two(f.integer_bits - 2)), f.integer_bits)
                                          : reference::code_of(f.element, static_cast<float>(element));
    }
}
inline void decode(const microscaling& f, const block& b, std::size_t k, float, const coded& in) {
    const float scale = reference::value_of(e8m0, in.blocks[k]);
    for (std::size_t i = 0; i < b.count; ++i) {
        const std::uint32_t bits = in.elements[b.position(i)];
        const double element = has_integer_elements(f)
                                   ? static_cast<double>(sign_extend(bits, f.integer_bits)) / power_of_two(f.integer_bits - 2)
                                   : reference::value_of(f.element, bits);
        b.out(i, static_cast<float>(element * scale));
    }
}

// NVFP4: the scale's NaN marks a block of NaN; where scale times tensor scale is 0, so is every element (+0).

inline void encode(const nvfloat& f, const block& b, std::size_t k, float tensor, const coded& out) {
    const block_facts facts = survey(b);
    const bool nan = facts.has_nan || facts.has_infinity;
    const float scale = nan ? quiet_nan : block_scale(f, b, facts.amax, tensor);
    out.blocks[k] = reference::code_of(f.scale, scale);
    const float d = multiply(scale, tensor);
    for (std::size_t i = 0; i < b.count; ++i) {
        const float element = nan || d == 0 ? 0.0f : to_grid(f.element, divide(b.in(i), d), element_semantics(*b.how), b.random(i));
        out.elements[b.position(i)] = reference::code_of(f.element, element);
    }
}
inline void decode(const nvfloat& f, const block& b, std::size_t k, float tensor, const coded& in) {
    const float d = multiply(reference::value_of(f.scale, in.blocks[k]), tensor);
    for (std::size_t i = 0; i < b.count; ++i) b.out(i, multiply(reference::value_of(f.element, in.elements[b.position(i)]), d));
}

/// Encodes x. Elementwise formats have one scale and zero point; block formats have blocks along the axis. NVFP4's tensor scale is
/// scale.scale, which is above 0 or what tensor_scale returns.
inline void encode(const format& f, std::span<const float> x, const coded& out, along_axis axis, affine scale,
                   const semantics& how = semantics::ocp) {
    qk::detail::with_family(f, [&](const auto& g) {
        if constexpr (requires(block b) { reference::encode(g, b, std::size_t{}, 0.0f, out); }) {
            for_each_block(x, {}, resolve(axis, x.size()), static_cast<std::size_t>(g.block_size), how,
                           [&](const block& b, std::size_t k) { reference::encode(g, b, k, scale.scale, out); });
        } else if constexpr (std::is_same_v<decltype(g), const floating&>) {
            for (std::size_t i = 0; i < x.size(); ++i) {
                const float quotient = g == fp32 || scale.scale == 1 ? x[i] : divide(x[i], scale.scale);
                out.elements[i] = reference::code_of(g, quantize(g, quotient, how, random_word(how, i)));
            }
        } else if constexpr (std::is_same_v<decltype(g), const table&>) {
            for (std::size_t i = 0; i < x.size(); ++i) {
                const float quotient = scale.scale == 1 ? x[i] : divide(flush_input(x[i], how), scale.scale);
                out.elements[i] = static_cast<std::uint32_t>(code_of(g, quotient, how, random_word(how, i)));
            }
        } else {
            for (std::size_t i = 0; i < x.size(); ++i) {
                out.elements[i] = low_bits(code_of(g, x[i], scale.scale, scale.zero_point, true, how, random_word(how, i)), g.bits);
            }
        }
    });
}

inline void decode(const format& f, const coded& in, std::span<float> y, along_axis axis, affine scale) {
    qk::detail::with_family(f, [&](const auto& g) {
        if constexpr (requires(block b) { reference::decode(g, b, std::size_t{}, 0.0f, in); }) {
            for_each_block(y, y, resolve(axis, y.size()), static_cast<std::size_t>(g.block_size), semantics::ocp,
                           [&](const block& b, std::size_t k) { reference::decode(g, b, k, scale.scale, in); });
        } else if constexpr (std::is_same_v<decltype(g), const floating&>) {
            for (std::size_t i = 0; i < y.size(); ++i) {
                const float value = reference::value_of(g, in.elements[i]);
                y[i] = g == fp32 || scale.scale == 1 ? value : multiply(value, scale.scale);
            }
        } else if constexpr (std::is_same_v<decltype(g), const table&>) {
            for (std::size_t i = 0; i < y.size(); ++i) {
                const float value = value_of(g, in.elements[i]);
                y[i] = scale.scale == 1 ? value : multiply(value, scale.scale);
            }
        } else {
            for (std::size_t i = 0; i < y.size(); ++i) {
                const std::uint32_t bits = in.elements[i];
                y[i] = value_of(g.is_signed ? sign_extend(bits, g.bits) : std::int64_t{bits}, scale.scale, scale.zero_point);
            }
        }
    });
}

}  // namespace QK_ISA
}  // namespace qk::reference
