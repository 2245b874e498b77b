// SPDX-License-Identifier: Apache-2.0
// Runs steps in their general form: of elementwise formats over a row, of block formats along any axis.
#pragma once

#include <algorithm>

#include "qk/isa.hpp"
#include "qk/parameters.hpp"
#include "qk/steps/blocks.hpp"
#include "qk/trace.hpp"

namespace qk::kernels {
inline namespace QK_ISA {

/// Runs the general form: y[i] = step(x[i]). `position` is that of x[0] in the caller's span (stochastic rounding).
template <class Arch, class Step>
#if defined(__GNUC__)
__attribute__((noinline))
#endif
void run_row_general(const float* x, float* y, std::size_t n, std::size_t position, const Step& step) noexcept {
    constexpr std::size_t w = lanes<Arch>;
    QK_TRACE("general", position, n, Step);
    const auto bits = [&](std::size_t i, std::size_t count) { return random_lanes<Arch>(step.random(), position + i, 1, count); };
    std::size_t i = 0;
    for (; i + w <= n; i += w) store<Arch>(y + i, step.general(load<Arch>(x + i), bits(i, w)));
    if (i < n) store_some<Arch>(y + i, 1, n - i, step.general(load_some<Arch>(x + i, 1, n - i), bits(i, n - i)));
}

/// Blocks side by side: element j of block l is x[l * lane_stride + j * element_stride].
struct block_group {
    const float* x;
    float* y;
    std::size_t lane_stride, element_stride;
    std::size_t blocks;    ///< run_group: at most as many as there are lanes
    std::size_t length;    ///< of each block
    std::size_t position;  ///< of x[0] in the caller's span
};

template <class Arch>
vf<Arch> load_across(const block_group& g, std::size_t j) noexcept {
    const float* p = g.x + j * g.element_stride;
    return g.lane_stride == 1 && g.blocks == lanes<Arch> ? load<Arch>(p) : load_some<Arch>(p, g.lane_stride, g.blocks);
}
template <class Arch>
void store_across(const block_group& g, std::size_t j, vf<Arch> v) noexcept {
    float* p = g.y + j * g.element_stride;
    if (g.lane_stride == 1 && g.blocks == lanes<Arch>) store<Arch>(p, v);
    else store_some<Arch>(p, g.lane_stride, g.blocks, v);
}

/// Runs the blocks of a group, a lane each, in the general form. x is read again after what is shared is known; y may be x.
template <class Arch, class Step>
void run_group(const block_group& g, const Step& step) noexcept {
    if constexpr (requires { step.task; }) return run_searched_group<Arch>(g, step);  // drivers/searched_blocks.hpp
    const auto bits = [&](std::size_t j) {
        return random_lanes<Arch>(step.rules.random, g.position + j * g.element_stride, g.lane_stride, g.blocks);
    };
    seen<Arch> all;
    for (std::size_t j = 0; j < g.length; ++j) all.add(load_across<Arch>(g, j));
    auto shared = step.plan(all);
    if constexpr (requires { step.raise(shared, vi<Arch>(0)); }) {
        if (step.bump) {
            vi<Arch> by(0);
            for (std::size_t j = 0; j < g.length; ++j) by = by | step.exceeds(load_across<Arch>(g, j), shared, bits(j));
            shared = step.raise(shared, by);
        }
    }
    const std::size_t sub = step.sub_block_size > 0 ? static_cast<std::size_t>(step.sub_block_size) : g.length;
    for (std::size_t begin = 0; begin < g.length; begin += sub) {
        const std::size_t end = std::min(begin + sub, g.length);
        auto mine = shared;
        if constexpr (requires { step.narrow(shared, all); }) {
            if (step.sub_block_size > 0) {
                seen<Arch> part;
                for (std::size_t j = begin; j < end; ++j) part.add(load_across<Arch>(g, j));
                mine = step.narrow(shared, part);
            }
        }
        for (std::size_t j = begin; j < end; ++j) store_across<Arch>(g, j, step.apply(load_across<Arch>(g, j), mine, bits(j)));
    }
}

/// Does what run_group does for blocks that lie in a row and fill vectors, or halves of 16 lanes. A lane is an element, and what its block
/// shares is in every lane of the block, so nothing is gathered.
template <class Arch, std::size_t Group, class Step>
void run_vectors_of_blocks(const block_group& all, const Step& step) noexcept {
    constexpr std::size_t w = lanes<Arch>;
    const std::size_t vectors = Group == w ? all.length / w : 1, blocks_each = w / Group;  // of a block; in a vector
    for (std::size_t i = 0; i + blocks_each <= all.blocks; i += blocks_each) {
        const float* x = all.x + i * all.length;
        float* y = all.y + i * all.length;
        const auto bits = [&](std::size_t k) { return random_lanes<Arch>(step.rules.random, all.position + i * all.length + k * w, 1, w); };
        seen<Arch> of_block;
        for (std::size_t k = 0; k < vectors; ++k) of_block.add(load<Arch>(x + k * w));
        of_block = {max_of_group<Group, Arch>(of_block.finite), max_of_group<Group, Arch>(of_block.all)};
        auto shared = step.plan(of_block);
        if constexpr (requires { step.raise(shared, vi<Arch>(0)); }) {
            if (step.bump) {
                vi<Arch> by(0);
                for (std::size_t k = 0; k < vectors; ++k) by = by | step.exceeds(load<Arch>(x + k * w), shared, bits(k));
                shared = step.raise(shared, max_of_group<Group, Arch>(by));
            }
        }
        for (std::size_t k = 0; k < vectors; ++k) {
            const vf<Arch> v = load<Arch>(x + k * w);
            auto mine = shared;
            if constexpr (requires { step.narrow(shared, of_block); }) {
                if (step.sub_block_size != 0) {
                    seen<Arch> pair;
                    pair.add(v);
                    mine = step.narrow(shared, {max_of_group<2, Arch>(pair.finite), max_of_group<2, Arch>(pair.all)});
                }
            }
            store<Arch>(y + k * w, step.apply(v, mine, bits(k)));
        }
    }
}

/// Runs any number of blocks at the given strides.
template <class Arch, class Step>
void run_groups(block_group all, const Step& step) noexcept {
    constexpr std::size_t w = lanes<Arch>;
    QK_TRACE("general", all.position, all.blocks * all.length, Step);
    constexpr bool searched = requires { step.task; };  // a lane is a block
    if (!searched && all.element_stride == 1 && all.lane_stride == all.length && (step.sub_block_size == 0 || step.sub_block_size == 2)) {
        std::size_t done = 0;
        if constexpr (w > 1) {
            if (all.length % w == 0 && all.length != 0) {
                run_vectors_of_blocks<Arch, w>(all, step);
                done = all.blocks;
            }
        }
        if constexpr (w == 16) {
            if (all.length == 8) {
                run_vectors_of_blocks<Arch, 8>(all, step);
                done = all.blocks / 2 * 2;
            }
        }
        all.x += done * all.length;
        all.y += done * all.length;
        all.position += done * all.length;
        all.blocks -= done;
    }
    const std::size_t count = all.blocks;
    for (std::size_t i = 0; i < count; i += lanes<Arch>) {
        block_group g = all;
        g.x += i * all.lane_stride;
        g.y += i * all.lane_stride;
        g.position += i * all.lane_stride;
        g.blocks = std::min(lanes<Arch>, count - i);
        run_group<Arch>(g, step);
    }
}

/// Runs the blocks along `axis` of the whole array in the general form.
template <class Arch, class Step>
void run_blocks_general(const float* x, float* y, along_axis axis, const Step& step) noexcept {
    const std::size_t size = static_cast<std::size_t>(step.block_size);
    const std::size_t whole = axis.length / size, rest = axis.length % size;
    if (axis.inner == 1) {
        if (rest == 0) {
            run_groups<Arch>({x, y, size, 1, axis.outer * whole, size, 0}, step);
            return;
        }
        for (std::size_t o = 0; o < axis.outer; ++o) {
            const std::size_t at = o * axis.length;
            run_groups<Arch>({x + at, y + at, size, 1, whole, size, at}, step);
        }
        const std::size_t at = whole * size;
        run_groups<Arch>({x + at, y + at, axis.length, 1, axis.outer, rest, at}, step);
        return;
    }
    for (std::size_t o = 0; o < axis.outer; ++o) {
        for (std::size_t begin = 0; begin < axis.length; begin += size) {
            const std::size_t at = (o * axis.length + begin) * axis.inner;
            run_groups<Arch>({x + at, y + at, 1, axis.inner, axis.inner, std::min(size, axis.length - begin), at}, step);
        }
    }
}

}  // namespace QK_ISA
}  // namespace qk::kernels
