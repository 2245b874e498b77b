// SPDX-License-Identifier: Apache-2.0
// Block floating point: one exponent for a block of sign-magnitude integers.
#pragma once

#include "qk/exact/begin.hpp"

#include "qk/formats/floating/format.hpp"
#include "qk/inline.hpp"
#include "qk/isa.hpp"

namespace qk {

/// Shared-exponent format. A block of `block_size` values stores its largest exponent once and a sign and `mantissa_bits` of magnitude
/// each.
struct block_float {
    int block_size = 8;
    int exponent_bits = 8;  ///< 2 to 8
    int mantissa_bits = 7;  ///< 1 to 23
    bool bump = false;      ///< raise the exponent when an element of the top binade rounds past the range; elements are two's complement:
                            ///< code -2^mantissa_bits may be used (unless it would be -2^128) and there is no -0
    friend QK_INLINE constexpr bool operator==(const block_float&, const block_float&) = default;
};

inline constexpr block_float bfp16{.block_size = 8, .exponent_bits = 8, .mantissa_bits = 7};

inline namespace QK_ISA {

constexpr bool has_negative_zero(const block_float& f) { return !f.bump; }

/// Storage per value, in bits, the shared exponent spread over its block.
constexpr double bits_per_value(block_float f) { return 1 + f.mantissa_bits + double(f.exponent_bits) / f.block_size; }

constexpr int block_size(const block_float& f) { return f.block_size; }

constexpr message check(const block_float& f) {
    return detail::first_of({detail::in_range("block", f.block_size, 1, detail::largest_block),
                             detail::in_range("exponent", f.exponent_bits, 2, 8), detail::in_range("mantissa", f.mantissa_bits, 1, 23)});
}

/// The shared exponent E, with bias 2^(exponent_bits - 1) - 1, runs from 0 to 2^exponent_bits - 2; a step is 2^(E - bias - (m - 1)).
constexpr format_facts facts(const block_float& f) {
    const int bias = (1 << (f.exponent_bits - 1)) - 1, top = (1 << f.exponent_bits) - 2;
    const double magnitude = power_of_two(f.mantissa_bits) - 1;
    const double largest_step = power_of_two(top - bias - (f.mantissa_bits - 1)),
                 smallest_step = power_of_two(-bias - (f.mantissa_bits - 1));
    return {magnitude * largest_step, -(magnitude + int{f.bump}) * largest_step, smallest_step, smallest_step, false, true, !f.bump};
}

/// Is true when every result of fake_quantize under this semantics has a code.
constexpr bool encodable(const block_float&, const semantics& how) { return how.bfp_specials == block_specials::block_nan; }

}  // namespace QK_ISA

namespace detail {
inline namespace QK_ISA {

constexpr packing packing_of(const block_float& f) { return {1 + f.mantissa_bits, f.block_size, f.exponent_bits}; }

}  // namespace QK_ISA
}  // namespace detail

}  // namespace qk

#include "qk/exact/end.hpp"
