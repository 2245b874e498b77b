// SPDX-License-Identifier: Apache-2.0
// Converts one code to its value and back, for the elements of every family. Exact: no rounding happens here.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>

#include "qk/formats/format.hpp"
#include "qk/formats/number.hpp"
#include "qk/inline.hpp"
#include "qk/isa.hpp"

namespace qk {

inline namespace QK_ISA {

/// Returns the value of a code of a floating format. Only the lowest bits(f) bits of `code` count. (Of a format with more exponents than
/// float32, numbers beyond float32 become Inf and those below it are rounded.)
QK_INLINE constexpr float value_of(floating f, std::uint32_t code) {
    if (f == fp32) return std::bit_cast<float>(code);
    constexpr float nan = std::numeric_limits<float>::quiet_NaN(), infinity = std::numeric_limits<float>::infinity();
    const code_number n = number_of(f, code);
    const bool lone = f.is_signed && !f.specials.negative_zero && (code & top_magnitude(f)) == 0;
    if (n.nan) return n.negative && !lone ? -nan : nan;
    if (n.infinite || (n.digits != 0 && n.exponent > 127)) return n.negative ? -infinity : infinity;
    const double value = n.digits == 0 || n.exponent < -400 ? 0.0 : n.digits * power_of_two(n.exponent);
    return value > 0x1.fffffep127 ? (n.negative ? -infinity : infinity) : static_cast<float>(n.negative ? -value : value);
}

/// Returns the code of the quiet NaN, of either sign where the format has two. The format must have NaN (has_nan).
constexpr std::uint32_t nan_code(floating f, bool negative = false) {
    if (f == fp32) return negative ? 0xffc00000u : 0x7fc00000u;
    const std::uint32_t top = static_cast<std::uint32_t>(top_magnitude(f)), sign = f.is_signed && negative ? top + 1 : 0;
    switch (f.specials.high_nans) {
        case high_nans::none: break;
        case high_nans::one: return top | sign;
        case high_nans::mantissas: return (top ^ ((1u << f.mantissa_bits) - 1)) | 1u << (f.mantissa_bits - 1) | sign;
    }
    return top + 1;
}

/// Returns the code of a value that the format represents (as fake_quantize returns without a scale); useless for any other value.
QK_INLINE constexpr std::uint32_t code_of(floating f, float value) {
    const std::uint32_t u = std::bit_cast<std::uint32_t>(value);
    if (f == fp32) return u;
    const bool negative = u >> 31 != 0;
    if ((u & 0x7fffffffu) > 0x7f800000u) return nan_code(f, negative);
    const std::uint32_t sign = negative && f.is_signed ? 1u << (f.exponent_bits + f.mantissa_bits) : 0;
    if ((u & 0x7fffffffu) == 0x7f800000u) return sign | static_cast<std::uint32_t>(infinity_magnitude(f));
    if ((u & 0x7fffffffu) == 0) return sign;
    const auto bits64 = std::bit_cast<std::uint64_t>(static_cast<double>(value));
    const int exponent = static_cast<int>(bits64 >> 52 & 0x7ff) - 1023;
    const std::uint64_t significand = (bits64 & 0xfffffffffffffull) | 1ull << 52;
    if (f.subnormals && exponent < min_exponent(f))
        return sign | static_cast<std::uint32_t>(significand >> (52 + min_exponent(f) - f.mantissa_bits - exponent));
    const auto mantissa = static_cast<std::uint32_t>(significand >> (52 - f.mantissa_bits)) & ((1u << f.mantissa_bits) - 1);
    return sign | static_cast<std::uint32_t>(exponent + f.bias) << f.mantissa_bits | mantissa;
}

/// Integer codes are stored in two's complement of f.bits bits.
constexpr std::int64_t value_of(integer f, std::uint32_t code) {
    const std::uint32_t masked = f.bits == 32 ? code : code & ((1u << f.bits) - 1);
    if (!f.is_signed || (masked >> (f.bits - 1) & 1u) == 0) return masked;
    return static_cast<std::int64_t>(masked) - (std::int64_t{1} << f.bits);
}
constexpr std::uint32_t code_of(integer f, std::int64_t q) {
    const auto u = static_cast<std::uint32_t>(q);
    return f.bits == 32 ? u : u & ((1u << f.bits) - 1);
}

}  // namespace QK_ISA

}  // namespace qk
