// SPDX-License-Identifier: Apache-2.0
// The flags of IEEE 754 for a conversion, counted: how often a converter had to overflow, underflow, round, saturate or give NaN.
#pragma once

#include "qk/compare/conversion.hpp"

namespace qk::compare {

/// Values for which each happened. A value may raise several.
struct flag_counts {
    std::size_t values = 0;
    std::size_t overflow = 0;    ///< finite, and beyond the largest number that the format (its block's scale, its zero point) holds
    std::size_t saturation = 0;  ///< beyond it (Inf too), and held at it
    std::size_t underflow = 0;   ///< not 0, and the result inexact and below the smallest normal number: subnormal or 0
    std::size_t inexact = 0;     ///< finite, and the result another number
    std::size_t nan = 0;         ///< the result is NaN
    std::size_t invalid = 0;     ///< the result is NaN and the value was not
};

/// `y` is what the conversion makes of x.
flag_counts count_flags(const conversion& c, std::span<const float> x, std::span<const float> y);

}  // namespace qk::compare
