// SPDX-License-Identifier: Apache-2.0
// How a call walks what kernels do not read or write themselves: 16-bit floats, rows with a pitch, scales in 16 bits, zero points in 8,
// blocks in two dimensions. It goes in pieces through memory on the stack; each piece is a call of a kernel over floats.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "qk/inline.hpp"
#include "qk/isa.hpp"
#include "qk/kernels/choose.hpp"
#include "qk/lanes/code_lanes.hpp"
#include "qk/memory/values.hpp"

namespace qk::detail {
inline namespace QK_ISA {

/// Values of a piece; the longest block that one holds.
inline constexpr std::size_t on_stack = 4096;
inline constexpr std::size_t scales_on_stack = 256;

/// A run of values and their scales: value k has entry k / group.
struct scaled_piece {
    std::size_t first, n, group;
    std::size_t entry, entries;  ///< number of the first one in the parameters; how many there are
    const float* scale;
    const std::int64_t* zero;
};

/// Calls visit(scaled_piece) for pieces of at most `most` values, in the order of the array.
template <class Visit>
void for_each_scaled_piece(const codec_parameters& p, std::size_t size, std::size_t most, const Visit& visit) {
    if (p.one_scale()) {
        for (std::size_t k = 0; k < size; k += most)
            visit(scaled_piece{k, std::min(most, size - k), size, 0, 1, &p.one.scale, &p.one.zero_point});
        return;
    }
    alignas(64) float scale[scales_on_stack];
    alignas(64) std::int64_t zero[scales_on_stack];
    const along_axis a = resolved(p.axis, size);
    const auto piece = [&](std::size_t o, std::size_t l, std::size_t i, std::size_t n, std::size_t group) {
        const std::size_t entry = p.index(a, o, l, i), entries = (n + group - 1) / group;
        for (std::size_t k = 0; k < entries; ++k) {
            scale[k] = p.scale[entry + k];
            zero[k] = p.zero_point[p.zero_point.empty() ? 0 : entry + k];
        }
        visit(scaled_piece{(o * a.length + l) * a.inner + i, n, group, entry, entries, scale, zero});
    };
    const std::size_t group = std::max<std::size_t>(p.group, 1);
    for (std::size_t o = 0; o < a.outer; ++o) {
        for (std::size_t l = 0; l < a.length && a.inner != 1; ++l) {
            const bool one = p.group == 0;  // of a channel
            for (std::size_t i = 0, n = 0; i < a.inner; i += n) {
                n = std::min(a.inner - i, one ? most : std::min(most, scales_on_stack));
                piece(o, l, i, n, one ? n : 1);
            }
        }
        for (std::size_t l = 0, n = 0; l < a.length && a.inner == 1; l += n) {
            const std::size_t left = a.length - l;
            n = group > most ? std::min({left, most, group - l % group}) : std::min(left, std::min(most / group, scales_on_stack) * group);
            piece(o, l, 0, n, std::min(group, n));
        }
    }
}

/// Runs an elementwise format: kernel(from, to, scaled_piece, semantics of the piece).
template <class Arch, class Kernel>
void pieces_of_elements(const values_in& x, const values_out& y, const codec_parameters& p, const semantics& how, const Kernel& kernel) {
    alignas(64) float room[on_stack];
    for_each_scaled_piece(p, x.size(), on_stack, [&](const scaled_piece& s) {
        const float* from = x.floats() != nullptr ? x.floats() + s.first : room;
        float* to = y.floats() != nullptr ? y.floats() + s.first : room;
        if (x.floats() == nullptr) x.copy<Arch>(s.first, s.n, room);
        kernel(from, to, s, from_element(how, s.first));
        if (y.floats() == nullptr) y.copy<Arch>(room, s.first, s.n);
    });
}

template <class Arch>
void fill_with_nan(const values_out& y) noexcept {
    constexpr float nan = std::numeric_limits<float>::quiet_NaN();
    for (std::size_t i = 0; i < y.size(); ++i) y.copy<Arch>(&nan, i, 1);
}

/// Returns the semantics of a piece of a row of blocks: element `first` of the array, position l along the axis.
QK_INLINE semantics of_piece(const semantics& how, std::size_t first, std::size_t l) {
    semantics own = from_element(how, first);
    if (own.scale_weights != nullptr) own.scale_weights += l;
    return own;
}

/// Runs blocks along a strided axis: those of neighbouring columns are brought together.
template <class Arch, class Kernel>
QK_APART void pieces_of_columns(std::size_t block, const values_in& x, const values_out& y, along_axis a, const semantics& how,
                                const Kernel& kernel) {
    alignas(64) float room[on_stack];
    std::uint32_t words[on_stack];  // random bits belong to places of the whole array
    const std::size_t width = on_stack / block;
    for (std::size_t o = 0; o < a.outer; ++o) {
        for (std::size_t l = 0; l < a.length; l += block) {
            const std::size_t rows = std::min(block, a.length - l);
            for (std::size_t i = 0; i < a.inner; i += width) {
                const std::size_t n = std::min(width, a.inner - i), first = (o * a.length + l) * a.inner + i;
                semantics own = of_piece(how, 0, l);
                for (std::size_t j = 0; j < rows; ++j) {
                    x.copy<Arch>(first + j * a.inner, n, room + j * n);
                    if (is_stochastic(how.rounding))
                        kernels::store_random<Arch>(kernels::random_source(how), first + j * a.inner, n, words + j * n);
                }
                if (is_stochastic(how.rounding)) own.random_words = words;
                kernel(room, room, along_axis{1, rows, n}, own);
                for (std::size_t j = 0; j < rows; ++j) y.copy<Arch>(room + j * n, first + j * a.inner, n);
            }
        }
    }
}

/// Runs a block format: kernel(from, to, axis, semantics of the piece).
template <class Arch, class Kernel>
void pieces_of_blocks(std::size_t block, const values_in& x, const values_out& y, along_axis a, const semantics& how,
                      const Kernel& kernel) {
    if (x.size() == 0) return;
    if (y.floats() != nullptr) {  // which holds all of x
        if (x.floats() == nullptr) x.copy<Arch>(0, x.size(), y.floats());
        return kernel(x.floats() != nullptr ? x.floats() : y.floats(), y.floats(), a, how);
    }
    if (block > on_stack) return fill_with_nan<Arch>(y);  // a precondition; this result cannot be overlooked
    if (a.inner != 1) return pieces_of_columns<Arch>(block, x, y, a, how, kernel);
    if (a.length % block == 0 && how.scale_weights == nullptr) a = {1, a.outer * a.length, 1};
    alignas(64) float room[on_stack];
    const auto run = [&](std::size_t first, std::size_t l, along_axis axis) {
        const std::size_t n = axis.outer * axis.length;
        x.copy<Arch>(first, n, room);
        kernel(room, room, axis, of_piece(how, first, l));
        y.copy<Arch>(room, first, n);
    };
    if (a.length <= on_stack) {  // rows together
        for (std::size_t o = 0, rows = 0; o < a.outer; o += rows) {
            rows = std::min(a.outer - o, on_stack / a.length);
            run(o * a.length, 0, {rows, a.length, 1});
        }
        return;
    }
    for (std::size_t o = 0; o < a.outer; ++o) {
        for (std::size_t l = 0, n = 0; l < a.length; l += n) {
            n = std::min(on_stack / block * block, a.length - l);
            run(o * a.length + l, l, {1, n, 1});
        }
    }
}

/// Returns the largest finite magnitude.
template <class Arch>
float largest_finite(const values_in& x) noexcept {
    if (x.floats() != nullptr) return kernels::largest_finite<Arch>(x.floats(), x.size());
    constexpr std::size_t piece = 2048;
    alignas(64) float value[piece];
    float most = 0;
    for (std::size_t i = 0; i < x.size(); i += piece) {
        const std::size_t n = std::min(piece, x.size() - i);
        x.copy<Arch>(i, n, value);
        most = std::max(most, kernels::largest_finite<Arch>(value, n));
    }
    return most;
}

}  // namespace QK_ISA
}  // namespace qk::detail
