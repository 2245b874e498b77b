// SPDX-License-Identifier: Apache-2.0
// Sixteen-bit floats as storage: tensors may be stored as float, float16 or bfloat16; arithmetic is always float32.
#pragma once

#include "qk/exact/begin.hpp"

#include "qk/inline.hpp"
#include "qk/isa.hpp"

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>

namespace qk {

/// IEEE binary16 and the upper half of binary32, as bits.
struct float16 {
    std::uint16_t bits = 0;
};
struct bfloat16 {
    std::uint16_t bits = 0;
};

template <class T>
concept storage = std::same_as<T, float> || std::same_as<T, float16> || std::same_as<T, bfloat16>;

inline namespace QK_ISA {

/// Converts to float32, exactly; NaN stays NaN.
constexpr float widen(float v) { return v; }
constexpr float widen(bfloat16 v) { return std::bit_cast<float>(std::uint32_t{v.bits} << 16); }
constexpr float widen(float16 v) {
    const std::uint32_t sign = (v.bits & 0x8000u) << 16, magnitude = v.bits & 0x7fffu;
    if (magnitude >= 0x7c00u) return std::bit_cast<float>(sign | 0x7f800000u | (magnitude & 0x3ffu) << 13);
    const std::uint32_t normal = (magnitude << 13) + (112u << 23);
    // A subnormal is an integer times 2^-24, which float32 holds as a normal number.
    const std::uint32_t subnormal = std::bit_cast<std::uint32_t>(static_cast<float>(static_cast<std::int32_t>(magnitude)) * 0x1p-24f);
    return std::bit_cast<float>(sign | (magnitude >= 0x400u ? normal : subnormal));
}

}  // namespace QK_ISA

namespace detail {
inline namespace QK_ISA {

/// Returns |x| (as bits) with its lowest `drop` bits rounded off: to nearest, ties to even.
constexpr std::uint32_t round_off(std::uint32_t a, int drop) {
    const std::uint32_t odd = a >> drop & 1u;
    return (a + ((1u << (drop - 1)) - 1) + odd) >> drop;
}

}  // namespace QK_ISA
}  // namespace detail

inline namespace QK_ISA {

/// Rounds to nearest, ties to even; overflow gives Inf; NaN stays NaN.
template <storage T>
constexpr T narrow(float v);
template <>
constexpr float narrow<float>(float v) {
    return v;
}
template <>
constexpr bfloat16 narrow<bfloat16>(float v) {
    const std::uint32_t u = std::bit_cast<std::uint32_t>(v), a = u & 0x7fffffffu;
    const std::uint32_t rounded = a > 0x7f800000u ? (a >> 16 | 0x40u) : detail::round_off(a, 16);
    return {static_cast<std::uint16_t>((u >> 16 & 0x8000u) | rounded)};
}
template <>
QK_INLINE constexpr float16 narrow<float16>(float v) {
    const std::uint32_t u = std::bit_cast<std::uint32_t>(v), a = u & 0x7fffffffu;
    std::uint32_t h = 0;
    if (a > 0x7f800000u) {
        h = 0x7e00u | (a >> 13 & 0x3ffu);
    } else if (a >= 0x47800000u) {  // 65536 and above; 65520 to 65536 round up to the code of Inf below
        h = 0x7c00u;
    } else if (a >= 0x38800000u) {
        h = detail::round_off(a - (112u << 23), 13);
    } else if (a > 0x33000000u) {  // above half of the smallest subnormal, 2^-25
        const std::uint32_t significand = (a & 0x7fffffu) | 0x800000u;
        h = detail::round_off(significand, 126 - static_cast<int>(a >> 23));
    }
    return {static_cast<std::uint16_t>((u >> 16 & 0x8000u) | h)};
}

}  // namespace QK_ISA

}  // namespace qk

#include "qk/exact/end.hpp"
