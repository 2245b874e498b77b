// SPDX-License-Identifier: Apache-2.0
// Affine integers: y = (clamp(round(x / scale) + zero_point) - zero_point) * scale.
#pragma once

#include <cstdint>

#include "qk/formats/family.hpp"
#include "qk/inline.hpp"
#include "qk/isa.hpp"

namespace qk {

/// A value of this type names an integer format of 1 to 32 bits.
struct integer {
    int bits = 8;
    bool is_signed = true;
    bool symmetric = false;     ///< zero_point is 0 (2^(bits-1) when unsigned); a rule for choosing scales, codes are unchanged
    bool narrow = false;        ///< the lowest code is not used (int8: -127)
    bool reduce_range = false;  ///< codes of one bit less, stored in `bits` (for products that would saturate 16-bit sums)
    bool pow2 = false;          ///< scales are powers of two; a rule for choosing scales
    friend QK_INLINE constexpr bool operator==(const integer&, const integer&) = default;
};

inline constexpr integer int2{.bits = 2};
inline constexpr integer int4{.bits = 4};
inline constexpr integer int8{.bits = 8};
inline constexpr integer int16{.bits = 16};
inline constexpr integer int32{.bits = 32};
inline constexpr integer uint2{.bits = 2, .is_signed = false};
inline constexpr integer uint4{.bits = 4, .is_signed = false};
inline constexpr integer uint8{.bits = 8, .is_signed = false};
inline constexpr integer uint16{.bits = 16, .is_signed = false};
inline constexpr integer uint32{.bits = 32, .is_signed = false};

inline namespace QK_ISA {

constexpr int bits(integer f) { return f.bits; }
constexpr int used_bits(integer f) { return f.bits - int{f.reduce_range}; }

/// Lowest code.
constexpr std::int64_t qmin(integer f) {
    const std::int64_t lowest = f.is_signed ? -(std::int64_t{1} << (used_bits(f) - 1)) : 0;
    return lowest + int{f.narrow};
}
/// Highest code.
constexpr std::int64_t qmax(integer f) { return (std::int64_t{1} << (used_bits(f) - int{f.is_signed})) - 1; }

constexpr double bits_per_value(integer f) { return f.bits; }
constexpr int block_size(integer) { return 0; }

constexpr message check(integer f) {
    const message widths = detail::in_range("bits", f.bits, 1, 32);
    if (!widths.empty()) return widths;
    if (used_bits(f) < (f.is_signed ? 2 : 1) || qmin(f) >= qmax(f))
        return message("an integer of ").append(f.bits).append(" bits with these modifiers has fewer than two codes; use more bits");
    return {};
}

/// A zero point must be a code of the format.
constexpr message check_zero_point(integer f, std::int64_t zero_point) {
    return detail::in_range("the zero point", zero_point, qmin(f), qmax(f));
}

constexpr format_facts facts(integer f) { return {static_cast<double>(qmax(f)), static_cast<double>(qmin(f)), 1, 1, false, false, false}; }

/// Is true when every result of fake_quantize under this semantics has a code.
constexpr bool encodable(integer, const semantics&) { return true; }

}  // namespace QK_ISA

namespace detail {
inline namespace QK_ISA {

constexpr packing packing_of(integer f) { return {.element_width = f.bits}; }

}  // namespace QK_ISA
}  // namespace detail

}  // namespace qk
