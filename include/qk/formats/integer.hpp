// SPDX-License-Identifier: Apache-2.0
// Affine integers: y = (clamp(round(x / scale) + zero_point) - zero_point) * scale.
#pragma once

#include <cstdint>

namespace qk {

/// A value of this type names an integer format of 1 to 32 bits.
struct integer {
    int bits = 8;
    bool is_signed = true;
    bool symmetric = false;     ///< zero_point is 0 (2^(bits-1) when unsigned); a rule for choosing scales, codes are unchanged
    bool narrow = false;        ///< the lowest code is not used (int8: -127)
    bool reduce_range = false;  ///< codes of one bit less, stored in `bits` (for products that would saturate 16-bit sums)
    bool pow2 = false;          ///< scales are powers of two; a rule for choosing scales
    friend constexpr bool operator==(const integer&, const integer&) = default;
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

constexpr int bits(integer f) { return f.bits; }
constexpr int used_bits(integer f) { return f.bits - int{f.reduce_range}; }

/// Lowest code.
constexpr std::int64_t qmin(integer f) {
    const std::int64_t lowest = f.is_signed ? -(std::int64_t{1} << (used_bits(f) - 1)) : 0;
    return lowest + int{f.narrow};
}
/// Highest code.
constexpr std::int64_t qmax(integer f) { return (std::int64_t{1} << (used_bits(f) - int{f.is_signed})) - 1; }

}  // namespace qk
