// SPDX-License-Identifier: Apache-2.0
// What the forms that decode in registers are given.
#pragma once

#include <cstddef>

#include "qk/inline.hpp"

namespace qk::detail {

/// Fetches codes of later rows: several rows at once are more streams than a processor follows by itself.
QK_INLINE void fetch_ahead(const std::byte* codes) noexcept {
#if defined(__GNUC__)
    __builtin_prefetch(codes + 4096);
#endif
}

/// A piece of a row as the forms in registers take it. `factor` and `zero` (or null) have an entry for each group of 32 weights, or two.
struct packed_piece {
    const std::byte* codes = nullptr;
    const float* factor = nullptr;
    const float* zero = nullptr;
    const std::byte* scale = nullptr;  ///< or the codes of the groups' scales, one byte each
};
/// Pieces of neighbouring rows, and what they are multiplied with.
struct piece_of_rows {
    const packed_piece* piece;  ///< where `rows` is odd, the last one twice
    std::size_t rows;
    std::size_t groups;   ///< of 32 weights
    std::size_t factors;  ///< 1 or 2 a group
    bool zeros;
    const float* x;
    float* sum;
    std::size_t sum_stride;
};

}  // namespace qk::detail
