// SPDX-License-Identifier: Apache-2.0
// Encodes tensors in which every position along `length` has a scale, and its plane of `inner` values is short. To set up a coder for each
// plane would take longer than its codes, so planes are divided by their scales side by side, and the quotients are encoded as one row.
// Likewise rows in which each value has a scale.
#pragma once

#include <algorithm>

#include "qk/formats/codes/unpack.hpp"
#include "qk/inline.hpp"
#include "qk/isa.hpp"
#include "qk/kernels/drivers/range_call.hpp"
#include "qk/lanes/simd.hpp"
#include "qk/memory/values.hpp"

namespace qk::detail {
inline namespace QK_ISA {

/// Is true when planes of that many values are short. Those that begin inside a byte are encoded in a buffer first, which takes longer.
QK_INLINE constexpr bool is_short_plane(std::size_t values, int width) {
    return values < (values * static_cast<std::size_t>(width) % 8 == 0 ? 128 : 512);
}

/// Walks the positions of [outer][length][inner] in order.
struct plane_walk {
    std::size_t length, inner, o, l, i;

    QK_INLINE plane_walk(along_axis a, std::size_t position) noexcept
        : length(a.length), inner(a.inner), o(position / (a.length * a.inner)), l(position / a.inner % a.length), i(position % a.inner) {}
    /// Returns how many values are left of the plane, at most `most`.
    QK_INLINE std::size_t left(std::size_t most) const noexcept { return std::min(inner - i, most); }
    QK_INLINE void skip(std::size_t n) noexcept {
        i += n;
        if (i != inner) return;
        i = 0;
        if (++l == length) l = 0, ++o;
    }
};

/// Divides n values from `position` on by a scale for each position along `length`. `y` has room for a vector more.
template <class Arch>
QK_APART void divide_planes(const float* x, float* y, std::size_t position, std::size_t n, along_axis a, const float* scale) noexcept {
    constexpr std::size_t w = kernels::lanes<Arch>;
    plane_walk at(a, position);
    for (std::size_t k = 0; k < n;) {
        const std::size_t some = at.left(n - k), end = k + some;
        const kernels::vf<Arch> s(scale[at.l]);
        for (; k < end; k += w) {  // lanes beyond `end` are overwritten with the next scale's
            const kernels::vf<Arch> v = k + w <= n ? kernels::load<Arch>(x + k) : kernels::load_first<Arch>(x + k, n - k);
            kernels::store<Arch>(y + k, kernels::quotient<Arch>(v, s));
        }
        k = end;
        at.skip(some);
    }
}

/// Encodes an array of short planes: a tile of quotients at a time goes to fast(quotients, first, n, general). Values that it cannot
/// encode go to tile_of(o, l, i, first, n) in pieces of a plane.
template <class Arch, class Fast, class Tile>
QK_INLINE void encode_short_planes(along_axis a, const float* x, const float* scale, const Fast& fast, const Tile& tile_of) {
    alignas(64) float quotients[tile + 16];
    const std::size_t size = a.outer * a.length * a.inner;
    for (std::size_t first = 0; first < size; first += tile) {
        const std::size_t n = std::min(tile, size - first);
        divide_planes<Arch>(x + first, quotients, first, n, a, scale);
        const auto general = [&](std::size_t begin, std::size_t count) {
            plane_walk at(a, first + begin);
            for (std::size_t k = begin, some = 0; k < begin + count; k += some) {
                some = at.left(begin + count - k);
                tile_of(at.o, at.l, at.i, first + k, some);
                at.skip(some);
            }
        };
        if (!fast(quotients, first, n, kernels::range_call(general))) general(0, n);
    }
}

/// Returns x / scale for n values. `y` has room for a vector more.
template <class Arch>
QK_APART void divide_by(const float* x, const float* scale, float* y, std::size_t n) noexcept {
    constexpr std::size_t w = kernels::lanes<Arch>;
    std::size_t k = 0;
    for (; k + w <= n; k += w)
        kernels::store<Arch>(y + k, kernels::quotient<Arch>(kernels::load<Arch>(x + k), kernels::load<Arch>(scale + k)));
    if (k != n)
        kernels::store<Arch>(y + k,
                             kernels::quotient<Arch>(kernels::load_first<Arch>(x + k, n - k), kernels::load_first<Arch>(scale + k, n - k)));
}

/// Encodes rows of `length` values likewise, each with a scale: the same in all rows, or if `each_row` those that follow.
template <class Arch, class Fast, class Tile>
QK_INLINE void encode_scaled_rows(along_axis a, const float* x, const float* scale, bool each_row, const Fast& fast, const Tile& tile_of) {
    constexpr std::size_t piece = 4 * tile;
    alignas(64) float quotients[piece + 16];
    const std::size_t size = a.outer * a.length;
    for (std::size_t first = 0; first < size; first += piece) {
        const std::size_t n = std::min(piece, size - first);
        const auto each_part = [&](std::size_t begin, std::size_t end, std::size_t most, const auto& visit) QK_INLINE_CALL {
            for (std::size_t k = begin, some = 0; k < end; k += some) {
                const std::size_t l = (first + k) % a.length;
                some = std::min({most, end - k, a.length - l});
                visit(k, l, some);
            }
        };
        each_part(0, n, piece, [&](std::size_t k, std::size_t l, std::size_t some) {
            divide_by<Arch>(x + first + k, each_row ? scale + first + k : scale + l, quotients + k, some);
        });
        const auto general = [&](std::size_t begin, std::size_t count) {
            each_part(begin, begin + count, tile, [&](std::size_t k, std::size_t l, std::size_t some) {
                tile_of((first + k) / a.length, l, std::size_t{0}, first + k, some);
            });
        };
        if (!fast(quotients, first, n, kernels::range_call(general))) general(0, n);
    }
}

}  // namespace QK_ISA
}  // namespace qk::detail
