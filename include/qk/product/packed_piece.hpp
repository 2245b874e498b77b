// SPDX-License-Identifier: Apache-2.0
// What the forms that decode in registers are given.
#pragma once

#include <cstddef>
#include <type_traits>

#include "qk/inline.hpp"
#include "qk/isa.hpp"

namespace qk::detail {
inline namespace QK_ISA {

inline constexpr std::size_t rows_at_once = 4;  ///< in the forms that decode in registers

/// Fetches what is read later into the second-level cache: the first one has few lines under way at a time, which held four rows at two
/// thirds of what memory gives.
QK_INLINE void fetch(const void* at) noexcept {
#if defined(__GNUC__)
    __builtin_prefetch(at, 0, 2);
#endif
}

inline constexpr std::size_t entries_of_one = 4;  ///< so many does a form read at once

/// A piece of a row as the forms in registers take it. `factor` and `zero` (or null) have an entry for each group of 32 weights, or two;
/// where the whole row shares one, entries_of_one with that value.
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
    std::size_t step;     ///< entries from a group to the next: as many, or 0 where all weights of a row share one
    bool zeros;
    std::size_t vectors;  ///< of x: 1, or 2 or 4 in the forms that take several
    const float* x;
    std::size_t x_stride;  ///< from a vector to the next, whose sums follow those of this one
    float* sum;
    std::size_t sum_stride;  ///< from a row to the next
    std::size_t next;  ///< so many bytes behind a row's codes are those that are read next at this place: several rows at once are more
                       ///< streams, with ends, than a processor follows by itself
};

/// Calls call(M, p, first), M being a constant, for vectors of a piece from number `first` on, which p is that of: once for all of them, or
/// for each where the form is a rare one, which is not compiled for several.
template <bool Several, class Call>
QK_INLINE void with_vectors(const piece_of_rows& given, const Call& call) noexcept {
    constexpr std::size_t next_sums = 16;  // partial_sums
    piece_of_rows p = given;
    if (!Several || p.vectors == 1) {
        for (std::size_t m = 0; m < given.vectors; ++m, p.x += p.x_stride, p.sum += next_sums)
            call(std::integral_constant<std::size_t, 1>(), p, m);
    } else if constexpr (Several) {
        if (p.vectors == 2) call(std::integral_constant<std::size_t, 2>(), p, std::size_t{0});
        else call(std::integral_constant<std::size_t, 4>(), p, std::size_t{0});
    }
}

}  // namespace QK_ISA
}  // namespace qk::detail
