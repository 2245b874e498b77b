// SPDX-License-Identifier: Apache-2.0
// Runs block formats by their short form: tiles of a row, or vectors across a strided axis. What the short form declines, odd
// block sizes and ragged ends go to the complete form.
#pragma once

#include <cstring>
#include <utility>

#include "qk/kernels/block_tiles.hpp"
#include "qk/kernels/quick_roundings.hpp"

namespace qk::kernels {

/// call(k) for k = 0 .. N - 1, each a constant: what an array of vectors is indexed with if it is to stay in registers.
template <std::size_t N, class Call>
QK_INLINE void unrolled(const Call& call) noexcept {
    [&]<std::size_t... K>(std::index_sequence<K...>) QK_INLINE_CALL { (call(std::integral_constant<std::size_t, K>()), ...); }(std::make_index_sequence<N>());
}

/// `Width` vectors of neighbouring columns, each lane with a block of its own down the axis, from column `from` on; returns where the last one
/// ends: with one vector at the last column, with more before those that do not fill them. The maxima of the next columns are taken while these
/// are rounded, as in run_block_tiles. `given` rounds.
template <class Arch, std::size_t Width, bool Grid, bool Streaming, class Form, class Out>
std::size_t run_columns_of_blocks(const block_group& all, std::size_t from, const Form& form, const Out& given, const complete_form<Arch>& complete) noexcept {
    constexpr std::size_t w = lanes<Arch>;
    using V = vi<Arch>;
    struct vectors {
        V of[Width];
    };
    const Form q = form;
    const Out out = given;
    const std::size_t stride = all.element_stride, length = all.length, blocks = all.blocks;
    const std::size_t sub = q.sub_block_size > 0 ? static_cast<std::size_t>(q.sub_block_size) : length;
    const auto none = [] {
        vectors m;
        unrolled<Width>([&](auto k) QK_INLINE_CALL { m.of[k] = V(0); });
        return m;
    };
    // Of one vector the last may have fewer columns.
    const auto columns = [&](std::size_t i) QK_INLINE_CALL { return Width == 1 ? std::min(w, blocks - i) : Width * w; };
    const auto get = [](const float* x, std::size_t count) QK_INLINE_CALL { return Width == 1 && count < w ? load_first<Arch>(x, count) : load<Arch>(x); };
    const auto add = [&](vectors m, const float* x, std::size_t count) QK_INLINE_CALL {
        unrolled<Width>([&](auto k) QK_INLINE_CALL { m.of[k] = xsimd::max(m.of[k], as_int<Arch>(get(x + k * w, count)) & V(magnitude_bits)); });
        return m;
    };
    const auto survey = [&](std::size_t i, std::size_t begin, std::size_t end) QK_INLINE_CALL {
        vectors m = none();
        const float* x = all.x + i + begin * stride;
        for (std::size_t j = begin; j < end; ++j, x += stride) m = add(m, x, columns(i));
        return m;
    };
    // What is asked for ahead of its use, from memory: the same columns of the next blocks, if these are not far away.
    const std::size_t beyond = stride * length <= 16384 ? stride * length : 2 * Width * w;
    const auto are_there = [&](std::size_t i) QK_INLINE_CALL { return Width == 1 ? i < blocks : i + Width * w <= blocks; };
    std::size_t i = from;
    if (!are_there(i)) return i;
    vectors most = survey(i, 0, length);
    for (std::size_t next = 0; are_there(i); i = next) {
        const std::size_t count = columns(i);
        quick_shared<Arch> shared[Width];
        bool served = true;
        unrolled<Width>([&](auto k) QK_INLINE_CALL { served = share_in_lanes<Arch>(q, most.of[k], shared[k]) && served; });
        next = i + count;
        const bool more = are_there(next);
        const std::size_t next_count = more ? columns(next) : count;
        if (__builtin_expect(!served || (Width == 1 && count < w && reads_words(out)), 0)) {
            complete.groups(complete.step, {all.x + i, all.y + i, 1, stride, count, length, all.position + i});
            if (more) most = survey(next, 0, length);
            continue;
        }
        most = none();
        for (std::size_t begin = 0; begin < length; begin += sub) {
            const std::size_t end = std::min(begin + sub, length);
            quick_shared<Arch> mine[Width];
            unrolled<Width>([&](auto k) QK_INLINE_CALL { mine[k] = shared[k]; });
            if constexpr (requires { q.held(mine[0], most.of[0]); }) {
                if (q.sub_block_size > 0) {
                    const vectors part = survey(i, begin, end);
                    unrolled<Width>([&](auto k) QK_INLINE_CALL { mine[k] = q.held(shared[k], part.of[k]); });
                }
            }
            const float* x = all.x + i + begin * stride;
            float* y = all.y + i + begin * stride;
            const float* ahead = more ? x + Width * w : x;  // the last columns look at themselves, to no use
            for (std::size_t j = begin; j < end; ++j, x += stride, y += stride, ahead += stride) {
                unrolled<Width>([&](auto k) QK_INLINE_CALL {
                    const vf<Arch> r = out.template value<Grid>(all.position + j * stride + i + k * w, rounded<Arch>(get(x + k * w, count)), mine[k], q);
                    if constexpr (Streaming) __builtin_prefetch(x + k * w + beyond);
                    if (Width == 1 && count < w) store_first<Arch>(y + k * w, count, r);
                    else Streaming ? stream<Arch>(y + k * w, r) : store<Arch>(y + k * w, r);
                });
                most = add(most, ahead, next_count);
            }
        }
    }
    return i;
}

/// Blocks along a strided axis: `form` shares, `out` rounds.
template <class Arch, block_shape Known, class Form, class Out>
void run_strided(const float* x, float* y, along_axis axis, std::size_t size, const Form& form, const Out& out, const complete_form<Arch>& complete) noexcept {
    const auto run = [&]<bool Streaming>(const block_group& all) {
        const auto columns = [&]<bool Grid>() {
            const std::size_t i = run_columns_of_blocks<Arch, 4, Grid, Streaming>(all, 0, form, out, complete);
            run_columns_of_blocks<Arch, 1, Grid, false>(all, i, form, out, complete);
        };
        if constexpr (Known.step != element_step::unknown) return columns.template operator()<Known.step == element_step::element>();
        else return form.grid ? columns.template operator()<true>() : columns.template operator()<false>();
    };
    const bool whole_lines = reinterpret_cast<std::uintptr_t>(y) % sizeof(vf<Arch>) == 0 && axis.inner % lanes<Arch> == 0;
    const bool streaming = whole_lines && streams<Arch>(x, y, axis.outer * axis.length * axis.inner);
    for (std::size_t o = 0; o < axis.outer; ++o) {
        for (std::size_t begin = 0; begin < axis.length; begin += size) {
            const std::size_t at = (o * axis.length + begin) * axis.inner;
            const block_group all{x + at, y + at, 1, axis.inner, axis.inner, std::min(size, axis.length - begin), at};
            streaming ? run.template operator()<true>(all) : run.template operator()<false>(all);
        }
    }
    if (streaming) end_streaming<Arch>();
}

/// Blocks in rows that do not fill tiles, side by side in a buffer: they are taken from several rows, and a short one is filled up with zeros.
template <class Arch>
struct gathered_blocks {
    static constexpr std::size_t floats = 4096;
    alignas(64) float values[floats];
    alignas(64) std::uint32_t words[floats];  ///< random bits of the values
    struct place {
        std::size_t at, length;
    } places[floats / 8];
    std::size_t count = 0;

    gathered_blocks() noexcept {}  // which leaves the values as they are

    /// How many blocks of `size` are gathered before they are run: whole tiles.
    static constexpr std::size_t room(std::size_t size) { return floats / size / lanes<Arch> * lanes<Arch>; }
    void add(const float* x, std::size_t at, std::size_t length, std::size_t size, const random_source* random) noexcept {
        constexpr std::size_t w = lanes<Arch>;
        if (random != nullptr) {
            store_random<Arch>(*random, at, length, words + count * size);
            std::fill(words + count * size + length, words + (count + 1) * size, 0u);
        }
        for (std::size_t k = 0; k < size; k += w) {
            const std::size_t some = length > k ? std::min(length - k, w) : 0;
            store_first<Arch>(values + count * size + k, std::min(size, w), some == w ? load<Arch>(x + at + k) : load_first<Arch>(x + at + k, some));
        }
        places[count++] = {at, length};
    }
    /// The k-th block, of which only what there is.
    void put_back(float* y, std::size_t k, std::size_t size) const noexcept {
        constexpr std::size_t w = lanes<Arch>;
        for (std::size_t i = 0; i < places[k].length; i += w) {
            store_first<Arch>(y + places[k].at + i, std::min(places[k].length - i, w), load_first<Arch>(values + k * size + i, std::min(size, w)));
        }
    }
};

/// Blocks of `size` in a row or gathered from rows, as far as they fill tiles: `form` shares, `out` rounds.
template <class Arch, block_shape Known, class Form, class Out>
struct rows_of_blocks {
    const float* x;
    float* y;
    std::size_t size;
    const Form& form;
    const Out& out;
    const complete_form<Arch>& complete;
    gathered_blocks<Arch> gathered;

    rows_of_blocks(const float* from, float* to, std::size_t block_size, const Form& f, const Out& o, const complete_form<Arch>& c) noexcept
        : x(from), y(to), size(block_size), form(f), out(o), complete(c) {}

    /// What the short form declines of the row at `at`, or of what is gathered.
    struct declined {
        rows_of_blocks* all;
        std::size_t at;
        bool is_gathered;
        void operator()(std::size_t first, std::size_t count) const noexcept {
            if (!is_gathered) {
                const std::size_t begin = at + first * all->size;
                return all->complete.row(all->x + begin, all->y + begin, all->size, count, begin);
            }
            for (std::size_t k = first; k < std::min(first + count, all->gathered.count); ++k) {
                auto& p = all->gathered.places[k];
                all->complete.row(all->x + p.at, all->y + p.at, p.length, 1, p.at);
                p.length = 0;  // done
            }
        }
    };

    /// `blocks` whole blocks from `at` on; how many were done.
    template <bool Streaming>
    std::size_t run(std::size_t at, std::size_t blocks) noexcept {
        return run_row_of_blocks<Arch, Known>(x + at, blocks, size, form, out.template at<Streaming>(y + at, at), declined{this, at, false});
    }
    void add(std::size_t at, std::size_t length) noexcept {
        gathered.add(x, at, length, size, out.random());
        if (gathered.count == gathered.room(size)) finish();
    }
    void finish() noexcept {
        const std::size_t count = gathered.count, whole = (count + lanes<Arch> - 1) / lanes<Arch> * lanes<Arch>;
        std::fill(gathered.values + count * size, gathered.values + whole * size, 0.0f);
        if (out.random() != nullptr) std::fill(gathered.words + count * size, gathered.words + whole * size, 0u);
        run_row_of_blocks<Arch, Known>(gathered.values, whole, size, form, out.template at<false>(gathered.values, 0, gathered.words), declined{this, 0, true});
        for (std::size_t k = 0; k < count; ++k) gathered.put_back(y, k, size);
        gathered.count = 0;
    }
};

/// Rows of blocks.
template <class Arch, block_shape Known, class Form, class Out>
void run_rows_of_blocks(const float* x, float* y, along_axis axis, std::size_t size, const Form& form, const Out& out, const complete_form<Arch>& complete) noexcept {
    const std::size_t whole = axis.length / size, rest = axis.length % size;
    // Without a ragged last block the rows are one.
    const std::size_t rows = rest == 0 ? 1 : axis.outer, blocks = rest == 0 ? axis.outer * whole : whole;
    const bool aligned = reinterpret_cast<std::uintptr_t>(y) % sizeof(vf<Arch>) == 0 && (rows == 1 || axis.length % lanes<Arch> == 0);
    const bool streaming = aligned && streams<Arch>(x, y, axis.outer * axis.length);
    rows_of_blocks<Arch, Known, Form, Out> all(x, y, size, form, out, complete);
    for (std::size_t o = 0; o < rows; ++o) {
        const std::size_t at = o * axis.length;
        const std::size_t done = streaming ? all.template run<true>(at, blocks) : all.template run<false>(at, blocks);
        for (std::size_t k = done; k < blocks; ++k) all.add(at + k * size, size);
        if (rest != 0) all.add(at + blocks * size, rest);
    }
    all.finish();
    if (streaming) end_streaming<Arch>();
}

/// Blocks along `axis` of the whole array.
template <class Arch, block_shape Known, class Step>
void run_blocks(const float* x, float* y, along_axis axis, const Step& step) noexcept {
    const auto size = static_cast<std::size_t>(step.block_size);
    const complete_form<Arch> complete(step);
    const auto run = [&](const auto& form, const auto& out) {
        if constexpr (!Known.one_row) {
            if (axis.inner != 1) return run_strided<Arch, Known>(x, y, axis, size, form, out, complete);
        }
        if (!has_tiles<Arch>(size, form.sub_block_size)) return run_blocks_completely<Arch>(x, y, axis, step);
        run_rows_of_blocks<Arch, Known>(x, y, axis, size, form, out, complete);
    };
    if (default_environment<Arch>()) {
        if (const auto form = quick_of<Arch>(step); form.usable()) return run(form, values_of_blocks<Arch, false>{y});
        const auto any = rounded_of<Arch>(step);
        if (any.quick.usable()) return run(any.quick, rounded_values_of_blocks<Arch, std::remove_const_t<decltype(any)>>{y, any});
    }
    run_blocks_completely<Arch>(x, y, axis, step);
}

}  // namespace qk::kernels
