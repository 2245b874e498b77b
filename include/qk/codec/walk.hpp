// SPDX-License-Identifier: Apache-2.0
// How encode and decode walk a tensor: in pieces that fit the buffers on their stack.
#pragma once

#include <algorithm>

#include "qk/codec/layout.hpp"
#include "qk/codec/unpack.hpp"
#include "qk/inline.hpp"

namespace qk::detail {

/// Pieces of the array that fit a tile: visit(o, l, i, first, n), where `first` is the position in the array. inner == 1: a piece lies
/// along `length` and starts at a multiple of `align`; else it lies along `inner`, at one position of `length`.
template <class Visit>
QK_INLINE void for_each_run(along_axis a, std::size_t align, Visit visit) {
    if (a.inner == 1) {
        const std::size_t step = align == 0 || align > tile ? tile : tile / align * align;
        for (std::size_t o = 0; o < a.outer; ++o) {
            for (std::size_t l = 0; l < a.length; l += step) visit(o, l, std::size_t{0}, o * a.length + l, std::min(step, a.length - l));
        }
        return;
    }
    for (std::size_t o = 0; o < a.outer; ++o) {
        for (std::size_t l = 0; l < a.length; ++l) {
            for (std::size_t i = 0; i < a.inner; i += tile) visit(o, l, i, (o * a.length + l) * a.inner + i, std::min(tile, a.inner - i));
        }
    }
}

/// Values of 16 bits that pass through floats together.
inline constexpr std::size_t widened = 4 * tile;
inline constexpr std::size_t widened_block = widened / 16;  ///< the largest block of which 16 and more do

/// Pieces of a row of blocks that begin at whole bytes of every plane: visit(first, n, its planes).
template <class Format, class Byte, class Visit>
void for_each_widened(const Format& f, basic_planes<Byte> p, std::size_t length, const Visit& visit) {
    const auto block = static_cast<std::size_t>(f.block_size);
    const std::size_t blocks = widened / block / 16 * 16;
    for (std::size_t first = 0; first < length; first += blocks * block) {
        const auto from = [&](std::span<Byte> plane, std::size_t codes, int width) { return plane.subspan(codes * static_cast<std::size_t>(width) / 8); };
        basic_planes<Byte> part{from(p.elements, first, element_width(f)), from(p.scales, first / block, scale_width(f)), p.shifts, p.tensor};
        if constexpr (std::same_as<Format, microexponent>) part.shifts = from(p.shifts, sub_blocks_of(f, first), f.shift_bits);
        visit(first, std::min(blocks * block, length - first), part);
    }
}

}  // namespace qk::detail
