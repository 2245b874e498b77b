// SPDX-License-Identifier: Apache-2.0
// Block floating point: one exponent for a block of sign-magnitude integers.
#pragma once

namespace qk {

/// Shared-exponent format. A block of `block_size` values stores its largest exponent once and a sign and `mantissa_bits` of magnitude
/// each.
struct block_float {
    int block_size = 8;
    int exponent_bits = 8;  ///< 2 to 8
    int mantissa_bits = 7;  ///< 1 to 23
    bool bump = false;      ///< raise the exponent when an element of the top binade rounds past the range; elements are two's complement:
                            ///< code -2^mantissa_bits may be used (unless it would be -2^128) and there is no -0
    friend constexpr bool operator==(const block_float&, const block_float&) = default;
};

inline constexpr block_float bfp16{.block_size = 8, .exponent_bits = 8, .mantissa_bits = 7};

constexpr bool has_negative_zero(const block_float& f) { return !f.bump; }

/// Storage per value, in bits, the shared exponent spread over its block.
constexpr double bits_per_value(block_float f) { return 1 + f.mantissa_bits + double(f.exponent_bits) / f.block_size; }

}  // namespace qk
