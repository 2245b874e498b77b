// SPDX-License-Identifier: Apache-2.0
// Runs block formats by their short form: whole vectors of a row, or vectors across a strided axis. What the short form declines, odd
// block sizes and ragged ends go to the complete form.
#pragma once

#include "qk/kernels/block_driver.hpp"
#include "qk/kernels/maxima.hpp"
#include "qk/kernels/quick_steps.hpp"
#include "qk/kernels/streaming.hpp"

namespace qk::kernels {

/// `count` blocks of the step's size in a row from x, by the complete form.
template <class Arch, class Step>
#if defined(__GNUC__)
__attribute__((noinline))
#endif
void decline_row(const float* x, float* y, std::size_t size, std::size_t count, std::size_t position, const Step& step) noexcept {
    run_groups<Arch>({x, y, size, 1, count, size, position}, step);
}
template <class Arch, class Step>
#if defined(__GNUC__)
__attribute__((noinline))
#endif
void decline_group(const block_group& g, const Step& step) noexcept {
    run_group<Arch>(g, step);
}

/// The floats of a tile ahead of the one that is worked on are asked for, or two passes over a tile would halve the speed of memory.
inline constexpr std::size_t prefetch_distance = 1024;

/// Tiles of as many blocks as there are lanes, each `Vectors` vectors long; with Vectors == 0 (vectors of 16) of two blocks of 8 in each of
/// 8 vectors. What blocks share is computed once for a tile. Returns how many blocks were done.
template <class Arch, std::size_t Vectors, std::size_t Sub, bool Grid, bool NegativeZero, bool Streaming, class Step, class Quick>
std::size_t run_block_tiles(const float* x, float* y, std::size_t blocks, const Step& step, const Quick& quick) noexcept {
    constexpr std::size_t w = lanes<Arch>, count = Vectors == 0 ? 8 : w, each = Vectors == 0 ? 1 : Vectors, tile = count * each * w;
    using V = vi<Arch>;
    const Quick q = quick;
    std::size_t done = 0;
    for (; done + w <= blocks; done += w, x += tile, y += tile) {
        V m[count];
        for (std::size_t b = 0; b < count; ++b) {
            const float* p = x + b * each * w;
            m[b] = as_int<Arch>(load<Arch>(p)) & V(magnitude_bits);
            __builtin_prefetch(p + prefetch_distance);
            for (std::size_t k = 1; k < each; ++k) {
                m[b] = xsimd::max(m[b], as_int<Arch>(load<Arch>(p + k * w)) & V(magnitude_bits));
                __builtin_prefetch(p + k * w + prefetch_distance);
            }
        }
        V most;
        if constexpr (Vectors == 0)
            most = maxima_of_halves<Arch>(m);
        else
            most = maxima<Arch>(m);
        if (__builtin_expect(q.declines(most), 0)) {
            decline_row<Arch>(x, y, tile / w, w, done * (tile / w), step);
            continue;
        }
        const quick_shared<Arch> all = q.share(most, most);
        alignas(64) float base[w], limit[w];
        alignas(64) std::int32_t amax[w];
        store<Arch>(base, all.base);
        store<Arch>(limit, all.limit);
        if constexpr (Sub != 0) store<Arch>(amax, most);
#if defined(__GNUC__)
        // Broadcast from memory, which costs a load; out of a register it would be two shuffles, of which there are enough already.
        asm volatile("" : : "r"(base), "r"(limit), "r"(amax) : "memory");
#endif
        for (std::size_t b = 0; b < count; ++b) {
            quick_shared<Arch> shared{vf<Arch>(base[b]), vf<Arch>(limit[b])};
            V block(amax[b]);
            if constexpr (Vectors == 0) {
                const std::size_t at = b / 4 * 8 + b % 4;
                shared = {both_halves<Arch>(base[at], base[at + 4]), both_halves<Arch>(limit[at], limit[at + 4])};
                if constexpr (Sub != 0) block = as_int<Arch>(both_halves<Arch>(std::bit_cast<float>(amax[at]), std::bit_cast<float>(amax[at + 4])));
            }
            for (std::size_t k = 0; k < each; ++k) {
                const std::size_t at = (b * each + k) * w;
                const vf<Arch> v = load<Arch>(x + at);
                if constexpr (Sub != 0) shared = q.share(block, max_of_group<Sub, Arch>(as_int<Arch>(v) & V(magnitude_bits)));
                const vf<Arch> r = q.template apply<Grid, NegativeZero>(v, shared);
                Streaming ? stream<Arch>(y + at, r) : store<Arch>(y + at, r);
            }
        }
    }
    if (Streaming) end_streaming<Arch>();
    return done;
}

template <class Arch, std::size_t Vectors, class Step, class Quick>
std::size_t run_block_tiles(const float* x, float* y, std::size_t blocks, const Step& step, const Quick& quick) noexcept {
    const std::size_t n = blocks * static_cast<std::size_t>(step.block_size);
    const bool streaming = streams<Arch>(x, y, n) && reinterpret_cast<std::uintptr_t>(y) % sizeof(vf<Arch>) == 0;
    const auto run = [&]<std::size_t Sub, bool Grid, bool NegativeZero>() {
        return streaming ? run_block_tiles<Arch, Vectors, Sub, Grid, NegativeZero, true>(x, y, blocks, step, quick)
                         : run_block_tiles<Arch, Vectors, Sub, Grid, NegativeZero, false>(x, y, blocks, step, quick);
    };
    const auto signs = [&]<std::size_t Sub, bool Grid>() {
        return quick.negative_zero ? run.template operator()<Sub, Grid, true>() : run.template operator()<Sub, Grid, false>();
    };
    if constexpr (requires { step.integers; }) {
        return step.integers ? signs.template operator()<0, false>() : signs.template operator()<0, true>();
    } else if constexpr (requires { step.narrow(step.plan({}), {}); }) {
        return quick.sub_blocks ? signs.template operator()<2, false>() : signs.template operator()<0, false>();
    } else {
        return run.template operator()<0, true, true>();
    }
}

/// Whole blocks of a row; returns how many were done: whole tiles of them, or none where the sizes do not suit.
template <class Arch, class Step, class Quick>
std::size_t run_row_of_blocks(const float* x, float* y, std::size_t blocks, const Step& step, const Quick& quick) noexcept {
    constexpr std::size_t w = lanes<Arch>;
    const auto size = static_cast<std::size_t>(step.block_size);
    if (quick.sub_blocks && quick.sub_block_size != 2) return 0;
    switch (size % w == 0 ? size / w : 0) {
        case 1: return run_block_tiles<Arch, 1>(x, y, blocks, step, quick);
        case 2: return run_block_tiles<Arch, 2>(x, y, blocks, step, quick);
        case 4: return run_block_tiles<Arch, 4>(x, y, blocks, step, quick);
        case 8: return run_block_tiles<Arch, 8>(x, y, blocks, step, quick);
        default: break;
    }
    if constexpr (w == 16) {
        if (size == 8) return run_block_tiles<Arch, 0>(x, y, blocks, step, quick);
    }
    return 0;
}

/// `Width` vectors of neighbouring columns, each lane with a block of its own down the axis.
template <class Arch, std::size_t Width, bool Grid, bool NegativeZero, class Step, class Quick>
std::size_t run_columns(const block_group& all, std::size_t from, const Step& step, const Quick& quick) noexcept {
    constexpr std::size_t w = lanes<Arch>;
    using V = vi<Arch>;
    const Quick q = quick;
    const std::size_t sub = q.sub_blocks ? static_cast<std::size_t>(q.sub_block_size) : all.length;
    std::size_t i = from;
    for (; i + Width * w <= all.blocks; i += Width * w) {
        const float* x = all.x + i;
        float* y = all.y + i;
        const auto magnitude = [&](std::size_t j, std::size_t k) { return as_int<Arch>(load<Arch>(x + j * all.element_stride + k * w)) & V(magnitude_bits); };
        V most[Width];
        for (std::size_t k = 0; k < Width; ++k) most[k] = magnitude(0, k);
        for (std::size_t j = 1; j < all.length; ++j) {
            for (std::size_t k = 0; k < Width; ++k) most[k] = xsimd::max(most[k], magnitude(j, k));
        }
        bool declined = false;
        for (std::size_t k = 0; k < Width; ++k) declined |= q.declines(most[k]);
        if (__builtin_expect(declined, 0)) {
            for (std::size_t k = 0; k < Width; ++k) decline_group<Arch>({x + k * w, y + k * w, 1, all.element_stride, w, all.length, all.position + i + k * w}, step);
            continue;
        }
        quick_shared<Arch> shared[Width];
        for (std::size_t k = 0; k < Width; ++k) shared[k] = q.share(most[k], most[k]);
        for (std::size_t begin = 0; begin < all.length; begin += sub) {
            const std::size_t end = std::min(begin + sub, all.length);
            if (q.sub_blocks) {
                for (std::size_t k = 0; k < Width; ++k) {
                    V part(0);
                    for (std::size_t j = begin; j < end; ++j) part = xsimd::max(part, magnitude(j, k));
                    shared[k] = q.share(most[k], part);
                }
            }
            for (std::size_t j = begin; j < end; ++j) {
                for (std::size_t k = 0; k < Width; ++k) {
                    const std::size_t at = j * all.element_stride + k * w;
                    store<Arch>(y + at, q.template apply<Grid, NegativeZero>(load<Arch>(x + at), shared[k]));
                }
            }
        }
    }
    return i;
}

template <class Arch, bool Grid, bool NegativeZero, class Step, class Quick>
void run_columns(const block_group& all, const Step& step, const Quick& quick) noexcept {
    std::size_t i = run_columns<Arch, 4, Grid, NegativeZero>(all, 0, step, quick);
    i = run_columns<Arch, 1, Grid, NegativeZero>(all, i, step, quick);
    if (i < all.blocks) decline_group<Arch>({all.x + i, all.y + i, 1, all.element_stride, all.blocks - i, all.length, all.position + i}, step);
}

/// The short form of a step: of nvfloat its own, else quick_block.
template <class Arch>
quick_nvfloat<Arch> quick_of(const nvfloat_step<Arch>& step) noexcept {
    return quick_nvfloat<Arch>(step);
}
template <class Arch, class Step>
quick_block<Arch> quick_of(const Step& step) noexcept {
    return quick_block<Arch>(step);
}

/// Blocks along `axis` of the whole array.
template <class Arch, class Step>
void run_blocks(const float* x, float* y, along_axis axis, const Step& step) noexcept {
    {
        const auto quick = quick_of<Arch>(step);
        const auto size = static_cast<std::size_t>(step.block_size);
        if (quick.usable() && default_environment<Arch>()) {
            if (axis.inner == 1 && axis.length % size == 0) {
                const std::size_t blocks = axis.outer * (axis.length / size);
                const std::size_t done = run_row_of_blocks<Arch>(x, y, blocks, step, quick);
                if (done < blocks) decline_row<Arch>(x + done * size, y + done * size, size, blocks - done, done * size, step);
                return;
            }
            if (axis.inner == 1) {  // a ragged last block in each row
                const std::size_t whole = axis.length / size;
                for (std::size_t o = 0; o < axis.outer; ++o) {
                    const std::size_t at = o * axis.length, done = run_row_of_blocks<Arch>(x + at, y + at, whole, step, quick), from = at + done * size;
                    if (done < whole) decline_row<Arch>(x + from, y + from, size, whole - done, from, step);
                    const std::size_t end = at + whole * size;
                    run_groups<Arch>({x + end, y + end, axis.length, 1, 1, axis.length % size, end}, step);
                }
                return;
            }
            for (std::size_t o = 0; o < axis.outer; ++o) {
                for (std::size_t begin = 0; begin < axis.length; begin += size) {
                    const std::size_t at = (o * axis.length + begin) * axis.inner;
                    const block_group columns{x + at, y + at, 1, axis.inner, axis.inner, std::min(size, axis.length - begin), at};
                    const auto run = [&]<bool Grid>() {
                        quick.negative_zero ? run_columns<Arch, Grid, true>(columns, step, quick) : run_columns<Arch, Grid, false>(columns, step, quick);
                    };
                    quick.grid ? run.template operator()<true>() : run.template operator()<false>();
                }
            }
            return;
        }
    }
    run_blocks_completely<Arch>(x, y, axis, step);
}

}  // namespace qk::kernels
