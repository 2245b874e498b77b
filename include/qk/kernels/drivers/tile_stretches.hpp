// SPDX-License-Identifier: Apache-2.0
// Runs the tiles of block_tiles.hpp in stretches, for outputs that take four vectors at a time. Three short loops, each with its constants
// in registers, go over a stretch: the maxima of all its tiles, what their blocks share, and their elements. While one tile waits for a
// division the next ones go on.
#pragma once

#include <algorithm>
#include <bit>

#include "qk/inline.hpp"
#include "qk/kernels/drivers/block_tiles.hpp"

namespace qk::kernels {

/// What the blocks of a stretch share, one block after the other, the exponents of their pairs, and room for the codes of their elements.
template <class Arch, class Shape, class Form>
struct stretch_memory {
    static constexpr std::size_t floats = 2048, blocks = floats / lanes<Arch>;  ///< holds the largest tile; blocks have a vector or more
    alignas(64) std::int32_t of_pairs[Shape::stores_pairs ? floats : 1];
    alignas(64) std::int32_t amax[blocks];
    alignas(64) float ratio[Form::has_ratio ? blocks : 1];
    shared_memory<Arch, typename Form::shared_type, blocks> shared;
    alignas(64) std::uint8_t codes[floats];

    stretch_memory() noexcept {}  // leaves the arrays uninitialised
    std::int32_t* exponents(std::size_t at) noexcept { return Shape::stores_pairs ? of_pairs + at : of_pairs; }
};

/// Computes what the blocks of n tiles at p share, of which the first is block `first`. Returns a bit for each tile, set if the fast form
/// does not cover it. `ahead` is what survey_tile takes.
template <class Arch, class Shape, class Memory, class Form, class Out>
QK_INLINE std::uint32_t share_stretch(const Shape& shape, Memory& memory, const float* p, std::size_t n, std::size_t first,
                                      std::size_t ahead, const Form& q, const Out& to) noexcept {
    constexpr std::size_t w = lanes<Arch>;
    const std::size_t floats = shape.floats();
    for (std::size_t t = 0; t < n; ++t) {
        const vi<Arch> amax = survey_tile<Arch, true>(shape, p + t * floats, ahead, memory.exponents(t * floats));
        store<Arch>(memory.amax + t * w, amax);
        if constexpr (Form::has_ratio) store<Arch>(memory.ratio + t * w, q.ratio(amax));
    }
    std::uint32_t declined = 0;
    for (std::size_t t = 0; t < n; ++t) {
        const vi<Arch> amax = load<Arch>(memory.amax + t * w);
        vf<Arch> ratio(0.0f);
        if constexpr (Form::has_ratio) ratio = load<Arch>(memory.ratio + t * w);
        typename Form::shared_type here{};
        bool serves = q.template share<(Shape::pairs ? 2 : 0)>(amax, ratio, here);
        if constexpr (Shape::stores_pairs) {
            if (__builtin_expect(any(amax == vi<Arch>(0)), 0))
                serves = serves && !holds_subnormal_block<Arch>(p + t * floats, shape.each(), amax);
        }
        memory.shared.template put<Shape::pairs>(t * w, here);
        to.put_shared(first + t * w, amax, ratio, q);
        declined |= (serves ? 0u : 1u) << t;
    }
    return declined;
}

/// Hands vectors n to n + 3 of the stretch at x to `to`, which rounds and stores them from position i on. n is a multiple of 4; a block has
/// 2^each vectors.
template <class Arch, bool Grid, class Shape, class Memory, class Form, class Out>
QK_INLINE void round_four(Memory& memory, std::size_t i, std::size_t n, int each, const float* x, const Form& q, const Out& to) noexcept {
    constexpr std::size_t w = lanes<Arch>;
    vf<Arch> v[4];
    typename Form::shared_type own[4];
    [[maybe_unused]] vi<Arch> exponents[4], held_to[4];
    unrolled<4>([&](auto k) QK_INLINE_CALL {
        const std::size_t b = (n >> each) + (k >> each), at = (n + k) * w;
        own[k] = memory.shared.broadcast(b);
        v[k] = opaque<Arch>(load<Arch>(x + at));
        if constexpr (Shape::pairs) {
            if constexpr (Shape::stores_pairs) exponents[k] = load<Arch>(memory.of_pairs + at);
            else exponents[k] = max_of_group<2, Arch>(as_int<Arch>(v[k]) & vi<Arch>(exponent_mask));
            held_to[k] = as_int<Arch>(own[k].base);
            own[k] = q.held(own[k], exponents[k]);
        }
    });
    if constexpr (Shape::pairs) to.pairs(i, exponents, held_to);
    to.template put_four<Grid>(i, v, own, q, memory.codes + n * w);
}

/// Has the contract of run_block_tiles.
template <class Arch, block_fit Fit, std::size_t Each, bool Pairs, bool Grid, class Form, class Out>
std::size_t run_tile_stretches(const float* x, std::size_t blocks, std::size_t size, const Form& form, const Out& out,
                               const range_call& general) noexcept {
    constexpr std::size_t w = lanes<Arch>;
    using shape_type = tile_shape<Arch, Fit, Each, Pairs>;
    stretch_memory<Arch, shape_type, Form> memory;
    [[maybe_unused]] alignas(64) std::uint32_t words[Out::any_rounding ? memory.floats : 1];
    const shape_type shape(size);
    const std::size_t tiles = blocks / w, floats = shape.floats(), together = memory.floats / floats,
                      ahead = shape.ahead(distance_in_row(blocks * size));
    const int each = std::countr_zero(shape.each());
    const Form q = form;  // a copy, whose constants stay in registers
    std::conditional_t<Out::any_rounding, Out, const Out> to = out;
    for (std::size_t first = 0; first < tiles; first += together) {
        const std::size_t n = std::min(together, tiles - first), at = first * floats;
        std::uint32_t declined = share_stretch<Arch>(shape, memory, x + at, n, first * w, ahead, q, to);
        if constexpr (Out::any_rounding) to.make_words(words, at, n * floats);
        const std::size_t vectors = n * floats / w;
#pragma GCC unroll 1
        for (std::size_t k = 0; k < vectors; k += 4) round_four<Arch, Grid, shape_type>(memory, at + k * w, k, each, x + at, q, to);
        to.put_joined(at, memory.codes, n * floats);
        for (std::size_t t = 0; t < n; ++t) to.finish((first + t) * w, load<Arch>(memory.amax + t * w), vf<Arch>(0.0f), q);
        for (std::size_t t = first; declined != 0; ++t, declined >>= 1)
            if ((declined & 1u) != 0) general(t * w, w);
    }
    return tiles * w;
}

}  // namespace qk::kernels
