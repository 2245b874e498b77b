// SPDX-License-Identifier: Apache-2.0
// How a value between two codes chooses one.
#pragma once

#include <cstdint>

namespace qk {

enum class rounding : std::uint8_t {
    half_even,    ///< nearest, ties to the even code (IEEE roundTiesToEven)
    half_away,    ///< nearest, ties away from zero
    half_up,      ///< nearest, ties toward +infinity
    toward_zero,  ///< truncate
    up,           ///< toward +infinity
    down,         ///< toward -infinity
    stochastic,   ///< up with the probability of the remainder; random bits from (seed, element index)
};

}  // namespace qk
