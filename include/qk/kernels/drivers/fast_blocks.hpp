// SPDX-License-Identifier: Apache-2.0
// Runs block formats by their fast form: tiles of a row, or vectors across a strided axis. Blocks that it does not cover, odd block sizes
// and ragged ends go to the general form.
#pragma once

#include <cstring>
#include <utility>

#include "qk/kernels/drivers/row_tiles.hpp"
#include "qk/kernels/steps/any_rounding.hpp"

namespace qk::kernels {

/// Neighbouring columns, each with a block of its own down the axis: row j of column k is x[j * stride + k]. `next` is the x of a panel of
/// the same shape that comes after this one, or null.
struct column_panel {
    const float* x;
    std::size_t stride, rows, columns;
    const float* next = nullptr;
};

/// The largest magnitudes of `Width` vectors of columns, as bits.
template <class Arch, std::size_t Width>
struct column_maxima {
    vi<Arch> of[Width];
    bool are_taken = false;  ///< for a panel whose first columns were surveyed while the one before it was rounded

    /// Loads a vector of a row. With Width == 1 the last one of a panel may have fewer columns; its other lanes are 0.
    QK_INLINE static vf<Arch> values(const float* x, std::size_t count) noexcept {
        return Width == 1 && count < lanes<Arch> ? load_first<Arch>(x, count) : load<Arch>(x);
    }
    QK_INLINE void clear() noexcept {
        unrolled<Width>([&](auto k) QK_INLINE_CALL { of[k] = vi<Arch>(0); });
    }
    QK_INLINE void add(const float* x, std::size_t count) noexcept {
        unrolled<Width>([&](auto k) QK_INLINE_CALL {
            of[k] = max(of[k], as_int<Arch>(values(x + k * lanes<Arch>, count)) & vi<Arch>(magnitude_bits));
        });
    }
    QK_INLINE static column_maxima of_rows(const float* x, std::size_t stride, std::size_t rows, std::size_t count) noexcept {
        column_maxima m;
        m.clear();
        for (std::size_t j = 0; j < rows; ++j, x += stride) m.add(x, count);
        return m;
    }
};

/// The random words of several rows of columns, for an output `Out` that rounds by words.
template <class Arch, std::size_t Width, class Out>
struct words_of_rows {
    static constexpr std::size_t together = 8, each = Width * lanes<Arch>;
    alignas(64) std::uint32_t words[Out::any_rounding ? together * each : 1];

    words_of_rows() noexcept {}  // leaves the words uninitialised
    /// Makes `out` use the words of row j, from column i on, of a panel of `rows` rows.
    QK_INLINE void use(Out& out, std::size_t j, std::size_t i, std::size_t rows, std::size_t count) noexcept {
        if constexpr (Out::any_rounding) {
            if (!out.rounds().random.used) return;
            if (j % together == 0) out.rounds().make_words(words, out.number(j, i), {std::min(together, rows - j), count, out.stride});
            out.rounds().use_words(words + j % together * each, out.number(j, i));
        }
    }
};

/// Runs `Width` vectors of columns at a time from column `from` on, a block in each lane. Returns the first unprocessed column: Width > 1
/// leaves a remainder; Width == 1 masks it. `form` computes what a block shares. `given` receives that, column by column (scales, shifts),
/// and then every row of a block (row); random words are made for several rows at a time. general(first, n) runs the columns that the form
/// does not cover. `surveyed` brings the maxima of the first columns, if they are taken, and takes those of the next panel's. `Pairs`:
/// blocks may have sub-blocks.
template <class Arch, std::size_t Width, bool Grid, bool Pairs, class Form, class Out>
std::size_t run_columns_of_blocks(column_panel p, std::size_t from, const Form& form, const Out& given, const range_call& general,
                                  column_maxima<Arch, Width>& surveyed) noexcept {
    constexpr std::size_t w = lanes<Arch>;
    constexpr bool looks_ahead = Out::looks_ahead;  // the maxima of the next columns are taken while these are rounded
    using vectors = column_maxima<Arch, Width>;
    const Form q = form;
    Out out = given;
    words_of_rows<Arch, Width, Out> words;
    const std::size_t sub = Pairs && q.sub_block_size > 0 ? static_cast<std::size_t>(q.sub_block_size) : p.rows;
    // With Width == 1 the last vector may have fewer columns.
    const auto columns = [&](std::size_t i) QK_INLINE_CALL { return Width == 1 ? std::min(w, p.columns - i) : Width * w; };
    const auto are_there = [&](std::size_t i) QK_INLINE_CALL { return Width == 1 ? i < p.columns : i + Width * w <= p.columns; };
    // When streaming, columns nearer than memory_distance would come too late: the next blocks' are prefetched, if these are not too far.
    const bool too_near = 2 * p.rows * Width * w < memory_distance;
    const std::size_t beyond = p.stride * p.rows <= 16384 ? p.stride * p.rows : 2 * Width * w;
    const float* following = p.next != nullptr ? p.next + from : p.x + from;
    std::size_t i = from;
    vectors most = surveyed;
    for (std::size_t next = 0; are_there(i); i = next) {
        const std::size_t count = columns(i);
        const float* x = p.x + i;
        if (!most.are_taken) most = vectors::of_rows(x, p.stride, p.rows, count);
        typename Form::shared_type shared[Width], mine[Width];
        bool served = true;
        unrolled<Width>([&](auto k) QK_INLINE_CALL { served = share_in_lanes<Arch, Pairs>(q, most.of[k], shared[k]) && served; });
        next = i + count;
        const bool more = are_there(next);
        const std::size_t next_count = more ? columns(next) : count;
        most.are_taken = false;
        if (__builtin_expect(!served, 0)) {
            general(i, count);
            continue;
        }
        const vectors amax = most;
        for (std::size_t k = 0; k < Width; ++k) out.scales(i + k * w, std::min(w, count), amax.of[k], q);
        most.clear();
        // While these columns are rounded, the next ones are surveyed and those after them prefetched. (At the very end to no use.)
        const float* ahead = more ? x + count : following;
        const float* later = !more ? following + count : are_there(next + next_count) ? x + count + next_count : following;
        most.are_taken = looks_ahead && (more || p.next != nullptr);
        for (std::size_t begin = 0, number = 0; begin < p.rows; begin += sub, ++number) {
            const std::size_t end = std::min(begin + sub, p.rows);
            unrolled<Width>([&](auto k) QK_INLINE_CALL { mine[k] = shared[k]; });
            if constexpr (Pairs) {
                if (q.sub_block_size > 0) {
                    const vectors part = vectors::of_rows(x, p.stride, end - begin, count);
                    unrolled<Width>([&](auto k) QK_INLINE_CALL {
                        mine[k] = q.held(shared[k], part.of[k]);
                        out.shifts(number, i + k * w, std::min(w, count), amax.of[k], part.of[k]);
                    });
                }
            }
            const auto round_rows = [&]<bool Streaming>() QK_INLINE_CALL {
                for (std::size_t j = begin; j < end; ++j, x += p.stride, ahead += p.stride) {
                    words.use(out, j, i, p.rows, count);
                    out.template row<Width, Grid, Streaming>(
                        j, i, count, [&](std::size_t k) QK_INLINE_CALL { return opaque<Arch>(vectors::values(x + k * w, count)); }, mine,
                        q);
                    if constexpr (looks_ahead) {
                        if constexpr (Width > 1 && !Out::any_rounding) {  // other roundings have no registers left
                            const float* soon = Streaming && too_near ? x + beyond : later;
                            unrolled<Width>([&](auto k) QK_INLINE_CALL { __builtin_prefetch(soon + k * w); });
                            later += p.stride;
                        }
                        most.add(ahead, next_count);
                    }
                }
            };
            if constexpr (Width > 1 && looks_ahead) {
                if (out.values.streaming) {
                    round_rows.template operator()<true>();
                    continue;
                }
            }
            round_rows.template operator()<false>();
        }
    }
    surveyed = most;
    return i;
}

/// Runs all columns of a panel: four vectors side by side, for which there are registers, then single ones (baseline: the general form).
template <class Arch, element_step Known, class Form, class Out>
void run_panel_of_blocks(const column_panel& p, const Form& form, const Out& out, const range_call& general,
                         column_maxima<Arch, 4>& surveyed) noexcept {
    const auto run = [&]<bool Grid, bool Pairs>() {
        const std::size_t i = run_columns_of_blocks<Arch, 4, Grid, Pairs>(p, 0, form, out, general, surveyed);
        if (i == p.columns) return;
        if constexpr (!is_baseline<Arch>) {
            column_maxima<Arch, 1> none;
            run_columns_of_blocks<Arch, 1, Grid, Pairs>({p.x, p.stride, p.rows, p.columns}, i, form, out, general, none);
        } else {
            general(i, p.columns - i);
        }
    };
    constexpr bool may_have_pairs = may_pair<Arch, Form>(Known);
    if constexpr (Known == element_step::element && !Out::any_rounding) {
        run.template operator()<true, false>();
    } else {
        if constexpr (Known == element_step::unknown && !Out::any_rounding) {
            if (form.grid) return run.template operator()<true, false>();
        }
        if constexpr (Known == element_step::unknown && may_have_pairs) {
            if (form.sub_block_size == 0) return run.template operator()<false, false>();
        }
        run.template operator()<false, may_have_pairs>();
    }
}

/// The output of run_columns_of_blocks that stores values: `values` rounds them and knows where they are stored.
template <class Arch, class Values>
struct values_of_columns {
    static constexpr bool looks_ahead = true, any_rounding = Values::any_rounding;
    Values values;
    std::size_t stride, position;  ///< of rows; of the panel in the caller's span

    QK_INLINE std::size_t number(std::size_t j, std::size_t i) const noexcept { return position + j * stride + i; }
    QK_INLINE auto& rounds() noexcept { return values.rounded.rounds; }
    template <class Form>
    void scales(std::size_t, std::size_t, vi<Arch>, const Form&) const noexcept {}
    void shifts(std::size_t, std::size_t, std::size_t, vi<Arch>, vi<Arch>) const noexcept {}
    template <std::size_t Width, bool Grid, bool Streaming, class Get, class Form>
    QK_INLINE void row(std::size_t j, std::size_t i, std::size_t count, const Get& get, const typename Form::shared_type* mine,
                       const Form& form) noexcept {
        constexpr std::size_t w = lanes<Arch>;
        float* y = values.y + j * stride + i;
        const std::size_t at = number(j, i);
        const auto value = [&](std::size_t k) QK_INLINE_CALL { return values.template value<Grid>(at + k * w, get(k), mine[k], form); };
        if (Width == 1 && count < w) return store_first<Arch>(y, count, value(0));
        unrolled<Width>([&](auto k) QK_INLINE_CALL { Streaming ? stream<Arch>(y + k * w, value(k)) : store<Arch>(y + k * w, value(k)); });
    }
};
/// Runs the blocks along a strided axis: `form` computes what they share, `out` rounds.
template <class Arch, block_shape Known, class Form, class Out>
void run_strided(const float* x, float* y, along_axis axis, std::size_t size, const Form& form, const Out& out,
                 const general_form<Arch>& general) noexcept {
    const bool whole_lines = reinterpret_cast<std::uintptr_t>(y) % sizeof(vf<Arch>) == 0 && axis.inner % lanes<Arch> == 0;
    const bool streaming = whole_lines && streams<Arch>(x, y, axis.outer * axis.length * axis.inner);
    column_maxima<Arch, 4> surveyed;
    for (std::size_t o = 0; o < axis.outer; ++o) {
        for (std::size_t begin = 0; begin < axis.length; begin += size) {
            const std::size_t at = (o * axis.length + begin) * axis.inner;
            const std::size_t rows = std::min(size, axis.length - begin), left = axis.length - begin - rows;
            const bool is_followed = left >= rows || (left == 0 && rows == std::min(size, axis.length) && o + 1 < axis.outer);
            const float* next = is_followed ? x + at + rows * axis.inner : nullptr;
            const column_panel panel{x + at, axis.inner, rows, axis.inner, next};
            const values_of_columns<Arch, Out> to{out.at(y + at, 0, streaming), axis.inner, at};
            const auto decline = [&](std::size_t first, std::size_t n) {
                general.groups(general.step, {x + at + first, y + at + first, 1, axis.inner, n, panel.rows, at + first});
            };
            run_panel_of_blocks<Arch, Known.step>(panel, form, to, range_call(decline), surveyed);
        }
    }
    if (streaming) end_streaming<Arch>();
}

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
        if (out.random() != nullptr) std::fill(gathered.words + count * size, gathered.words + whole * size, 0u);
        run_row_of_blocks<Arch, Known>(gathered.values, whole, size, form, out.at(gathered.values, 0, false, gathered.words),
                                       range_call(declined{this, 0, true}));
        for (std::size_t k = 0; k < count; ++k) gathered.put_back(y, k, size);
        gathered.count = 0;
    }
};

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

/// Runs the blocks along `axis` of the whole array, by a fast form where one is usable.
template <class Arch, block_shape Known, class Step>
void run_blocks(const float* x, float* y, along_axis axis, const Step& step) noexcept {
    const auto size = static_cast<std::size_t>(step.block_size);
    const general_form<Arch> general(step);
    const auto run = [&](const auto& form, const auto& out) {
        if constexpr (!Known.one_row) {
            if (axis.inner != 1) return run_strided<Arch, Known>(x, y, axis, size, form, out, general);
        }
        if (!has_tiles<Arch>(size, form.sub_block_size)) return run_blocks_general<Arch>(x, y, axis, step);
        run_rows_of_blocks<Arch, Known>(x, y, axis, size, form, out, general);
    };
    if (default_environment<Arch>()) {
        if (const auto form = fast_of<Arch>(step); form.usable()) return run(form, values_of_blocks<Arch>{y});
        if constexpr (!is_baseline<Arch>) {
            const auto any = rounded_of<Arch>(step);
            constexpr bool one_step = Known.step == element_step::block;
            if (any.fast.usable())
                return run(any.fast, rounded_values_of_blocks<Arch, std::remove_const_t<decltype(any)>, one_step>{y, any});
        }
    }
    run_blocks_general<Arch>(x, y, axis, step);
}

}  // namespace qk::kernels
