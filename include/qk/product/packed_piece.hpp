// SPDX-License-Identifier: Apache-2.0
// What the forms that decode in registers are given.
#pragma once

#include <algorithm>
#include <cstddef>

#include "qk/inline.hpp"

namespace qk::detail {

inline constexpr std::size_t rows_at_once = 4;    ///< in the forms that decode in registers
inline constexpr std::size_t codes_ahead = 1024;  ///< bytes of a row that are fetched before they are read

/// Fetches what is read later.
QK_INLINE void fetch(const void* at) noexcept {
#if defined(__GNUC__)
    __builtin_prefetch(at);
#endif
}

/// A piece of a row as the forms in registers take it. `factor` and `zero` (or null) have an entry for each group of 32 weights, or two.
struct packed_piece {
    const std::byte* codes;
    const float* factor;
    const float* zero;
    const std::byte* scale;  ///< or the codes of the groups' scales, one byte each
};
/// Pieces of neighbouring rows, and what they are multiplied with.
struct piece_of_rows {
    const packed_piece* piece;  ///< as many as rows_at_once; where `rows` are fewer, the last one again
    std::size_t rows;
    std::size_t groups;   ///< of 32 weights
    std::size_t factors;  ///< 1 or 2 a group
    bool zeros;
    const float* x;
    float* sum;
    std::size_t sum_stride;
    std::size_t next;  ///< so many bytes behind a row's codes are those that are read next at this place
};

/// Calls call(g, ahead) for each g of n, `bytes` of each row's codes. What lies `ahead` bytes behind them is read soon, in the same row or
/// the next one at its place: several rows at once are more streams, with ends, than a processor follows by itself.
template <class Call>
QK_INLINE void fetching(const piece_of_rows& p, std::size_t n, std::size_t bytes, const Call& call) noexcept {
    const std::size_t near = std::min(n, codes_ahead / bytes), first = n - near;
    std::size_t g = 0;
    for (std::size_t end = first, ahead = near * bytes;; end = n, ahead = p.next - first * bytes) {
        for (; g < end; ++g) call(g, ahead);
        if (g == n) return;
    }
}

}  // namespace qk::detail
