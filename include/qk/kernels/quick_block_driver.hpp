// SPDX-License-Identifier: Apache-2.0
// Runs block formats by their short form: whole vectors of a row, or vectors across a strided axis. What the short form declines, odd
// block sizes and ragged ends go to the complete form.
#pragma once

#include "qk/kernels/block_driver.hpp"
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

/// A unit is `Vectors` vectors: one block, or with Group < lanes several blocks of Group elements in one vector. `Sub`: sub-block size, 0 none.
template <class Arch, std::size_t Vectors, std::size_t Group, std::size_t Sub, bool Grid, bool NegativeZero, bool Streaming, class Step>
void run_units(const float* x, float* y, std::size_t units, std::size_t position, const Step& step, const quick_block<Arch>& quick) noexcept {
    constexpr std::size_t w = lanes<Arch>, unit = Vectors * w;
    using V = vi<Arch>;
    const quick_block<Arch> q = quick;
    const V magnitude(magnitude_bits);
    for (std::size_t u = 0; u < units; ++u, x += unit, y += unit) {
        vf<Arch> v[Vectors];
        V part[Vectors];
        for (std::size_t k = 0; k < Vectors; ++k) {
            v[k] = load<Arch>(x + k * w);
            part[k] = as_int<Arch>(v[k]) & magnitude;
            if (Streaming) __builtin_prefetch(x + k * w + 1024);
        }
        V most = part[0];
        for (std::size_t k = 1; k < Vectors; ++k) most = xsimd::max(most, part[k]);
        most = max_of_group<Group, Arch>(most);
        if (__builtin_expect(q.declines(most), 0)) {
            constexpr std::size_t size = Group < w ? Group : unit;
            decline_row<Arch>(x, y, size, unit / size, position + u * unit, step);
            continue;
        }
        quick_shared<Arch> shared = q.share(most, most);
        for (std::size_t k = 0; k < Vectors; ++k) {
            if constexpr (Sub != 0) shared = q.share(most, max_of_group<Sub, Arch>(part[k]));
            const vf<Arch> r = q.template apply<Grid, NegativeZero>(v[k], shared);
            Streaming ? stream<Arch>(y + k * w, r) : store<Arch>(y + k * w, r);
        }
    }
    if (Streaming) end_streaming<Arch>();
}

template <class Arch, std::size_t Vectors, std::size_t Group, class Step>
void run_units(const float* x, float* y, std::size_t units, const Step& step, const quick_block<Arch>& quick) noexcept {
    const bool streaming = streams<Arch>(x, y, units * Vectors * lanes<Arch>) && reinterpret_cast<std::uintptr_t>(y) % sizeof(vf<Arch>) == 0;
    const auto run = [&]<std::size_t Sub, bool Grid, bool NegativeZero>() {
        if (streaming)
            run_units<Arch, Vectors, Group, Sub, Grid, NegativeZero, true>(x, y, units, 0, step, quick);
        else
            run_units<Arch, Vectors, Group, Sub, Grid, NegativeZero, false>(x, y, units, 0, step, quick);
    };
    const auto signs = [&]<std::size_t Sub, bool Grid>() {
        quick.negative_zero ? run.template operator()<Sub, Grid, true>() : run.template operator()<Sub, Grid, false>();
    };
    if constexpr (requires { step.integers; }) {
        if (!step.integers) return signs.template operator()<0, true>();
        signs.template operator()<0, false>();
    } else {
        if (quick.sub_blocks) return signs.template operator()<2, false>();
        signs.template operator()<0, false>();
    }
}

/// Whole blocks of a row; returns how many were done: all, or none where the sizes do not suit.
template <class Arch, class Step>
std::size_t run_row_of_blocks(const float* x, float* y, std::size_t blocks, const Step& step, const quick_block<Arch>& quick) noexcept {
    constexpr std::size_t w = lanes<Arch>;
    const auto size = static_cast<std::size_t>(step.block_size);
    if (quick.sub_blocks && quick.sub_block_size != 2) return 0;
    const auto whole = [&]<std::size_t Vectors>() {
        run_units<Arch, Vectors, w>(x, y, blocks, step, quick);
        return blocks;
    };
    switch (size % w == 0 ? size / w : 0) {
        case 1: return whole.template operator()<1>();
        case 2: return whole.template operator()<2>();
        case 4: return whole.template operator()<4>();
        case 8: return whole.template operator()<8>();
        default: break;
    }
    if constexpr (w > 8) {
        if (size == 8) {
            run_units<Arch, 1, 8>(x, y, blocks / (w / 8), step, quick);
            return blocks / (w / 8) * (w / 8);
        }
    }
    return 0;
}

/// Vectors of neighbouring columns, each lane with a block of its own down the axis.
template <class Arch, bool Grid, bool NegativeZero, class Step>
void run_columns(const block_group& all, const Step& step, const quick_block<Arch>& quick) noexcept {
    constexpr std::size_t w = lanes<Arch>;
    using V = vi<Arch>;
    const quick_block<Arch> q = quick;
    const std::size_t sub = q.sub_blocks ? static_cast<std::size_t>(q.sub_block_size) : all.length;
    std::size_t i = 0;
    for (; i + w <= all.blocks; i += w) {
        const float* x = all.x + i;
        float* y = all.y + i;
        V most(0);
        for (std::size_t j = 0; j < all.length; ++j) most = xsimd::max(most, as_int<Arch>(load<Arch>(x + j * all.element_stride)) & V(magnitude_bits));
        if (__builtin_expect(q.declines(most), 0)) {
            decline_group<Arch>({x, y, 1, all.element_stride, w, all.length, all.position + i}, step);
            continue;
        }
        for (std::size_t begin = 0; begin < all.length; begin += sub) {
            const std::size_t end = std::min(begin + sub, all.length);
            V part = most;
            if (q.sub_blocks) {
                part = V(0);
                for (std::size_t j = begin; j < end; ++j) part = xsimd::max(part, as_int<Arch>(load<Arch>(x + j * all.element_stride)) & V(magnitude_bits));
            }
            const quick_shared<Arch> shared = q.share(most, part);
            for (std::size_t j = begin; j < end; ++j) {
                const std::size_t at = j * all.element_stride;
                store<Arch>(y + at, q.template apply<Grid, NegativeZero>(load<Arch>(x + at), shared));
            }
        }
    }
    if (i < all.blocks) decline_group<Arch>({all.x + i, all.y + i, 1, all.element_stride, all.blocks - i, all.length, all.position + i}, step);
}

/// Blocks along `axis` of the whole array.
template <class Arch, class Step>
void run_blocks(const float* x, float* y, along_axis axis, const Step& step) noexcept {
    if constexpr (requires { quick_block<Arch>(step); }) {
        const quick_block<Arch> quick(step);
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
