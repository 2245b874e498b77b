// SPDX-License-Identifier: Apache-2.0
// The short form of blocks that lie in a row: tiles of as many blocks as a vector has lanes.
#pragma once

#include <algorithm>

#include "qk/inline.hpp"
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

/// The largest magnitude in each lane of `Vectors` vectors; the floats `Ahead` of them are asked for.
template <class Arch, std::size_t Vectors, std::size_t Ahead>
QK_INLINE vi<Arch> magnitude_across(const float* x) noexcept {
    constexpr std::size_t w = lanes<Arch>;
    using V = vi<Arch>;
    V m = as_int<Arch>(load<Arch>(x)) & V(magnitude_bits);
    __builtin_prefetch(x + Ahead);
    for (std::size_t k = 1; k < Vectors; ++k) {
        m = xsimd::max(m, as_int<Arch>(load<Arch>(x + k * w)) & V(magnitude_bits));
        __builtin_prefetch(x + k * w + Ahead);
    }
    return m;
}

/// Of blocks of one vector: is there one, of those whose largest exponent field is 0, that is not all zeros?
template <class Arch>
bool holds_subnormal_block(const float* x, vi<Arch> exponents) noexcept {
    constexpr std::size_t w = lanes<Arch>;
    alignas(64) std::int32_t exponent[w];
    store<Arch>(exponent, exponents);
    for (std::size_t b = 0; b < w; ++b) {
        if (exponent[b] == 0 && xsimd::any((as_int<Arch>(load<Arch>(x + b * w)) & vi<Arch>(magnitude_bits)) != vi<Arch>(0))) return true;
    }
    return false;
}

/// What becomes of the elements of a tile: fake-quantized values. (codec/quick_blocks_encode.hpp has the other one: codes.)
template <class Arch, bool Streaming>
struct values_of_blocks {
    static constexpr bool flat = !Streaming;  ///< a tile's blocks without a loop: worth its code where little is done with an element, and in the caches
    float* y;

    /// The same for values from `to` on; random bits, if there are any, go by a position, or are `words`.
    template <bool Streams>
    values_of_blocks<Arch, Streams> at(float* to, std::size_t, const std::uint32_t* = nullptr) const noexcept { return {to}; }
    static const random_source* random() noexcept { return nullptr; }
    /// What becomes of element x at position i, with what its block shares.
    template <bool Grid, class Form>
    static QK_INLINE vf<Arch> value(std::size_t, vf<Arch> x, const quick_shared<Arch>& b, const Form& form) noexcept {
        return form.template apply<Grid>(x, b);
    }
    template <bool Grid, class Form>
    QK_INLINE void put(std::size_t i, vf<Arch> x, const quick_shared<Arch>& b, const Form& form) const noexcept {
        if constexpr (!Streaming) own_ahead<Arch, 1>(y + i);
        const vf<Arch> r = value<Grid>(i, x, b, form);
        Streaming ? stream<Arch>(y + i, r) : store<Arch>(y + i, r);
    }
    /// The sub-blocks of x, whose largest exponents stand in `exponents`, within a block of exponent `block` and less.
    void pairs(std::size_t, vi<Arch>, vi<Arch>) const noexcept {}
    /// The tile that starts at block `first` is done; amax of its blocks.
    template <class Form>
    void finish(std::size_t, vi<Arch>, const Form&) const noexcept {}
};

/// Tiles of as many blocks as there are lanes, each `Vectors` vectors long; with Vectors == 0 (vectors of 16) of two blocks of 8 in each of
/// 8 vectors. What blocks share is computed once for a tile, and two tiles before it is rounded, so that nothing waits for the
/// chain of loads, shuffles and maxima. complete(first, count) does the blocks of a tile that the short form declines. Returns
/// how many blocks were done.
template <class Arch, std::size_t Vectors, std::size_t Sub, bool Grid, class Form, class Out, class Complete>
std::size_t run_block_tiles(const float* x, std::size_t blocks, const Form& form, const Out& out, const Complete& complete) noexcept {
    constexpr std::size_t w = lanes<Arch>, count = Vectors == 0 ? 8 : w, each = Vectors == 0 ? 1 : Vectors, tile = count * each * w;
    using V = vi<Arch>;
    const Form q = form;  // its constants in registers
    const Out to = out;
    constexpr std::size_t ahead = std::max(tile + 128, std::size_t{448});  // of a survey: the tile behind it, and no multiple of it
    const std::size_t tiles = blocks / w;
    if (tiles == 0) return 0;
    // With a vector a block, the exponents of its pairs are found once, for its maximum and for its elements.
    constexpr bool pairs = Sub == 2 && Vectors == 1 && w == 16;
    alignas(64) std::int32_t of_pairs[pairs ? 4 : 1][pairs ? tile : 1];
    alignas(64) float base[2][w], limit[2][w], low[2][Form::has_low ? w : 1];  // of two tiles, each written while the other is read
    quick_shared<Arch> here;                    // the same in registers
    V amax(0), next_amax(0);                    // of this tile, and the one behind it
    vf<Arch> next_ratio(0.0f);
    const auto survey = [&](const float* p, [[maybe_unused]] std::size_t number) __attribute__((always_inline)) {
        V m[count];
#pragma GCC unroll 16
        for (std::size_t b = 0; b < count; ++b) {
            if constexpr (pairs) {
                m[b] = max_of_group<2, Arch>(as_int<Arch>(load<Arch>(p + b * w)) & V(exponent_mask));
                __builtin_prefetch(p + b * w + ahead);
                store<Arch>(of_pairs[number % 4] + b * w, m[b]);
            } else {
                m[b] = magnitude_across<Arch, each, ahead>(p + b * each * w);
            }
        }
        if constexpr (Vectors == 0)
            next_amax = maxima_of_halves<Arch>(m);
        else
            next_amax = maxima<Arch, pairs>(m);
        next_ratio = q.ratio(next_amax);
    };
    const auto share = [&](std::size_t at) __attribute__((always_inline)) {
        amax = next_amax;
        const bool served = q.template share<Sub>(amax, next_ratio, here);
        if constexpr (Vectors != 0) {
            store<Arch>(base[at], here.base);
            if constexpr (Sub == 0) store<Arch>(limit[at], here.limit);
            if constexpr (Form::has_low) store<Arch>(low[at], here.low);
        }
        return served;
    };
    survey(x, 0);
    bool served = share(0);
    survey(tiles > 1 ? x + tile : x, 1);
    for (std::size_t t = 0; t < tiles; ++t, x += tile) {
        const std::size_t at = t % 2;
        const quick_shared<Arch> mine = here;
        const V my_amax = amax;
        bool serves = served;
        if constexpr (pairs) {
            if (__builtin_expect(xsimd::any(my_amax == V(0)), 0)) serves = serves && !holds_subnormal_block<Arch>(x, my_amax);
        }
        served = share(1 - at);
        survey(tiles - t > 2 ? x + 2 * tile : x, t + 2);
        if (__builtin_expect(!serves, 0)) {
            complete(t * w, w);
            continue;
        }
#if defined(__GNUC__)
        // Broadcast from memory, which costs a load; out of a register it would be two shuffles.
        asm volatile("" : : "r"(base), "r"(limit), "r"(low) : "memory");
#endif
        const auto round = [&](std::size_t b) __attribute__((always_inline)) {
            quick_shared<Arch> shared;
            if constexpr (Vectors == 0)
                shared = {spread_halves<Arch>(mine.base, b), spread_halves<Arch>(mine.limit, b), Form::has_low ? spread_halves<Arch>(mine.low, b) : mine.low};
            else
                shared = {vf<Arch>(base[at][b]), vf<Arch>(limit[at][b]), vf<Arch>(low[at][Form::has_low ? b : 0])};
#pragma GCC unroll 2
            for (std::size_t k = 0; k < each; ++k) {
                const std::size_t i = (b * each + k) * w;
                const vf<Arch> v = rounded<Arch>(load<Arch>(x + i));  // loaded once
                if constexpr (Sub != 0) {
                    V exponents;
                    if constexpr (pairs) exponents = load<Arch>(of_pairs[t % 4] + i);
                    else exponents = max_of_group<Sub, Arch>(as_int<Arch>(v) & V(exponent_mask));
                    to.pairs(t * tile + i, exponents, as_int<Arch>(shared.base));
                    to.template put<Grid>(t * tile + i, v, q.held(shared, exponents), q);
                } else {
                    to.template put<Grid>(t * tile + i, v, shared, q);
                }
            }
        };
        if constexpr (Out::flat && each <= 2) {
#pragma GCC unroll 16
            for (std::size_t b = 0; b < count; ++b) round(b);
        } else {
#pragma GCC unroll 1
            for (std::size_t b = 0; b < count; ++b) round(b);
        }
        to.finish(t * w, Vectors == 0 ? in_block_order<Arch>(my_amax) : my_amax, q);
    }
    return tiles * w;
}

/// What an element's step depends on.
enum class element_step : std::uint8_t { unknown, block, element, pair };

/// What is known of a block format when compiling; only what it needs is compiled then.
struct block_shape {
    int size = 0;  ///< 0: any
    element_step step = element_step::unknown;
    bool one_row = false;  ///< the array is one
};
constexpr block_shape shape_of(const block_float& f) { return {f.block_size, element_step::block}; }
constexpr block_shape shape_of(const microexponent& f) { return {f.block_size, element_step::pair}; }
constexpr block_shape shape_of(const microscaling& f) { return {f.block_size, has_integer_elements(f) ? element_step::block : element_step::element}; }
constexpr block_shape shape_of(const nvfloat& f) { return {f.block_size, element_step::element}; }

/// Are there tiles of blocks of this size (and of sub-blocks of that one)?
template <class Arch>
constexpr bool has_tiles(std::size_t size, int sub_block_size) noexcept {
    constexpr std::size_t w = lanes<Arch>;
    return (sub_block_size == 0 || sub_block_size == 2) && (size == w || size == 2 * w || size == 4 * w || size == 8 * w || (w == 16 && size == 8));
}

/// Whole blocks of a row; returns how many were done: whole tiles of them, or none where the sizes do not suit.
template <class Arch, block_shape Known, class Form, class Out, class Complete>
std::size_t run_row_of_blocks(const float* x, std::size_t blocks, std::size_t size, const Form& form, const Out& out, const Complete& complete) noexcept {
    constexpr std::size_t w = lanes<Arch>, known = static_cast<std::size_t>(Known.size);
    const auto run = [&]<std::size_t Vectors, std::size_t Sub, bool Grid>() {
        if constexpr (known != 0 && (Vectors == 0 ? known != 8 : known != Vectors * w))
            return std::size_t{0};
        else
            return run_block_tiles<Arch, Vectors, Sub, Grid>(x, blocks, form, out, complete);
    };
    const auto by_step = [&]<std::size_t Vectors>() {
        if constexpr (Known.step == element_step::pair)
            return form.sub_block_size == 2 ? run.template operator()<Vectors, 2, false>() : 0;
        else if constexpr (Known.step == element_step::block)
            return run.template operator()<Vectors, 0, false>();
        else if constexpr (Known.step == element_step::element)
            return run.template operator()<Vectors, 0, true>();
        else
            return form.grid ? run.template operator()<Vectors, 0, true>() : run.template operator()<Vectors, 0, false>();
    };
    switch (size % w == 0 ? size / w : 0) {
        case 1: return by_step.template operator()<1>();
        case 2: return by_step.template operator()<2>();
        case 4: return by_step.template operator()<4>();
        case 8: return by_step.template operator()<8>();
        default: break;
    }
    if constexpr (w == 16) {
        if (size == 8) return by_step.template operator()<0>();
    }
    return 0;
}

}  // namespace qk::kernels
