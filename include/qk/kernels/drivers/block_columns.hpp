// SPDX-License-Identifier: Apache-2.0
// Runs the fast form over blocks along an axis that is not the last: a vector holds neighbouring columns, so each lane has a block of its
// own.
#pragma once

#include <cstring>
#include <utility>

#include "qk/isa.hpp"
#include "qk/kernels/drivers/block_rows.hpp"
#include "qk/trace.hpp"

namespace qk::kernels {
inline namespace QK_ISA {

/// Calls Form::share for blocks that lie in a lane each. `Pairs`: they may have sub-blocks.
template <class Arch, bool Pairs, class Form>
QK_INLINE bool share_in_lanes(const Form& form, vi<Arch> amax, typename Form::shared_type& b) noexcept {
    if constexpr (Pairs) {
        if (form.sub_block_size > 0) return form.template share<1>(amax, form.ratio(amax), b);
    }
    return form.template share<0>(amax, form.ratio(amax), b);
}

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
/// does not cover. `surveyed` brings the maxima of the first columns, if they are taken, and takes those of the next panel's. `Step` is
/// `pair` where blocks may have sub-blocks.
template <class Arch, std::size_t Width, element_step Step, class Form, class Out>
std::size_t run_columns_of_blocks(column_panel p, std::size_t from, const Form& form, const Out& given, const range_call& general,
                                  column_maxima<Arch, Width>& surveyed) noexcept {
    constexpr std::size_t w = lanes<Arch>;
    constexpr bool Pairs = Step == element_step::pair, Grid = Step == element_step::element;
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
        most.are_taken = Out::looks_ahead && (more || p.next != nullptr);
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
            const auto round_rows = [&](auto streams) QK_INLINE_CALL {
                for (std::size_t j = begin; j < end; ++j, x += p.stride, ahead += p.stride) {
                    words.use(out, j, i, p.rows, count);
                    out.template row<Width, Grid, streams>(
                        j, i, count, [&](std::size_t k) QK_INLINE_CALL { return opaque<Arch>(vectors::values(x + k * w, count)); }, mine,
                        q);
                    if constexpr (Out::looks_ahead) {
                        if constexpr (Width > 1 && !Out::any_rounding) {  // other roundings have no registers left
                            const float* soon = streams && too_near ? x + beyond : later;
                            unrolled<Width>([&](auto k) QK_INLINE_CALL { __builtin_prefetch(soon + k * w); });
                            later += p.stride;
                        }
                        most.add(ahead, next_count);
                    }
                }
            };
            if constexpr (Width > 1 && Out::looks_ahead) {
                if (out.values.streaming) {
                    round_rows(past_caches);
                    continue;
                }
            }
            round_rows(through_caches);
        }
    }
    surveyed = most;
    return i;
}

/// Runs all columns of a panel: four vectors side by side, for which there are registers, then single ones (baseline: the general form).
template <class Arch, element_step Known, class Form, class Out>
void run_panel_of_blocks(const column_panel& p, const Form& form, const Out& out, const range_call& general,
                         column_maxima<Arch, 4>& surveyed) noexcept {
    const auto run = [&]<element_step Step>() {
        const std::size_t i = run_columns_of_blocks<Arch, 4, Step>(p, 0, form, out, general, surveyed);
        if (i == p.columns) return;
        if constexpr (!is_baseline<Arch>) {
            column_maxima<Arch, 1> none;
            run_columns_of_blocks<Arch, 1, Step>({p.x, p.stride, p.rows, p.columns}, i, form, out, general, none);
        } else {
            general(i, p.columns - i);
        }
    };
    QK_TRACE("block_columns", out.number(0, 0), p.rows * p.columns, Form, Out);
    using enum element_step;
    constexpr bool may_have_pairs = may_pair<Arch, Form>(Known);
    if constexpr (Known == element && !Out::any_rounding) {
        run.template operator()<element>();
    } else {
        if constexpr (Known == unknown && !Out::any_rounding) {
            if (form.grid) return run.template operator()<element>();
        }
        if constexpr (Known == unknown && may_have_pairs) {
            if (form.sub_block_size == 0) return run.template operator()<block>();
        }
        run.template operator()<may_have_pairs ? pair : block>();
    }
}

/// The output of run_columns_of_blocks that stores values: `values` rounds them and knows where they are stored.
template <class Arch, class Values>
struct values_of_columns {
    static constexpr bool looks_ahead = true;  ///< takes the maxima of the next columns while it rounds these
    static constexpr bool any_rounding = Values::traits.any_rounding;
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

}  // namespace QK_ISA
}  // namespace qk::kernels
