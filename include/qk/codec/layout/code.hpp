// SPDX-License-Identifier: Apache-2.0
// Converts one code to its value and back, for the elements of every family. Exact: no rounding happens here.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>

#include "qk/formats/format.hpp"
#include "qk/inline.hpp"

namespace qk {

/// Returns the value of a code of a floating format. Only the lowest bits(f) bits of `code` count.
///
///     sign | exponent field | mantissa        (e8m0: the field alone)
constexpr float value_of(floating f, std::uint32_t code) {
    if (f == fp32) return std::bit_cast<float>(code);
    constexpr float nan = std::numeric_limits<float>::quiet_NaN();
    const int magnitude_bits = f.exponent_bits + f.mantissa_bits;
    const std::uint32_t magnitude = code & ((1u << magnitude_bits) - 1), ones = (1u << magnitude_bits) - 1;
    const std::uint32_t field = magnitude >> f.mantissa_bits, mantissa = magnitude & ((1u << f.mantissa_bits) - 1);
    const bool negative = is_signed(f) && (code >> magnitude_bits & 1u) != 0;
    switch (f.specials) {
        case specials::e8m0: return field == 255 ? nan : static_cast<float>(power_of_two(static_cast<int>(field) - 127));
        case specials::ieee:
            if (field == (1u << f.exponent_bits) - 1) {
                if (mantissa != 0) return negative ? -nan : nan;
                return negative ? -std::numeric_limits<float>::infinity() : std::numeric_limits<float>::infinity();
            }
            break;
        case specials::fn:
            if (magnitude == ones) return negative ? -nan : nan;
            break;
        case specials::fnuz:
            if (negative && magnitude == 0) return nan;
            break;
        case specials::none: break;
    }
    const double value =
        field == 0 ? mantissa * power_of_two(min_exponent(f) - f.mantissa_bits)
                   : (power_of_two(f.mantissa_bits) + mantissa) * power_of_two(static_cast<int>(field) - f.bias - f.mantissa_bits);
    return static_cast<float>(negative ? -value : value);
}

/// Returns the code of the quiet NaN, of either sign where the format has two. The format must have NaN (has_nan).
constexpr std::uint32_t nan_code(floating f, bool negative = false) {
    if (f == fp32) return negative ? 0xffc00000u : 0x7fc00000u;
    const std::uint32_t sign = 1u << (f.exponent_bits + f.mantissa_bits);
    switch (f.specials) {
        case specials::e8m0: return 255;
        case specials::fnuz: return sign;
        case specials::fn: return (sign - 1) | (negative ? sign : 0);
        default: return ((1u << f.exponent_bits) - 1) << f.mantissa_bits | 1u << (f.mantissa_bits - 1) | (negative ? sign : 0);
    }
}

/// Returns the code of a value that the format represents (as fake_quantize returns without a scale); useless for any other value.
QK_INLINE constexpr std::uint32_t code_of(floating f, float value) {
    const std::uint32_t u = std::bit_cast<std::uint32_t>(value);
    if (f == fp32) return u;
    const bool negative = u >> 31 != 0;
    if ((u & 0x7fffffffu) > 0x7f800000u) return nan_code(f, negative);
    const std::uint32_t sign = negative ? 1u << (f.exponent_bits + f.mantissa_bits) : 0;
    if ((u & 0x7fffffffu) == 0x7f800000u) return sign | ((1u << f.exponent_bits) - 1) << f.mantissa_bits;
    if ((u & 0x7fffffffu) == 0) return sign;
    const auto bits64 = std::bit_cast<std::uint64_t>(static_cast<double>(value));
    const int exponent = static_cast<int>(bits64 >> 52 & 0x7ff) - 1023;
    if (f.specials == specials::e8m0) return static_cast<std::uint32_t>(exponent + 127);
    const std::uint64_t significand = (bits64 & 0xfffffffffffffull) | 1ull << 52;
    if (exponent < min_exponent(f))
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

}  // namespace qk
