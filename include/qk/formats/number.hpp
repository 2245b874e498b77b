// SPDX-License-Identifier: Apache-2.0
// What the codes of floating formats mean, exactly and over the whole range of a format.
#pragma once

#include "qk/exact/begin.hpp"

#include <cstdint>

#include "qk/formats/floating.hpp"
#include "qk/inline.hpp"
#include "qk/isa.hpp"

namespace qk {

/// A number as digits * 2^exponent, or one of the values that are no numbers.
struct code_number {
    bool nan = false, infinite = false, negative = false;
    std::uint32_t digits = 0;
    int exponent = 0;
};

inline namespace QK_ISA {

/// Returns what a code of a floating format of up to 32 bits means. Only the lowest bits(f) bits of `code` count.
///
///     sign (or none) | exponent field | mantissa
QK_INLINE constexpr code_number number_of(floating f, std::uint32_t code) {
    const int magnitude_bits = f.exponent_bits + f.mantissa_bits;
    const auto top = static_cast<std::uint32_t>(top_magnitude(f)), infinity = static_cast<std::uint32_t>(infinity_magnitude(f));
    const std::uint32_t magnitude = code & top, one = std::uint32_t{1} << f.mantissa_bits;
    code_number n;
    n.negative = f.is_signed && (code >> magnitude_bits & 1u) != 0;
    if (magnitude > infinity || (n.negative && magnitude == 0 && !f.specials.negative_zero)) {
        n.nan = true;
        return n;
    }
    if (f.specials.infinity && magnitude == infinity) {
        n.infinite = true;
        return n;
    }
    const auto field = static_cast<int>(magnitude >> f.mantissa_bits);
    const bool has_leading_one = field != 0 || (!f.subnormals && (magnitude != 0 || f.mantissa_bits == 0));
    n.digits = has_leading_one ? (magnitude & (one - 1)) | one : magnitude;
    n.exponent = (field != 0 || !f.subnormals ? field : 1) - f.bias - f.mantissa_bits;
    return n;
}

}  // namespace QK_ISA

}  // namespace qk

#include "qk/exact/end.hpp"
