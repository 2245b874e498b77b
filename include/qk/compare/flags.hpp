// SPDX-License-Identifier: Apache-2.0
// Counts the flags of IEEE 754 for a conversion: how often a converter has to overflow, underflow, round, saturate or give NaN.
#pragma once

#include "qk/compare/conversion.hpp"

namespace qk::compare {

/// How many values raise each flag. A value may raise several.
struct flag_counts {
    std::size_t values = 0;
    std::size_t overflow = 0;    ///< the value is finite and beyond the largest number that the format holds with its scale and zero point
    std::size_t saturation = 0;  ///< the value, which may be Inf, is beyond that number, and the result is that number
    std::size_t underflow = 0;   ///< the value is not 0, and the result is inexact and subnormal or 0
    std::size_t inexact = 0;     ///< the value is finite and the result is another number
    std::size_t nan = 0;         ///< the result is NaN
    std::size_t invalid = 0;     ///< the result is NaN and the value was not
};

/// Counts the flags of conversion `c`, whose result for `x` is `y`.
flag_counts count_flags(const conversion& c, std::span<const float> x, std::span<const float> y);

}  // namespace qk::compare
