// SPDX-License-Identifier: Apache-2.0
// Runs the fast form over blocks that lie in a row, in tiles of as many blocks as a vector has lanes. What it stores is up to its output:
// values (values_of_blocks) or codes (codec/encode/fast_blocks.hpp).
//
// It reads from its entry, run_rows_of_blocks, downwards, and is long because a tile, the two loops over tiles and what feeds them are one
// idea: rows_of_blocks gathers what does not fill tiles; run_row_of_blocks chooses between the loops by what is known when compiling;
// run_block_tiles has survey, sharing and rounding of three tiles in flight; run_tile_stretches is for outputs that take four vectors at a
// time; what both are made of stands behind them.
#pragma once

#include <algorithm>
#include <bit>
#include <span>

#include "qk/inline.hpp"
#include "qk/isa.hpp"
#include "qk/kernels/drivers/general.hpp"
#include "qk/kernels/drivers/range_call.hpp"
#include "qk/lanes/maxima.hpp"
#include "qk/lanes/streaming.hpp"
#include "qk/steps/blocks.hpp"
#include "qk/trace.hpp"

namespace qk::kernels {
inline namespace QK_ISA {

/// Is true for forms of blocks that may have sub-blocks.
template <class Form, class Arch>
concept may_have_sub_blocks = requires(const Form& form, const typename Form::shared_type& b) {
    form.held(b, vi<Arch>(0));
};

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

/// How much of a tile an output rounds in code side by side. A tile pays only for cheap steps.
enum class unrolled_part : std::uint8_t { nothing, two_vectors, tile };

/// What the drivers ask of an output when compiling.
struct output_traits {
    unrolled_part unrolls = unrolled_part::two_vectors;
    bool any_rounding = false;  ///< may round otherwise than half-even
    bool in_fours = false;      ///< takes four vectors at a time
    bool may_stream = false;    ///< has put<Grid, true>, which stores past the caches
    bool reads_ahead = false;   ///< writes little: tiles to come are prefetched while elements are rounded
};

/// The output `Out` of the drivers that stores elements of a tile, or of columns, as fake-quantized values. (codec/encode/fast_blocks.hpp
/// has the one that stores codes.)
template <class Arch>
struct values_of_blocks {
    static constexpr output_traits traits{.unrolls = is_baseline<Arch> ? unrolled_part::two_vectors : unrolled_part::tile,
                                          .may_stream = true};
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

/// values_of_blocks for any rounding; the drivers get the form `rounded.fast`. `OneStep`: each block has
/// one step.
template <class Arch, class Rounded, bool OneStep = false>
struct rounded_values_of_blocks {
    static constexpr output_traits traits{.any_rounding = true};
    float* y;
    Rounded rounded;
    std::size_t position = 0;  ///< of the first value in the caller's span
    bool streaming = false;

    rounded_values_of_blocks at(float* to, std::size_t first, bool streams, const std::uint32_t* words = nullptr) const noexcept {
        rounded_values_of_blocks there{to, rounded, first, streams};
        if (words != nullptr && random() != nullptr) there.rounded.rounds.random.words = words;
        return there;
    }
    /// Makes the random words of n values from number i on, in `to` (fast_rounding).
    QK_INLINE void make_words(std::uint32_t* to, std::size_t i, std::size_t n) noexcept { rounded.rounds.make_words(to, position + i, n); }
    /// Returns the source of the random bits that elements are rounded by, or null if they are not.
    const random_source* random() const noexcept { return rounded.rounds.random.used ? &rounded.rounds.random : nullptr; }
    template <bool, class Form>
    QK_INLINE vf<Arch> value(std::size_t i, vf<Arch> x, const typename Form::shared_type& b, const Form&) const noexcept {
        return rounded.template value<OneStep>(position + i, x, b);
    }
    template <bool Grid, bool, class Form>
    QK_INLINE void put(std::size_t i, bool, vf<Arch> x, const typename Form::shared_type& b, const Form& form) const noexcept {
        store<Arch>(y + i, value<Grid>(i, x, b, form));
    }
    void pairs(std::size_t, vi<Arch>, vi<Arch>) const noexcept {}
    template <class Form>
    void finish(std::size_t, vi<Arch>, vf<Arch>, const Form&) const noexcept {}
};

// ---- from the entry down

template <class Arch, block_shape Known, class Form, class Out>
struct rows_of_blocks;

/// Runs the blocks along the last axis (inner == 1).
template <class Arch, block_shape Known, class Form, class Out>
void run_rows_of_blocks(const float* x, float* y, along_axis axis, std::size_t size, const Form& form, const Out& out,
                        const general_form<Arch>& general) noexcept {
    const std::size_t whole = axis.length / size, rest = axis.length % size;
    // Without a ragged last block all rows are one row.
    const std::size_t rows = rest == 0 ? 1 : axis.outer, blocks = rest == 0 ? axis.outer * whole : whole;
    const bool aligned = reinterpret_cast<std::uintptr_t>(y) % sizeof(vf<Arch>) == 0 && (rows == 1 || axis.length % lanes<Arch> == 0);
    const bool streaming = aligned && streams<Arch>(x, y, axis.outer * axis.length);
    rows_of_blocks<Arch, Known, Form, Out> all(x, y, size, form, out, general);
    for (std::size_t o = 0; o < rows; ++o) {
        const std::size_t at = o * axis.length;
        const std::size_t done = all.run(at, blocks, streaming);
        for (std::size_t k = done; k < blocks; ++k) all.add(at + k * size, size);
        if (rest != 0) all.add(at + blocks * size, rest);
    }
    all.finish();
    if (streaming) end_streaming<Arch>();
}

template <class Arch>
struct gathered_blocks;
template <class Arch, block_shape Known, class Form, class Out>
std::size_t run_row_of_blocks(const float* x, std::size_t blocks, std::size_t size, const Form& form, const Out& out,
                              const range_call& general) noexcept;

/// Runs blocks of `size` in tiles, from a row or gathered from several: `form` computes what they share, `out` rounds.
template <class Arch, block_shape Known, class Form, class Out>
struct rows_of_blocks {
    const float* x;
    float* y;
    std::size_t size;
    const Form& form;
    const Out& out;
    const general_form<Arch>& general;
    gathered_blocks<Arch> gathered;

    rows_of_blocks(const float* from, float* to, std::size_t block_size, const Form& f, const Out& o, const general_form<Arch>& c) noexcept
        : x(from), y(to), size(block_size), form(f), out(o), general(c) {}

    /// Runs the general form on blocks that the fast form does not cover, in the row at `at` or among the gathered ones.
    struct declined {
        rows_of_blocks* all;
        std::size_t at;
        bool is_gathered;
        void operator()(std::size_t first, std::size_t count) const noexcept {
            if (!is_gathered) {
                const std::size_t begin = at + first * all->size;
                return all->general.row(all->x + begin, all->y + begin, all->size, count, begin);
            }
            for (std::size_t k = first; k < std::min(first + count, all->gathered.count); ++k) {
                auto& p = all->gathered.places[k];
                all->general.row(all->x + p.at, all->y + p.at, p.length, 1, p.at);
                p.length = 0;  // done: put_back() has nothing to copy
            }
        }
    };

    /// Runs the whole tiles among `blocks` blocks from `at` on and returns how many blocks these hold.
    std::size_t run(std::size_t at, std::size_t blocks, bool streaming) noexcept {
        QK_TRACE("block_rows", at, blocks * size, Form, Out);
        return run_row_of_blocks<Arch, Known>(x + at, blocks, size, form, out.at(y + at, at, streaming),
                                              range_call(declined{this, at, false}));
    }
    void add(std::size_t at, std::size_t length) noexcept {
        gathered.add(x, at, length, size, out.random());
        if (gathered.count == gathered.room(size)) finish();
    }
    void finish() noexcept {
        const std::size_t count = gathered.count, whole = (count + lanes<Arch> - 1) / lanes<Arch> * lanes<Arch>;
        std::fill(gathered.values + count * size, gathered.values + whole * size, 0.0f);
        if (count != 0) QK_TRACE("block_rows, gathered", gathered.places[0].at, count * size, Form, Out);
        if (out.random() != nullptr) std::fill(gathered.words + count * size, gathered.words + whole * size, 0u);
        run_row_of_blocks<Arch, Known>(gathered.values, whole, size, form, out.at(gathered.values, 0, false, gathered.words),
                                       range_call(declined{this, 0, true}));
        for (std::size_t k = 0; k < count; ++k) gathered.put_back(y, k, size);
        gathered.count = 0;
    }
};

/// A buffer for blocks of rows that do not fill tiles: they are taken from several rows and lie side by side; a short one is padded with
/// zeros.
template <class Arch>
struct gathered_blocks {
    static constexpr std::size_t floats = 4096;
    alignas(64) float values[floats];
    alignas(64) std::uint32_t words[floats];  ///< random bits of the values
    struct place {
        std::size_t at, length;
    } places[floats / 8];
    std::size_t count = 0;

    gathered_blocks() noexcept {}  // leaves the arrays uninitialised

    /// How many blocks of `size` are gathered before they are run: as many as fill whole tiles.
    static constexpr std::size_t room(std::size_t size) { return floats / size / lanes<Arch> * lanes<Arch>; }
    void add(const float* x, std::size_t at, std::size_t length, std::size_t size, const random_source* random) noexcept {
        constexpr std::size_t w = lanes<Arch>;
        if (random != nullptr) {
            store_random<Arch>(*random, at, length, words + count * size);
            std::fill(words + count * size + length, words + (count + 1) * size, 0u);
        }
        float* to = values + count * size;
        places[count++] = {at, length};
        if (is_whole(length, size)) return copy_whole(x + at, to, size);
        for (std::size_t k = 0; k < size; k += w) {
            const std::size_t some = length > k ? std::min(length - k, w) : 0;
            store_first<Arch>(to + k, std::min(size, w), some == w ? load<Arch>(x + at + k) : load_first<Arch>(x + at + k, some));
        }
    }
    /// Copies the k-th block, without padding, to its place in y.
    void put_back(float* y, std::size_t k, std::size_t size) const noexcept {
        constexpr std::size_t w = lanes<Arch>;
        const auto [at, length] = places[k];
        const float* from = values + k * size;
        if (is_whole(length, size)) return copy_whole(from, y + at, size);
        for (std::size_t i = 0; i < length; i += w)
            store_first<Arch>(y + at + i, std::min(length - i, w), load_first<Arch>(from + i, std::min(size, w)));
    }

  private:
    static bool is_whole(std::size_t length, std::size_t size) noexcept { return length == size && size % lanes<Arch> == 0; }
    static void copy_whole(const float* from, float* to, std::size_t n) noexcept {
        for (std::size_t k = 0; k < n; k += lanes<Arch>) store<Arch>(to + k, load<Arch>(from + k));
    }
};

/// How blocks lie in vectors: two blocks of 8 in a vector of 16 lanes, one block in one vector, or one block in 2, 4 or 8 vectors.
enum class block_fit : std::uint8_t { half, one, many };

template <class Arch, block_fit Fit, std::size_t Each, element_step Step, class Form, class Out>
std::size_t run_block_tiles(const float* x, std::size_t blocks, std::size_t size, const Form& form, const Out& out,
                            const range_call& general) noexcept;
template <class Arch, block_fit Fit, std::size_t Each, element_step Step, class Form, class Out>
std::size_t run_tile_stretches(const float* x, std::size_t blocks, std::size_t size, const Form& form, const Out& out,
                               const range_call& general) noexcept;

/// Is true unless the known step or the form rules out sub-blocks.
template <class Arch, class Form>
constexpr bool may_pair(element_step known) noexcept {
    return (known == element_step::unknown || known == element_step::pair) && may_have_sub_blocks<Form, Arch>;
}

/// Is true when there are tiles of blocks of this size and with these sub-blocks (0: none).
template <class Arch>
constexpr bool has_tiles(std::size_t size, int sub_block_size) noexcept {
    constexpr std::size_t w = lanes<Arch>;
    if (w == 1) return sub_block_size == 0 && (size == 8 || size == 16 || size == 32 || size == 64);
    const bool small = (w == 16 && size == 8) || (w > 4 && size == w);
    return (sub_block_size == 0 || sub_block_size == 2) && (small || size == 2 * w || size == 4 * w || size == 8 * w);
}

/// Runs the whole tiles among `blocks` blocks in a row at x and returns how many blocks these hold: 0 where has_tiles() is false.
template <class Arch, block_shape Known, class Form, class Out>
std::size_t run_row_of_blocks(const float* x, std::size_t blocks, std::size_t size, const Form& form, const Out& out,
                              const range_call& general) noexcept {
    constexpr std::size_t w = lanes<Arch>, known = static_cast<std::size_t>(Known.size);
    if (!has_tiles<Arch>(size, form.sub_block_size)) return 0;
    const auto by_step = [&]<block_fit Fit, std::size_t Each>() {
        const auto run = [&]<element_step Step>() {
            if constexpr (Out::traits.in_fours) return run_tile_stretches<Arch, Fit, Each, Step>(x, blocks, size, form, out, general);
            else return run_block_tiles<Arch, Fit, Each, Step>(x, blocks, size, form, out, general);
        };
        using enum element_step;
        // Roundings other than half-even find the step at an element in one way, whatever it depends on: as if it were the block's.
        if constexpr (Out::traits.any_rounding) {
            if constexpr (w > 1 && may_pair<Arch, Form>(Known.step)) {
                if (form.sub_block_size != 0) return run.template operator()<pair>();
            }
            if constexpr (Known.step == pair) return std::size_t{0};
            else return run.template operator()<block>();
        } else if constexpr (Known.step == pair && w == 1) return std::size_t{0};
        else if constexpr (Known.step != unknown) return run.template operator()<Known.step>();
        else if (form.grid) return run.template operator()<element>();
        else if constexpr (w == 1) return run.template operator()<block>();
        else return form.sub_block_size != 0 ? run.template operator()<pair>() : run.template operator()<block>();
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

// ---- the two loops, and declarations of what they are made of

template <class Arch, block_fit Fit, std::size_t Each, bool Pairs>
struct tile_shape;
template <class Arch, class Shape, class Form>
struct tile_memory;
template <class Arch, class Shape, class Form>
struct stretch_memory;
template <class Arch, bool Prefetches, class Shape>
QK_INLINE vi<Arch> survey_tile(const Shape& shape, const float* p, std::size_t ahead, std::int32_t* exponents) noexcept;
template <class Arch, class Shape, class Memory, class Form>
QK_INLINE bool share_tile(const Shape&, Memory& memory, std::size_t at, const Form& q, vi<Arch> amax, vf<Arch> ratio,
                          typename Form::shared_type& here) noexcept;
template <class Arch, bool Grid, bool Streams, bool Prefetches, class Shape, class Memory, class Form, class Out>
QK_INLINE void round_block(const Shape& shape, const Memory& memory, std::size_t t, std::size_t b, const float* x, std::size_t ahead,
                           const typename Form::shared_type& mine, const Form& q, const Out& to) noexcept;
template <class Arch>
bool holds_subnormal_block(const float* x, std::size_t each, vi<Arch> exponents) noexcept;
template <class Out>
QK_INLINE bool streams_tiles(const Out& to) noexcept;
template <class Arch, class Shape, class Memory, class Form, class Out>
QK_INLINE std::uint32_t share_stretch(const Shape& shape, Memory& memory, const float* p, std::size_t n, std::size_t first,
                                      std::size_t ahead, const Form& q, const Out& to) noexcept;
template <class Arch, bool Grid, class Shape, class Memory, class Form, class Out>
QK_INLINE void round_four(Memory& memory, std::size_t i, std::size_t n, int each, const float* x, const Form& q, const Out& to) noexcept;

/// Runs the whole tiles of blocks of `size` that lie in a row from x on, and returns how many blocks these hold. A tile is surveyed two
/// steps, and what its blocks share is computed one step, before it is rounded, so that nothing waits for the chain of loads, shuffles and
/// maxima. general(first, count) runs the blocks of a tile that the fast form does not cover.
template <class Arch, block_fit Fit, std::size_t Each, element_step Step, class Form, class Out>
std::size_t run_block_tiles(const float* x, std::size_t blocks, std::size_t size, const Form& form, const Out& out,
                            const range_call& general) noexcept {
    constexpr std::size_t w = lanes<Arch>;
    constexpr bool Pairs = Step == element_step::pair, Grid = Step == element_step::element;
    using V = vi<Arch>;
    using shape_type = tile_shape<Arch, Fit, Each, Pairs>;
    // Prefetches evenly, not in the short time of a survey.
    constexpr bool late = Out::traits.reads_ahead && Fit == block_fit::many && !Pairs;
    const std::size_t tiles = blocks / w;
    if (tiles == 0) return 0;
    const Form q = form;  // a copy, whose constants stay in registers
    std::conditional_t<Out::traits.any_rounding, Out, const Out> to = out;
    [[maybe_unused]] alignas(64) std::uint32_t words[Out::traits.any_rounding ? 8 * w * w : 1];  // room for the largest tile
    const shape_type shape(size);
    // What streams has code of its own for data from memory.
    const std::size_t ahead = shape.ahead(Out::traits.may_stream ? read_distance : distance_in_row(blocks * size));
    tile_memory<Arch, shape_type, Form> memory;
    typename Form::shared_type here{};  // what `memory` holds, in registers
    V amax(0), next_amax(0);            // of the tile that is rounded next, and of the one behind it
    vf<Arch> ratio(0.0f), next_ratio(0.0f);
    bool served = true;
    for (std::size_t step = 0; step < tiles + 2; ++step) {  // surveys tile `step`, shares in the one before, rounds the one before that
        const typename Form::shared_type mine = here;
        const V my_amax = amax;
        const vf<Arch> my_ratio = ratio;
        bool serves = served;
        amax = next_amax;
        ratio = next_ratio;
        served = share_tile<Arch>(shape, memory, 1 - step % 2, q, amax, ratio, here);
        if (__builtin_expect(step < tiles, 1)) {
            next_amax = survey_tile<Arch, !late>(shape, x + step * shape.floats(), ahead,
                                                 memory.of_pairs[step % (shape_type::stores_pairs ? 4 : 1)]);
            next_ratio = q.ratio(next_amax);
        }
        if (step < 2) continue;
        const std::size_t t = step - 2;
        const float* p = x + t * shape.floats();
        if constexpr (shape_type::stores_pairs) {
            if (__builtin_expect(any(my_amax == V(0)), 0)) serves = serves && !holds_subnormal_block<Arch>(p, shape.each(), my_amax);
        }
        if (__builtin_expect(!serves, 0)) {
            general(t * w, w);
            continue;
        }
        if constexpr (Out::traits.any_rounding) to.make_words(words, t * shape.floats(), shape.floats());
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
            one_by_one(past_caches);
        } else if constexpr (Out::traits.unrolls == unrolled_part::tile && Each != 0 && Each <= 2) {
#pragma GCC unroll 16
            for (std::size_t b = 0; b < shape_type::count; ++b)
                round_block<Arch, Grid, false, late>(shape, memory, t, b, p, ahead, mine, q, to);
        } else {
            one_by_one(through_caches);
        }
        if constexpr (shape_type::half)
            to.finish(t * w, in_block_order<Arch>(my_amax), as_float<Arch>(in_block_order<Arch>(as_int<Arch>(my_ratio))), q);
        else to.finish(t * w, my_amax, my_ratio, q);
    }
    return tiles * w;
}

// In stretches: three short loops, each with its constants in registers, go over a stretch of tiles: the maxima of all of them, what
// their blocks share, and their elements. While one tile waits for a division the next ones go on.

/// Has the contract of run_block_tiles.
template <class Arch, block_fit Fit, std::size_t Each, element_step Step, class Form, class Out>
std::size_t run_tile_stretches(const float* x, std::size_t blocks, std::size_t size, const Form& form, const Out& out,
                               const range_call& general) noexcept {
    constexpr std::size_t w = lanes<Arch>;
    constexpr bool Pairs = Step == element_step::pair, Grid = Step == element_step::element;
    using shape_type = tile_shape<Arch, Fit, Each, Pairs>;
    stretch_memory<Arch, shape_type, Form> memory;
    [[maybe_unused]] alignas(64) std::uint32_t words[Out::traits.any_rounding ? memory.floats : 1];
    const shape_type shape(size);
    const std::size_t tiles = blocks / w, floats = shape.floats(), together = memory.floats / floats,
                      ahead = shape.ahead(distance_in_row(blocks * size));
    const int each = std::countr_zero(shape.each());
    const Form q = form;  // a copy, whose constants stay in registers
    std::conditional_t<Out::traits.any_rounding, Out, const Out> to = out;
    for (std::size_t first = 0; first < tiles; first += together) {
        const std::size_t n = std::min(together, tiles - first), at = first * floats;
        std::uint32_t declined = share_stretch<Arch>(shape, memory, x + at, n, first * w, ahead, q, to);
        if constexpr (Out::traits.any_rounding) to.make_words(words, at, n * floats);
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

// ---- what the loops are made of

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
    if constexpr (Out::traits.unrolls == unrolled_part::nothing) {
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
    if constexpr (Out::traits.may_stream) return to.streaming;
    else return false;
}

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

}  // namespace QK_ISA
}  // namespace qk::kernels
