// SPDX-License-Identifier: Apache-2.0
// The short form of blocks that lie in a row: tiles of as many blocks as a vector has lanes.
#pragma once

#include "qk/kernels/block_driver.hpp"
#include "qk/kernels/maxima.hpp"
#include "qk/kernels/quick_blocks.hpp"
#include "qk/kernels/streaming.hpp"

namespace qk::kernels {

/// The complete form of any step, as one type: what the short form declines, odd block sizes and ragged ends.
template <class Arch>
struct complete_form {
    const void* step;
    void (*groups)(const void* step, const block_group& all) noexcept;

    template <class Step>
    explicit complete_form(const Step& s) noexcept
        : step(&s), groups([](const void* p, const block_group& all) noexcept { run_groups<Arch>(all, *static_cast<const Step*>(p)); }) {}

    /// `count` blocks of `size` in a row from x, which stands at `position` of the caller's span.
    void row(const float* x, float* y, std::size_t size, std::size_t count, std::size_t position) const noexcept {
        groups(step, {x, y, size, 1, count, size, position});
    }
};

/// The floats of this far ahead are asked for while a tile is worked on.
inline constexpr std::size_t prefetch_distance = 2048;

/// The largest magnitude in each lane of `Vectors` vectors.
template <class Arch, std::size_t Vectors>
vi<Arch> magnitude_across(const float* x) noexcept {
    constexpr std::size_t w = lanes<Arch>;
    using V = vi<Arch>;
    V m = as_int<Arch>(load<Arch>(x)) & V(magnitude_bits);
    __builtin_prefetch(x + prefetch_distance);
    for (std::size_t k = 1; k < Vectors; ++k) {
        m = xsimd::max(m, as_int<Arch>(load<Arch>(x + k * w)) & V(magnitude_bits));
        __builtin_prefetch(x + k * w + prefetch_distance);
    }
    return m;
}

/// Tiles of as many blocks as there are lanes, each `Vectors` vectors long; with Vectors == 0 (vectors of 16) of two blocks of 8 in each of
/// 8 vectors. What blocks share is computed once for a tile, and for the next tile before this one is rounded, so that nothing waits
/// for the chain of loads, shuffles and maxima. Returns how many blocks were done.
template <class Arch, std::size_t Vectors, std::size_t Sub, bool Grid, bool Streaming, class Form>
std::size_t run_block_tiles(const float* x, float* y, std::size_t blocks, const Form& form, const complete_form<Arch>& complete) noexcept {
    constexpr std::size_t w = lanes<Arch>, count = Vectors == 0 ? 8 : w, each = Vectors == 0 ? 1 : Vectors, tile = count * each * w;
    using V = vi<Arch>;
    const Form q = form;  // its constants in registers
    const std::size_t tiles = blocks / w;
    if (tiles == 0) return 0;
    alignas(64) float base[2][w], limit[2][w];  // of two tiles, each written while the other is read
    quick_shared<Arch> here, after;             // the same in registers, where elements take them by a shuffle
    const auto survey = [&](const float* p, std::size_t at) __attribute__((always_inline)) {
        V m[count];
#pragma GCC unroll 16
        for (std::size_t b = 0; b < count; ++b) m[b] = magnitude_across<Arch, each>(p + b * each * w);
        V most;
        if constexpr (Vectors == 0)
            most = maxima_of_halves<Arch>(m);
        else
            most = maxima<Arch>(m);
        const bool served = q.template share<Sub>(most, after);
        if constexpr (Vectors != 0) {
            store<Arch>(base[at], after.base);
            if constexpr (Sub == 0) store<Arch>(limit[at], after.limit);
        }
        return served;
    };
    bool served = survey(x, 0);
    for (std::size_t t = 0; t < tiles; ++t, x += tile, y += tile) {
        const std::size_t at = t % 2;
        here = after;
        const bool next_served = survey(t + 1 < tiles ? x + tile : x, 1 - at);
        if (__builtin_expect(!served, 0)) {
            complete.row(x, y, tile / w, w, t * tile);
            served = next_served;
            continue;
        }
        served = next_served;
#if defined(__GNUC__)
        // Broadcast from memory, which costs a load; out of a register it would be two shuffles.
        asm volatile("" : : "r"(base), "r"(limit) : "memory");
#endif
#pragma GCC unroll 16
        for (std::size_t b = 0; b < count; ++b) {
            quick_shared<Arch> shared;
            if constexpr (Vectors == 0)
                shared = {spread_halves<Arch>(here.base, b), spread_halves<Arch>(here.limit, b)};
            else
                shared = {vf<Arch>(base[at][b]), vf<Arch>(limit[at][b])};
#pragma GCC unroll 8
            for (std::size_t k = 0; k < each; ++k) {
                const std::size_t i = (b * each + k) * w;
                const vf<Arch> v = rounded<Arch>(load<Arch>(x + i));  // loaded once
                vf<Arch> r;
                if constexpr (Sub != 0)
                    r = q.template apply<Grid>(v, q.held(shared, max_of_group<Sub, Arch>(as_int<Arch>(v) & V(exponent_mask))));
                else
                    r = q.template apply<Grid>(v, shared);
                Streaming ? stream<Arch>(y + i, r) : store<Arch>(y + i, r);
            }
        }
    }
    if (Streaming) end_streaming<Arch>();
    return tiles * w;
}

}  // namespace qk::kernels
