// SPDX-License-Identifier: Apache-2.0
// Shared microexponents (MX9, MX6, MX4): a block exponent, and one bit of further shift for each pair.
#pragma once

#include "qk/exact/begin.hpp"

#include "qk/formats/floating/format.hpp"
#include "qk/inline.hpp"
#include "qk/isa.hpp"

namespace qk {

/// A block of `block_size` values shares an 8-bit exponent; each sub-block of `sub_block_size` has `shift_bits` of its own.
struct microexponent {
    int block_size = 16;
    int sub_block_size = 2;
    int exponent_bits = 8;
    int shift_bits = 1;
    int mantissa_bits = 7;
    friend QK_INLINE constexpr bool operator==(const microexponent&, const microexponent&) = default;
};

inline constexpr microexponent mx9{.mantissa_bits = 7};
inline constexpr microexponent mx6{.mantissa_bits = 4};
inline constexpr microexponent mx4{.mantissa_bits = 2};

inline namespace QK_ISA {

constexpr double bits_per_value(microexponent f) {
    return 1 + f.mantissa_bits + double(f.shift_bits) / f.sub_block_size + double(f.exponent_bits) / f.block_size;
}

constexpr int block_size(const microexponent& f) { return f.block_size; }

constexpr message check(const microexponent& f) {
    return detail::first_of({detail::in_range("block", f.block_size, 1, detail::largest_block),
                             detail::in_range("sub_block", f.sub_block_size, 1, f.block_size),
                             detail::in_range("exponent", f.exponent_bits, 8, 8), detail::in_range("shift", f.shift_bits, 1, 3),
                             detail::in_range("mantissa", f.mantissa_bits, 1, 15)});
}

/// The step is 2^(E - 127 - D + 1 - m), E from 1 (subnormals become 0) to 254, D up to 2^shift_bits - 1.
constexpr format_facts facts(const microexponent& f) {
    const double largest = (power_of_two(f.mantissa_bits) - 1) * power_of_two(254 - 127 + 1 - f.mantissa_bits);
    const double step = power_of_two(1 - 127 - ((1 << f.shift_bits) - 1) + 1 - f.mantissa_bits);
    return {largest, -largest, step, step, false, true, true};
}

/// Is true when every result of fake_quantize under this semantics has a code.
constexpr bool encodable(const microexponent&, const semantics&) { return true; }

}  // namespace QK_ISA

namespace detail {
inline namespace QK_ISA {

constexpr packing packing_of(const microexponent& f) {
    return {1 + f.mantissa_bits, f.block_size, f.exponent_bits, f.sub_block_size, f.shift_bits};
}

}  // namespace QK_ISA
}  // namespace detail

}  // namespace qk

#include "qk/exact/end.hpp"
