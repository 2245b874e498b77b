// SPDX-License-Identifier: Apache-2.0
// How encode and decode walk a tensor: in pieces that fit the buffers on their stack.
#pragma once

#include <algorithm>

#include "qk/codec/layout/layout.hpp"
#include "qk/inline.hpp"
#include "qk/isa.hpp"
#include "qk/memory/values.hpp"

namespace qk::detail {
inline namespace QK_ISA {

/// Calls visit(o, l, i, first, n) for pieces of at most a tile; `first` is the position of the n values in the array. With inner == 1 a
/// piece lies along `length` and starts at a multiple of `align`; otherwise it lies along `inner`, at one position of `length`.
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

inline constexpr std::size_t widened_block = widened / 16;  ///< the largest block of which at least 16 fit

/// Calls visit(first, n, planes of the piece) for pieces of a row of blocks; each piece begins at whole bytes of every plane.
template <class Byte, class Visit>
void for_each_widened(const packing& packed, basic_planes<Byte> p, std::size_t length, const Visit& visit) {
    const auto block = static_cast<std::size_t>(packed.block_size);
    const std::size_t blocks = widened / block / 16 * 16;
    for (std::size_t first = 0; first < length; first += blocks * block) {
        const auto from = [&](std::span<Byte> plane, std::size_t codes, int width) {
            return plane.subspan(codes * static_cast<std::size_t>(width) / 8);
        };
        visit(first, std::min(blocks * block, length - first),
              basic_planes<Byte>{from(p.elements, first, packed.element_width), from(p.scales, first / block, packed.scale_width),
                                 from(p.shifts, sub_blocks_of(packed, first), packed.shift_bits), p.tensor});
    }
}

/// Holds rows whose last block is short as whole blocks side by side: their values, filled up with zeros, and their codes.
template <class Arch>
struct gathered_rows {
    alignas(64) float values[widened];
    alignas(64) std::byte bytes[8 * widened];
    struct piece {
        std::size_t at, count, block;  ///< values of one row: position in the array, number, first gathered block
    } pieces[widened / 2];
    std::size_t number = 0, blocks = 0;            ///< pieces, and blocks that they fill
    std::size_t first_block = 0, first_shift = 0;  ///< of the gathered ones, in the planes
    const packing packed;
    const planes staged;

    explicit gathered_rows(const packing& p) noexcept
        : packed(p), staged(planes_of(layout_of(p, along_axis{1, room() * size(), 1}), std::span<std::byte>(bytes))) {}

    std::size_t size() const noexcept { return static_cast<std::size_t>(packed.block_size); }
    std::size_t length() const noexcept { return blocks * size(); }
    std::size_t room() const noexcept { return widened / size() / 16 * 16; }

    /// Gathers all rows of the array, as many at a time as there is room for, and calls run() for each lot, in order.
    template <class Run>
    void each(along_axis a, const Run& run) noexcept {
        const auto finish = [&]() QK_APART {
            run();
            first_block += blocks;
            for (std::size_t k = 0; k < number; ++k) first_shift += sub_blocks_of(packed, pieces[k].count);
            number = blocks = 0;
        };
        for (std::size_t o = 0; o < a.outer; ++o) {
            for (std::size_t l = 0, count = 0; l < a.length; l += count) {
                count = std::min(a.length - l, (room() - blocks) * size());
                pieces[number++] = {o * a.length + l, count, blocks};
                blocks += divide_up(count, packed.block_size);
                if (blocks == room()) finish();
            }
        }
        if (number != 0) finish();
    }
    /// Calls copy(plane, bit, staged plane, bit in it, number of bits) for all codes that the array's planes and the staged ones exchange.
    template <class Byte, class Copy>
    void each_code(basic_planes<Byte> array, const Copy& copy) const noexcept {
        const auto width = static_cast<std::size_t>(packed.element_width), scale = static_cast<std::size_t>(packed.scale_width);
        const auto bits = static_cast<std::size_t>(packed.shift_bits);
        copy(array.scales, first_block * scale, staged.scales, 0, blocks * scale);
        std::size_t shift = first_shift;
        for (const piece& p : std::span(pieces, number)) {
            copy(array.elements, p.at * width, staged.elements, p.block * size() * width, p.count * width);
            if (bits == 0) continue;
            const std::size_t shifts = sub_blocks_of(packed, p.count);
            copy(array.shifts, shift * bits, staged.shifts, p.block * sub_blocks_of(packed, size()) * bits, shifts * bits);
            shift += shifts;
        }
    }
};

}  // namespace QK_ISA
}  // namespace qk::detail
