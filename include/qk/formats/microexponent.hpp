// SPDX-License-Identifier: Apache-2.0
// Shared microexponents (MX9, MX6, MX4): a block exponent, and one bit of further shift for each pair.
#pragma once

namespace qk {

/// A block of `block_size` values shares an 8-bit exponent; each sub-block of `sub_block_size` has `shift_bits` of its own.
struct microexponent {
    int block_size = 16;
    int sub_block_size = 2;
    int exponent_bits = 8;
    int shift_bits = 1;
    int mantissa_bits = 7;
    friend constexpr bool operator==(const microexponent&, const microexponent&) = default;
};

inline constexpr microexponent mx9{.mantissa_bits = 7};
inline constexpr microexponent mx6{.mantissa_bits = 4};
inline constexpr microexponent mx4{.mantissa_bits = 2};

constexpr double bits_per_value(microexponent f) {
    return 1 + f.mantissa_bits + double(f.shift_bits) / f.sub_block_size + double(f.exponent_bits) / f.block_size;
}

}  // namespace qk
