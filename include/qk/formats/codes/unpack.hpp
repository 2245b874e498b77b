// SPDX-License-Identifier: Apache-2.0
// Turns runs of codes into values: the loops of `decode`. They are plain loops over small arrays, so that compilers vectorize them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "qk/formats/codes/code.hpp"
#include "qk/isa.hpp"
#include "qk/memory/bits.hpp"
#include "qk/storage.hpp"

namespace qk::detail {
inline namespace QK_ISA {

QK_INLINE constexpr float as_float(std::uint32_t u) { return std::bit_cast<float>(u); }
QK_INLINE constexpr std::uint32_t as_bits(float v) { return std::bit_cast<std::uint32_t>(v); }

/// Returns 2^e for -149 <= e <= 127, made from integers, so that no flush mode of the processor changes it.
QK_INLINE constexpr float exact_power(int e) { return as_float(e >= -126 ? static_cast<std::uint32_t>(e + 127) << 23 : 1u << (e + 149)); }

/// Is true for formats whose codes, shifted, are their normal values, and whose subnormal values are whole numbers of a normal float32.
QK_INLINE constexpr bool has_values_by_shift(floating f) {
    return f != fp32 && f.subnormals && !exceeds_float32(f) && min_exponent(f) - f.mantissa_bits >= -126;
}

/// Is true where Inf is one magnitude, and not the first of several that are no numbers.
QK_INLINE constexpr bool has_lone_infinity(floating f) { return has_infinity(f) && f.specials.high_nans != high_nans::mantissas; }

/// Computes value_of for n codes of a floating format. Every finite value is exact.
template <class Arch>
QK_APART void to_floats(floating f, const std::uint32_t* code, float* out, std::size_t n) {
    const int m = f.mantissa_bits, magnitude_bits = f.exponent_bits + m;
    if (f == fp32) {
        for (std::size_t i = 0; i < n; ++i) out[i] = as_float(code[i]);
    } else if (f == e8m0) {
        for (std::size_t i = 0; i < n; ++i) out[i] = as_float(code[i] == 255 ? 0x7fc00000u : code[i] == 0 ? 0x400000u : code[i] << 23);
    } else if (f == bf16) {
        for (std::size_t i = 0; i < n; ++i) out[i] = as_float(code[i] << 16);
    } else if (!has_values_by_shift(f)) {
        for (std::size_t i = 0; i < n; ++i) out[i] = value_of(f, code[i]);
    } else {
        const std::uint32_t magnitude_mask = low_bits(magnitude_bits), first_normal = 1u << m;
        const std::uint32_t rebias = static_cast<std::uint32_t>(127 - f.bias) << 23;
        const float step = exact_power(min_exponent(f) - m);
        // The least magnitude that is Inf or NaN; beyond all codes where the format has neither.
        const auto special = static_cast<std::uint32_t>(largest_magnitude(f) + 1);
        const std::uint32_t special_bits = f.specials.high_nans == high_nans::mantissas ? 0x7f800000u : 0x7fc00000u;
        const std::uint32_t lone_infinity = has_lone_infinity(f) ? special : 0xffffffffu;
        const std::uint32_t lone_nan = is_signed(f) && !has_negative_zero(f) ? 1u << magnitude_bits : 0xffffffffu;
        for (std::size_t i = 0; i < n; ++i) {
            const std::uint32_t magnitude = code[i] & magnitude_mask;
            const std::uint32_t sign = (code[i] >> magnitude_bits & 1u) << 31;  // 0 in formats without one
            const std::uint32_t normal = (magnitude << (23 - m)) + rebias;
            // Masks instead of conditional expressions, whose conversion the compiler would move into a branch: the loop would stay scalar.
            const std::uint32_t low = magnitude & (0u - std::uint32_t{magnitude < first_normal});
            const std::uint32_t subnormal = as_bits(static_cast<float>(static_cast<std::int32_t>(low)) * step);
            const std::uint32_t infinite = 0u - std::uint32_t{magnitude == lone_infinity};
            const std::uint32_t large = ((normal | (special_bits & (0u - std::uint32_t{magnitude >= special}))) &
                                         (0u - std::uint32_t{magnitude >= first_normal}) & ~infinite) |
                                        (0x7f800000u & infinite);
            const std::uint32_t u = subnormal | large | sign, nan = 0u - std::uint32_t{code[i] == lone_nan};
            out[i] = as_float((u & ~nan) | (0x7fc00000u & nan));
        }
    }
}

/// Decodes sign and magnitude (block float and microexponents). -0 has a code.
template <class Arch>
QK_APART void to_sign_magnitude(int mantissa_bits, const std::uint32_t* code, float* out, std::size_t n) {
    const std::uint32_t magnitude_mask = low_bits(mantissa_bits);
    for (std::size_t i = 0; i < n; ++i) {
        const auto magnitude = static_cast<std::int32_t>(code[i] & magnitude_mask);
        out[i] = as_float(as_bits(static_cast<float>(magnitude)) | (code[i] >> mantissa_bits & 1u) << 31);
    }
}

/// Decodes two's complement of up to 24 bits and multiplies by a power of two.
template <class Arch>
QK_APART void to_twos_complement(int width, float unit, const std::uint32_t* code, float* out, std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) {
        out[i] = static_cast<float>(static_cast<std::int32_t>(code[i] << (32 - width)) >> (32 - width)) * unit;
    }
}

}  // namespace QK_ISA
}  // namespace qk::detail
