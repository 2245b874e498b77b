// SPDX-License-Identifier: Apache-2.0
// Runs the fast form over blocks that lie in a row, in tiles of as many blocks as a vector has lanes.
#pragma once

#include <algorithm>
#include <span>

#include "qk/inline.hpp"
#include "qk/kernels/drivers/general_blocks.hpp"
#include "qk/kernels/drivers/range_call.hpp"
#include "qk/kernels/lanes/maxima.hpp"
#include "qk/kernels/lanes/streaming.hpp"
#include "qk/kernels/steps/fast_blocks.hpp"

namespace qk::kernels {

/// The general form of any step, behind one type. It runs the blocks that the fast form does not cover, odd block sizes and ragged ends.
template <class Arch>
struct general_form {
    const void* step;
    void (*groups)(const void* step, const block_group& all) noexcept;

    template <class Step>
    explicit general_form(const Step& s) noexcept
        : step(&s), groups([](const void* p, const block_group& all) noexcept { run_groups<Arch>(all, *static_cast<const Step*>(p)); }) {}

    /// Runs `count` blocks of `size` elements that lie in a row; x[0] stands at `position` of the caller's span.
    void row(const float* x, float* y, std::size_t size, std::size_t count, std::size_t position) const noexcept {
        groups(step, {x, y, size, 1, count, size, position});
    }
};

/// Is true for one in each 64 bytes of consecutive vectors (number k), so that each cache line is prefetched once.
template <class Arch>
constexpr bool starts_line(std::size_t k) noexcept {
    constexpr std::size_t in_line = lanes<Arch> < 16 ? 16 / lanes<Arch> : 1;
    return k % in_line == 0;
}

/// Returns, lane by lane, the largest magnitude of `vectors` vectors of p (a power of two; one only if `MayBeOne`), of which the first is
/// number `first`. `Prefetches` what lies `ahead` floats further on.
template <class Arch, bool MayBeOne, bool Prefetches>
QK_INLINE vi<Arch> magnitude_across(const float* p, std::size_t first, std::size_t vectors, std::size_t ahead, vi<Arch> mask) noexcept {
    constexpr std::size_t w = lanes<Arch>;
    const float* x = p + first * w;
    const auto magnitude = [&](std::size_t k) QK_INLINE_CALL {
        if (Prefetches && starts_line<Arch>(first + k)) __builtin_prefetch(x + k * w + ahead);
        return as_int<Arch>(load<Arch>(x + k * w)) & mask;
    };
    vi<Arch> m = magnitude(0);
    if (!MayBeOne || vectors > 1) m = max(m, magnitude(1));
    for (std::size_t k = 2; k < vectors; k += 2) m = max(max(m, magnitude(k)), magnitude(k + 1));
    return m;
}

/// Is true when a block of the tile at x has subnormals but no normal values. Lane b of `exponents` is the largest exponent field of block
/// b; a block has `each` vectors.
template <class Arch>
bool holds_subnormal_block(const float* x, std::size_t each, vi<Arch> exponents) noexcept {
    constexpr std::size_t w = lanes<Arch>;
    alignas(64) std::int32_t exponent[w];
    store<Arch>(exponent, exponents);
    for (std::size_t v = 0; v < w * each; ++v) {
        if (exponent[v / each] == 0 && any((as_int<Arch>(load<Arch>(x + v * w)) & vi<Arch>(magnitude_bits)) != vi<Arch>(0))) return true;
    }
    return false;
}

/// The output `Out` of the drivers that stores elements of a tile, or of columns, as fake-quantized values. (codec/encode/fast_blocks.hpp
/// has the one that stores codes.)
template <class Arch>
struct values_of_blocks {
    static constexpr bool flat = !is_baseline<Arch>;  ///< unrolls a tile: pays only for cheap steps
    static constexpr bool compact = false;            ///< unrolls nothing
    static constexpr bool any_rounding = false;       ///< may round otherwise than half-even
    static constexpr bool in_fours = false;           ///< takes four vectors at a time
    static constexpr bool may_stream = true;          ///< has put<Grid, true>, which stores past the caches
    static constexpr bool reads_ahead = false;        ///< writes little: tiles to come are prefetched while elements are rounded
    static constexpr bool looks_ahead = true;         ///< columns: takes the maxima of the next ones while it rounds these
    float* y;
    bool streaming = false;

    /// Returns the output for values from `to` on. Random bits, where they are used, go by the second parameter, the position of `to` in
    /// the caller's span, or are `words`.
    values_of_blocks at(float* to, std::size_t, bool streams, const std::uint32_t* = nullptr) const noexcept { return {to, streams}; }
    static const random_source* random() noexcept { return nullptr; }
    /// Rounds the vector x at position i by what its block shares.
    template <bool Grid, class Form>
    static QK_INLINE vf<Arch> value(std::size_t, vf<Arch> x, const typename Form::shared_type& b, const Form& form) noexcept {
        return form.template apply<Grid>(x, b);
    }
    /// Rounds the vector x and stores it at position i. `ahead`: also prefetches, for writing, the line that a later vector goes to.
    template <bool Grid, bool Streams, class Form>
    QK_INLINE void put(std::size_t i, bool ahead, vf<Arch> x, const typename Form::shared_type& b, const Form& form) const noexcept {
        const vf<Arch> r = value<Grid>(i, x, b, form);
        if constexpr (Streams) return stream<Arch>(y + i, r);
        if (ahead) own_ahead<Arch, 1>(y + i);
        store<Arch>(y + i, r);
    }
    /// Takes, for the vector at position i, the largest exponent of each pair (sub-block) and the least exponent that its block allows.
    void pairs(std::size_t, vi<Arch>, vi<Arch>) const noexcept {}
    /// Is called when the tile that starts at block `first` is rounded, with amax of its blocks and the form's ratio() of that.
    template <class Form>
    void finish(std::size_t, vi<Arch>, vf<Arch>, const Form&) const noexcept {}
};

/// How blocks lie in vectors: two blocks of 8 in a vector of 16 lanes, one block in one vector, or one block in 2, 4 or 8 vectors.
enum class block_fit : std::uint8_t { half, one, many };

/// A tile: as many blocks as a vector has lanes (of halves: 8 vectors of two blocks). `Each` is the number of vectors of a block, 0 if
/// known only when running.
template <class Arch, block_fit Fit, std::size_t Each, bool Pairs>
struct tile_shape {
    static constexpr std::size_t w = lanes<Arch>;
    /// The exponents of pairs in blocks of one or two vectors are found once, for the maximum of the block and for its elements.
    static constexpr bool stores_pairs = Pairs && w > 4 && (Fit == block_fit::one || (Fit == block_fit::many && Each == 2));
    static constexpr bool half = Fit == block_fit::half, pairs = Pairs;
    static constexpr std::size_t known_each = Each;
    static constexpr std::size_t count = half ? w / 2 : w;

    std::size_t given;                   ///< vectors of a block, where that is not known when compiling
    vi<Arch> halves[half ? count : 1];   ///< the lanes that spread_halves() takes for each vector, kept in registers
    vi<Arch> magnitude{magnitude_bits};  ///< the mask that leaves an element's magnitude

    QK_INLINE explicit tile_shape(std::size_t size) noexcept : given(size / w) {
        if constexpr (half) {
            unrolled<count>([&](auto i) QK_INLINE_CALL { halves[i] = opaque<Arch>(lanes_of_halves<Arch>(i)); });
            magnitude = opaque<Arch>(magnitude);  // in a register: small tiles would make it anew too often
        }
    }
    QK_INLINE std::size_t each() const noexcept { return Each != 0 ? Each : given; }
    QK_INLINE std::size_t floats() const noexcept { return count * each() * w; }
    /// How many floats ahead a survey prefetches: `distance` past its own tile, and no multiple of a tile.
    QK_INLINE std::size_t ahead(std::size_t distance) const noexcept { return std::max<std::size_t>(floats() + distance, 448); }
};

/// What blocks share, in memory: an array for each part, with an entry for each block.
template <class Arch, class Shared, std::size_t Blocks>
struct shared_memory {
    alignas(64) float parts[std::size(Shared::parts)][Blocks];

    shared_memory() noexcept {}  // leaves the arrays uninitialised
    /// Stores what the blocks in the lanes of `s` share, from block `first` on. `FirstPart` stores the first part alone: sub-blocks compute
    /// the others.
    template <bool FirstPart>
    QK_INLINE void put(std::size_t first, const Shared& s) noexcept {
        unrolled<FirstPart ? 1 : std::size(Shared::parts)>([&](auto p)
                                                               QK_INLINE_CALL { store<Arch>(parts[p] + first, s.*Shared::parts[p]); });
    }
    /// Returns what block b shares, in every lane.
    QK_INLINE Shared broadcast(std::size_t b) const noexcept {
        Shared s;
        unrolled<std::size(Shared::parts)>([&](auto p) QK_INLINE_CALL { s.*Shared::parts[p] = vf<Arch>(parts[p][b]); });
        return s;
    }
};

/// What the blocks of two tiles share: the values of one tile are written while those of the other are read.
template <class Arch, class Shape, class Form>
struct tile_memory {
    static constexpr std::size_t w = lanes<Arch>;
    alignas(64) std::int32_t of_pairs[Shape::stores_pairs ? 4 : 1][Shape::stores_pairs ? Shape::known_each * w * w : 1];
    shared_memory<Arch, typename Form::shared_type, 2 * w> shared;

    tile_memory() noexcept {}  // leaves the arrays uninitialised
};

/// Returns the largest magnitude of each block of the tile at p, a lane each (of halves in the order of maxima_of_halves). Where `Shape`
/// stores pairs, stores their exponents and returns exponent fields only. `Prefetches` what lies `ahead` floats further on.
template <class Arch, bool Prefetches, class Shape>
QK_INLINE vi<Arch> survey_tile(const Shape& shape, const float* p, [[maybe_unused]] std::size_t ahead,
                               [[maybe_unused]] std::int32_t* exponents) noexcept {
    constexpr std::size_t w = lanes<Arch>;
    using V = vi<Arch>;
    V m[w];
    const auto of_block = [&](std::size_t b) QK_INLINE_CALL {
        if constexpr (Shape::stores_pairs) {
            const auto of_vector = [&](std::size_t v) QK_INLINE_CALL {
                if (Prefetches && starts_line<Arch>(v)) __builtin_prefetch(p + v * w + ahead);
                const V of_pairs = max_of_group<2, Arch>(as_int<Arch>(load<Arch>(p + v * w)) & V(exponent_mask));
                store<Arch>(exponents + v * w, of_pairs);
                return of_pairs;
            };
            m[b] = of_vector(b * Shape::known_each);
            if constexpr (Shape::known_each == 2) m[b] = max(m[b], of_vector(2 * b + 1));
        } else {
            m[b] = magnitude_across<Arch, true, Prefetches>(p, b * shape.each(), shape.each(), ahead, shape.magnitude);
        }
    };
    if constexpr (Shape::known_each != 0) {
        unrolled<Shape::count>([&](auto b) QK_INLINE_CALL { of_block(b); });
    } else {  // by way of memory: two nested loops, unrolled, would be much code
        alignas(64) std::int32_t across[Shape::count * w];
#pragma GCC unroll 1
        for (std::size_t b = 0; b < Shape::count; ++b)
            store<Arch>(across + b * w,
                        magnitude_across<Arch, false, Prefetches>(p, b * shape.each(), shape.each(), ahead, shape.magnitude));
        unrolled<Shape::count>([&](auto b) QK_INLINE_CALL { m[b] = load<Arch>(across + b * w); });
    }
    if constexpr (Shape::half) return maxima_of_halves<Arch>(m);
    else return maxima<Arch, Shape::stores_pairs>(m);
}

/// Computes what blocks of these maxima share, in registers (`here`) and in memory. Returns false if the fast form does not cover one of
/// them.
template <class Arch, class Shape, class Memory, class Form>
QK_INLINE bool share_tile(const Shape&, Memory& memory, std::size_t at, const Form& q, vi<Arch> amax, vf<Arch> ratio,
                          typename Form::shared_type& here) noexcept {
    const bool served = q.template share<(Shape::pairs ? 2 : 0)>(amax, ratio, here);
    if constexpr (!Shape::half) memory.shared.template put<Shape::pairs>(at * lanes<Arch>, here);
    return served;
}

/// Hands block b (of halves: vector b) of tile t, which starts at x, to `to`, which rounds and stores it. `Prefetches` what lies `ahead`
/// floats past the tile that is surveyed.
template <class Arch, bool Grid, bool Streams, bool Prefetches, class Shape, class Memory, class Form, class Out>
QK_INLINE void round_block(const Shape& shape, const Memory& memory, std::size_t t, std::size_t b, const float* x, std::size_t ahead,
                           const typename Form::shared_type& mine, const Form& q, const Out& to) noexcept {
    constexpr std::size_t w = lanes<Arch>;
    const std::size_t at = t % 2, each = shape.each();
    using shared_type = typename Form::shared_type;
    shared_type shared;
    if constexpr (Shape::half) {
        unrolled<std::size(shared_type::parts)>([&](auto p) QK_INLINE_CALL {
            shared.*shared_type::parts[p] = spread_halves<Arch>(mine.*shared_type::parts[p], shape.halves[b]);
        });
    } else {
        shared = memory.shared.broadcast(at * w + b);
    }
    // Otherwise g++ broadcasts the limit twice, once negated for the clamp, which takes a shuffle more.
    if constexpr (w == 8 && !Shape::pairs) shared.*shared_type::parts[1] = opaque<Arch>(shared.*shared_type::parts[1]);
    const auto vector = [&](std::size_t k) QK_INLINE_CALL {
        const std::size_t i = (b * each + k) * w;
        if (Prefetches && starts_line<Arch>(b * each + k)) __builtin_prefetch(x + i + 2 * shape.floats() + ahead);
        const vf<Arch> v = opaque<Arch>(load<Arch>(x + i));  // loaded once
        shared_type own = shared;
        if constexpr (Shape::pairs) {
            vi<Arch> exponents;
            if constexpr (Shape::stores_pairs) exponents = load<Arch>(memory.of_pairs[t % 4] + i);
            else exponents = max_of_group<2, Arch>(as_int<Arch>(v) & vi<Arch>(exponent_mask));
            to.pairs(t * shape.floats() + i, exponents, as_int<Arch>(shared.base));
            own = q.held(shared, exponents);
        }
        to.template put<Grid, Streams>(t * shape.floats() + i, starts_line<Arch>(b * each + k), v, own, q);
    };
    if constexpr (Out::compact) {
#pragma GCC unroll 1
        for (std::size_t k = 0; k < each; ++k) vector(k);
    } else {
        vector(0);
        if (Shape::known_each == 0 || each > 1) vector(1);  // block_fit::many
#pragma GCC unroll 1
        for (std::size_t k = 2; k < each; k += 2) {
            vector(k);
            vector(k + 1);
        }
    }
}

/// Is true when results are stored past the caches.
template <class Out>
QK_INLINE bool streams_tiles(const Out& to) noexcept {
    if constexpr (Out::may_stream) return to.streaming;
    else return false;
}

/// Runs the whole tiles of blocks of `size` that lie in a row from x on, and returns how many blocks these hold. A tile is surveyed two
/// steps, and what its blocks share is computed one step, before it is rounded, so that nothing waits for the chain of loads, shuffles and
/// maxima. general(first, count) runs the blocks of a tile that the fast form does not cover.
template <class Arch, block_fit Fit, std::size_t Each, bool Pairs, bool Grid, class Form, class Out>
std::size_t run_block_tiles(const float* x, std::size_t blocks, std::size_t size, const Form& form, const Out& out,
                            const range_call& general) noexcept {
    constexpr std::size_t w = lanes<Arch>;
    using V = vi<Arch>;
    using shape_type = tile_shape<Arch, Fit, Each, Pairs>;
    constexpr bool late = Out::reads_ahead && Fit == block_fit::many && !Pairs;  // prefetches evenly, not in the short time of a survey
    const std::size_t tiles = blocks / w;
    if (tiles == 0) return 0;
    const Form q = form;  // a copy, whose constants stay in registers
    std::conditional_t<Out::any_rounding, Out, const Out> to = out;
    [[maybe_unused]] alignas(64) std::uint32_t words[Out::any_rounding ? 8 * w * w : 1];  // room for the largest tile
    const shape_type shape(size);
    // What streams has code of its own for data from memory.
    const std::size_t ahead = shape.ahead(Out::may_stream ? read_distance : distance_in_row(blocks * size));
    tile_memory<Arch, shape_type, Form> memory;
    typename Form::shared_type here{};  // what `memory` holds, in registers
    V amax(0), next_amax(0);            // of the tile that is rounded next, and of the one behind it
    vf<Arch> ratio(0.0f), next_ratio(0.0f);
    bool served = true;
    for (std::size_t step = 0; step < tiles + 2; ++step) {  // surveys tile `step`, shares in the one before, rounds the one before that
        const std::size_t t = step - 2;
        const float* p = x + t * shape.floats();
        const typename Form::shared_type mine = here;
        const V my_amax = amax;
        const vf<Arch> my_ratio = ratio;
        bool serves = served;
        amax = next_amax;
        ratio = next_ratio;
        served = share_tile<Arch>(shape, memory, 1 - step % 2, q, amax, ratio, here);
        if (step < tiles) {
            next_amax = survey_tile<Arch, !late>(shape, x + step * shape.floats(), ahead,
                                                 memory.of_pairs[step % (shape_type::stores_pairs ? 4 : 1)]);
            next_ratio = q.ratio(next_amax);
        }
        if (step < 2) continue;
        if constexpr (shape_type::stores_pairs) {
            if (__builtin_expect(any(my_amax == V(0)), 0)) serves = serves && !holds_subnormal_block<Arch>(p, shape.each(), my_amax);
        }
        if (__builtin_expect(!serves, 0)) {
            general(t * w, w);
            continue;
        }
        if constexpr (Out::any_rounding) to.make_words(words, t * shape.floats(), shape.floats());
#if defined(__GNUC__)
        // Makes the compiler broadcast from memory, which costs a load; out of a register it would take two shuffles. (What halves share is
        // spread from registers.)
        if constexpr (!shape_type::half) asm volatile("" : : "r"(&memory) : "memory");
#endif
        const auto one_by_one = [&](auto streams) QK_INLINE_CALL {
#pragma GCC unroll 1
            for (std::size_t b = 0; b < shape_type::count; ++b)
                round_block<Arch, Grid, streams, late || streams>(shape, memory, t, b, p, streams ? shape.ahead(memory_distance) : ahead,
                                                                  mine, q, to);
        };
        if (streams_tiles(to)) {
            one_by_one(std::true_type());
        } else if constexpr (Out::flat && Each != 0 && Each <= 2) {
#pragma GCC unroll 16
            for (std::size_t b = 0; b < shape_type::count; ++b)
                round_block<Arch, Grid, false, late>(shape, memory, t, b, p, ahead, mine, q, to);
        } else {
            one_by_one(std::false_type());
        }
        if constexpr (shape_type::half)
            to.finish(t * w, in_block_order<Arch>(my_amax), as_float<Arch>(in_block_order<Arch>(as_int<Arch>(my_ratio))), q);
        else to.finish(t * w, my_amax, my_ratio, q);
    }
    return tiles * w;
}

}  // namespace qk::kernels
