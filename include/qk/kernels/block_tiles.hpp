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

/// The largest magnitude in each lane of `vectors` vectors (one, or a power of two); the floats `ahead` of them are asked for.
template <class Arch>
QK_INLINE vi<Arch> magnitude_across(const float* x, std::size_t vectors, std::size_t ahead) noexcept {
    constexpr std::size_t w = lanes<Arch>;
    const auto magnitude = [&](std::size_t k) QK_INLINE_CALL {
        __builtin_prefetch(x + k * w + ahead);
        return as_int<Arch>(load<Arch>(x + k * w)) & vi<Arch>(magnitude_bits);
    };
    vi<Arch> m = magnitude(0);
    if (vectors > 1) m = max(m, magnitude(1));
    for (std::size_t k = 2; k < vectors; k += 2) m = max(max(m, magnitude(k)), magnitude(k + 1));
    return m;
}

/// Of blocks of one vector: is there one, of those whose largest exponent field is 0, that is not all zeros?
template <class Arch>
bool holds_subnormal_block(const float* x, vi<Arch> exponents) noexcept {
    constexpr std::size_t w = lanes<Arch>;
    alignas(64) std::int32_t exponent[w];
    store<Arch>(exponent, exponents);
    for (std::size_t b = 0; b < w; ++b) {
        if (exponent[b] == 0 && any((as_int<Arch>(load<Arch>(x + b * w)) & vi<Arch>(magnitude_bits)) != vi<Arch>(0))) return true;
    }
    return false;
}

/// What becomes of the elements of a tile, or of columns: fake-quantized values. (codec/quick_blocks_encode.hpp has the other one: codes.)
template <class Arch>
struct values_of_blocks {
    static constexpr bool flat = !is_baseline<Arch>;  ///< unrolls a tile: pays only for cheap steps
    static constexpr bool any_rounding = false;       ///< half-even alone
    static constexpr bool looks_ahead = true;         ///< of columns, the maxima of the next ones are taken while these are rounded
    float* y;
    bool streaming = false;

    /// The same for values from `to` on; random bits, if there are any, go by a position, or are `words`.
    values_of_blocks at(float* to, std::size_t, bool streams, const std::uint32_t* = nullptr) const noexcept { return {to, streams}; }
    static const random_source* random() noexcept { return nullptr; }
    /// What becomes of element x at position i, with what its block shares.
    template <bool Grid, class Form>
    static QK_INLINE vf<Arch> value(std::size_t, vf<Arch> x, const quick_shared<Arch>& b, const Form& form) noexcept {
        return form.template apply<Grid>(x, b);
    }
    template <bool Grid, class Form>
    QK_INLINE void put(std::size_t i, vf<Arch> x, const quick_shared<Arch>& b, const Form& form) const noexcept {
        const vf<Arch> r = value<Grid>(i, x, b, form);
        if (streaming) return stream<Arch>(y + i, r);
        own_ahead<Arch, 1>(y + i);
        store<Arch>(y + i, r);
    }
    /// The sub-blocks of x, whose largest exponents stand in `exponents`, within a block of exponent `block` and less.
    void pairs(std::size_t, vi<Arch>, vi<Arch>) const noexcept {}
    /// The tile that starts at block `first` is done; amax of its blocks.
    template <class Form>
    void finish(std::size_t, vi<Arch>, const Form&) const noexcept {}
};

/// How blocks lie in vectors: two of 8 in one of 16, one in one, or one in several (2, 4 or 8); `any` finds out when running.
enum class block_fit : std::uint8_t { half, one, many, any };

/// Tiles of as many blocks of `size` as there are lanes (of halves: 8 vectors of two). What blocks share is computed once for a tile, and two tiles
/// before it is rounded, so that nothing waits for the chain of loads, shuffles and maxima. `Each` is the number of vectors of a block, 0: found out when
/// running. complete(first, count) does the blocks of a tile that the short form declines. Returns how many blocks were done.
template <class Arch, block_fit Fit, std::size_t Each, bool Pairs, bool Grid, class Form, class Out, class Complete>
std::size_t run_block_tiles(const float* first, std::size_t blocks, std::size_t size, const Form& form, const Out& out, const Complete& complete) noexcept {
    constexpr std::size_t w = lanes<Arch>;
    constexpr bool any_fit = Fit == block_fit::any;
    using V = vi<Arch>;
    const std::size_t tiles = blocks / w;
    if (tiles == 0) return 0;
    const bool half = Fit == block_fit::half || (any_fit && w == 16 && size < w);
    const std::size_t each = Each != 0 ? Each : half || Fit == block_fit::one ? 1 : size / w, count = half ? w / 2 : w, tile = count * each * w;
    const std::size_t ahead = std::max<std::size_t>(tile + 128, 448);  // of a survey: the tile behind it, and no multiple of it
    const Form q = form;  // its constants in registers
    const Out to = out;
    // With a vector a block, the exponents of its pairs are found once, for its maximum and for its elements.
    constexpr bool stored_pairs = Pairs && Fit == block_fit::one && w == 16;
    const bool pairs = any_fit ? q.sub_block_size != 0 : Pairs;
    alignas(64) std::int32_t of_pairs[stored_pairs ? 4 : 1][stored_pairs ? w * w : 1];
    alignas(64) float base[2][w], limit[2][w], low[2][Form::has_low ? w : 1];  // of two tiles, each written while the other is read
    quick_shared<Arch> here{};                  // the same in registers
    V amax(0), next_amax(0);                    // of the tile that is rounded next, and the one behind it
    vf<Arch> next_ratio(0.0f);
    const auto survey = [&](const float* p, [[maybe_unused]] std::size_t number) __attribute__((always_inline)) {
        V m[w];
        const auto of_block = [&](std::size_t b) QK_INLINE_CALL {
            if constexpr (stored_pairs) {
                __builtin_prefetch(p + b * w + ahead);
                m[b] = max_of_group<2, Arch>(as_int<Arch>(load<Arch>(p + b * w)) & V(exponent_mask));
                store<Arch>(of_pairs[number % 4] + b * w, m[b]);
            } else {
                m[b] = magnitude_across<Arch>(p + b * each * w, each, ahead);
            }
        };
        if constexpr (any_fit) {
#pragma GCC unroll 1
            for (std::size_t b = 0; b < count; ++b) of_block(b);
        } else {
#pragma GCC unroll 16
            for (std::size_t b = 0; b < (Fit == block_fit::half ? w / 2 : w); ++b) of_block(b);
        }
        if constexpr (w == 16 && (any_fit || Fit == block_fit::half)) {
            if (half) next_amax = maxima_of_halves<Arch>(m);
        }
        if constexpr (Fit != block_fit::half) {
            if (!half) next_amax = maxima<Arch, stored_pairs>(m);
        }
        next_ratio = q.ratio(next_amax);
    };
    const auto share = [&](std::size_t at) __attribute__((always_inline)) {
        amax = next_amax;
        bool served = false;
        if constexpr (any_fit || Pairs) {
            if (pairs) served = q.template share<2>(amax, next_ratio, here);
        }
        if constexpr (any_fit || !Pairs) {
            if (!pairs) served = q.template share<0>(amax, next_ratio, here);
        }
        if constexpr (Fit != block_fit::half) {
            store<Arch>(base[at], here.base);
            if (!pairs) store<Arch>(limit[at], here.limit);
            if constexpr (Form::has_low) store<Arch>(low[at], here.low);
        }
        return served;
    };
    bool served = true;
    for (std::size_t step = 0; step < tiles + 2; ++step) {  // which surveys its tile, shares in the one before, and rounds the one before that
        const std::size_t at = step % 2;
        const quick_shared<Arch> mine = here;
        const V my_amax = amax;
        bool serves = served;
        served = share(1 - at);
        survey(step < tiles ? first + step * tile : first, step);
        if (step < 2) continue;
        const std::size_t t = step - 2;
        const float* x = first + t * tile;
        if constexpr (stored_pairs) {
            if (__builtin_expect(any(my_amax == V(0)), 0)) serves = serves && !holds_subnormal_block<Arch>(x, my_amax);
        }
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
            if (half)
                shared = {spread_halves<Arch>(mine.base, b), spread_halves<Arch>(mine.limit, b), Form::has_low ? spread_halves<Arch>(mine.low, b) : mine.low};
            else
                shared = {vf<Arch>(base[at][b]), vf<Arch>(limit[at][b]), vf<Arch>(low[at][Form::has_low ? b : 0])};
            const auto vector = [&](std::size_t k) __attribute__((always_inline)) {
                const std::size_t i = (b * each + k) * w;
                const vf<Arch> v = rounded<Arch>(load<Arch>(x + i));  // loaded once
                quick_shared<Arch> own = shared;
                if constexpr ((any_fit || Pairs) && requires { q.held(own, V(0)); }) {
                    if (pairs) {
                        V exponents;
                        if constexpr (stored_pairs) exponents = load<Arch>(of_pairs[t % 4] + i);
                        else exponents = max_of_group<2, Arch>(as_int<Arch>(v) & V(exponent_mask));
                        to.pairs(t * tile + i, exponents, as_int<Arch>(shared.base));
                        own = q.held(shared, exponents);
                    }
                }
                to.template put<Grid>(t * tile + i, v, own, q);
            };
            vector(0);
            if (each > 1) vector(1);
#pragma GCC unroll 1
            for (std::size_t k = 2; k < each; k += 2) {
                vector(k);
                vector(k + 1);
            }
        };
        if constexpr (Out::flat && Fit != block_fit::any && Each != 0 && Each <= 2) {
#pragma GCC unroll 16
            for (std::size_t b = 0; b < (Fit == block_fit::half ? w / 2 : w); ++b) round(b);
        } else {
#pragma GCC unroll 1
            for (std::size_t b = 0; b < count; ++b) round(b);
        }
        if constexpr (w == 16) to.finish(t * w, half ? in_block_order<Arch>(my_amax) : my_amax, q);
        else to.finish(t * w, my_amax, q);
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
    const bool small = (w == 16 && size == 8) || (w > 4 && size == w);
    return (sub_block_size == 0 || sub_block_size == 2) && (small || size == 2 * w || size == 4 * w || size == 8 * w);
}

/// Whole blocks of a row; returns how many were done: whole tiles of them, or none where the sizes do not suit.
template <class Arch, block_shape Known, class Form, class Out, class Complete>
std::size_t run_row_of_blocks(const float* x, std::size_t blocks, std::size_t size, const Form& form, const Out& out, const Complete& complete) noexcept {
    constexpr std::size_t w = lanes<Arch>, known = static_cast<std::size_t>(Known.size);
    if (!has_tiles<Arch>(size, form.sub_block_size)) return 0;
    if constexpr (Out::any_rounding) {
        return run_block_tiles<Arch, block_fit::any, 0, false, false>(x, blocks, size, form, out, complete);
    } else {
        const auto by_step = [&]<block_fit Fit, std::size_t Each>() {
            const auto run = [&]<bool Pairs, bool Grid>() { return run_block_tiles<Arch, Fit, Each, Pairs, Grid>(x, blocks, size, form, out, complete); };
            if constexpr (Known.step == element_step::pair) return run.template operator()<true, false>();
            else if constexpr (Known.step == element_step::block) return run.template operator()<false, false>();
            else if constexpr (Known.step == element_step::element) return run.template operator()<false, true>();
            else if (form.grid) return run.template operator()<false, true>();
            else return form.sub_block_size != 0 ? run.template operator()<true, false>() : run.template operator()<false, false>();
        };
        if constexpr (known != 0) {
            if constexpr (!has_tiles<Arch>(known, 0)) return 0;
            else if constexpr (known < w) return by_step.template operator()<block_fit::half, 1>();
            else if constexpr (known == w) return by_step.template operator()<block_fit::one, 1>();
            else return by_step.template operator()<block_fit::many, known / w>();
        } else {
            if constexpr (w == 16) {
                if (size < w) return by_step.template operator()<block_fit::half, 1>();
            }
            if constexpr (w > 4) {
                if (size == w) return by_step.template operator()<block_fit::one, 1>();
            }
            return by_step.template operator()<block_fit::many, 0>();
        }
    }
}

}  // namespace qk::kernels
