// SPDX-License-Identifier: Apache-2.0
// Cuts the rows of a product into pieces.
#pragma once

#include <cstddef>

#include "qk/inline.hpp"
#include "qk/isa.hpp"
#include "qk/product/options.hpp"

namespace qk::detail {
inline namespace QK_ISA {

QK_INLINE std::size_t last_row(std::size_t rows, const row_range& o) { return o.last < rows ? o.last : rows; }

/// Calls call(range) for each piece of the rows.
template <class Parallel, class Call>
void in_pieces(std::size_t rows, const product_options& o, const Parallel& parallel_for, std::size_t size, const Call& call) {
    const std::size_t first = o.rows.first, last = last_row(rows, o.rows);
    if (first >= last) return;
    size = size == 0 ? 1 : size;
    parallel_for((last - first + size - 1) / size, [&](std::size_t i) {
        product_options piece = o;
        piece.rows = {first + i * size, last - first - i * size < size ? last : first + (i + 1) * size};
        call(piece);
    });
}

}  // namespace QK_ISA
}  // namespace qk::detail
