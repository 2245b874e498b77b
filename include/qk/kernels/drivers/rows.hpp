// SPDX-License-Identifier: Apache-2.0
// Runs the step of an elementwise format over rows: the fast form on the tiles that it covers, the general form on the rest.
#pragma once

#include "qk/isa.hpp"
#include "qk/kernels/drivers/general.hpp"
#include "qk/lanes/streaming.hpp"
#include "qk/steps/scale_table.hpp"
#include "qk/trace.hpp"

namespace qk::kernels {
inline namespace QK_ISA {

/// Does what run_tiles_of_row does for whole lines of 64 bytes, stores them past the caches, and returns how many elements these hold.
/// Memory is faster when lines are read and written in turn than when tiles are.
template <class Arch, bool Choice, class Form, class ScaleAt, class General>
QK_INLINE std::size_t stream_lines(const float* x, float* y, std::size_t n, const Form& form, const ScaleAt& scale_at,
                                   const General& general) noexcept {
    constexpr std::size_t w = lanes<Arch>, vectors = w < 16 ? 16 / w : 1, line = vectors * w;
    std::size_t i = 0;
    for (; i + line <= n; i += line) {
        read_ahead<Arch, vectors>(x + i, memory_distance);
        vf<Arch> v[vectors];
        vi<Arch> most(INT32_MIN);
        unrolled<vectors>([&](auto k) QK_INLINE_CALL {
            v[k] = form.template prepare<Choice>(load<Arch>(x + i + k * w), scale_at(i + k * w));
            most = max(most, tested<Arch>(form, v[k]));
        });
        if (__builtin_expect(any(most > vi<Arch>(scale_at(i).limit)), 0)) {
            general(i, line);
            continue;
        }
        unrolled<vectors>([&](auto k) QK_INLINE_CALL {
            stream<Arch>(y + i + k * w, form.template finish<Choice>(v[k], i + k * w, scale_at(i + k * w)));
        });
    }
    return i;
}

/// Runs the fast form on tiles of four vectors, tested with one compare, and on what is left a vector at a time. `Choice` is what the form
/// is compiled for (scaled, multiplied); scale_at(i) is the fast_scale of the vector at i, with one limit for a tile; general(begin,
/// count) runs the elements that the form does not cover. `streaming` (a bool, or a type that holds one): stores whole lines past the
/// caches.
template <class Arch, bool Choice, class Streaming, class Form, class ScaleAt, class General>
QK_INLINE void run_tiles_of_row(const float* x, float* y, std::size_t n, Streaming streaming, const Form& form, const ScaleAt& scale_at,
                                const General& general) noexcept {
    constexpr std::size_t w = lanes<Arch>, tile = 4 * w;
    using V = vi<Arch>;
    std::size_t i = streaming ? stream_lines<Arch, Choice>(x, y, n, form, scale_at, general) : 0;
    for (; !streaming && i + tile <= n; i += tile) {  // stores stand apart, each behind the work on its vector
        read_ahead<Arch, 4>(x + i);
        own_ahead<Arch, 4>(y + i);
        const auto &p = scale_at(i), &q = scale_at(i + w), &r = scale_at(i + 2 * w), &s = scale_at(i + 3 * w);
        vf<Arch> a = load_in_turn<Arch>(x + i), b = load_in_turn<Arch>(x + i + w);
        vf<Arch> c = load_in_turn<Arch>(x + i + 2 * w), d = load_in_turn<Arch>(x + i + 3 * w);
        a = form.template prepare<Choice>(a, p);
        b = form.template prepare<Choice>(b, q);
        c = form.template prepare<Choice>(c, r);
        d = form.template prepare<Choice>(d, s);
        const V most = max(max(tested<Arch>(form, a), tested<Arch>(form, b)), max(tested<Arch>(form, c), tested<Arch>(form, d)));
        if (__builtin_expect(any(most > V(p.limit)), 0)) {
            general(i, tile);
            continue;
        }
        store<Arch>(y + i, form.template finish<Choice>(a, i, p));
        store<Arch>(y + i + w, form.template finish<Choice>(b, i + w, q));
        store<Arch>(y + i + 2 * w, form.template finish<Choice>(c, i + 2 * w, r));
        store<Arch>(y + i + 3 * w, form.template finish<Choice>(d, i + 3 * w, s));
    }
    for (; i < n; i += w) {
        const std::size_t count = std::min(w, n - i);
        const auto& p = scale_at(i);
        // Loads and stores of some lanes are slow on many processors.
        vf<Arch> v = count == w ? load<Arch>(x + i) : load_first<Arch>(x + i, count);
        if constexpr (requires { Form::declines_zero; }) {  // and the lanes behind the end hold zeros: they get x[i]
            const V lane = select(iota<Arch>() < V(static_cast<std::int32_t>(count)), as_int<Arch>(v), as_int<Arch>(vf<Arch>(x[i])));
            v = as_float<Arch>(lane);
        }
        const vf<Arch> a = form.template prepare<Choice>(v, p);
        if (any(tested<Arch>(form, a) > V(p.limit))) {
            general(i, count);
            continue;
        }
        const vf<Arch> r = form.template finish<Choice>(a, i, p);
        count == w ? store<Arch>(y + i, r) : store_first<Arch>(y + i, count, r);
    }
}

/// How many elements get their random words at a time.
inline constexpr std::size_t words_together = 512;

/// Does run_tiles_of_row for any form: random words, if the form rounds by them, are made for words_together elements at a time, and the
/// form keeps those that were made last. `position` is that of x[0] in the caller's span.
template <class Arch, bool Choice, class Streaming, class Form, class ScaleAt, class General>
QK_INLINE void run_tiles(const float* x, float* y, std::size_t n, std::size_t position, Streaming streaming, Form& form,
                         const ScaleAt& scale_at, const General& general) noexcept {
    if constexpr (requires { form.rounds; }) {
        alignas(64) std::uint32_t words[words_together];
        const std::size_t together = form.rounds.random.used ? words_together : n;
        for (std::size_t at = 0; at < n; at += together) {
            const std::size_t some = std::min(together, n - at);
            form.rounds.make_words(words, position + at, some);
            form.rounds.first = 0;
            run_tiles_of_row<Arch, Choice>(
                x + at, y + at, some, streaming, form, [&](std::size_t i) QK_INLINE_CALL -> decltype(auto) { return scale_at(at + i); },
                [&](std::size_t begin, std::size_t count) { general(at + begin, count); });
        }
    } else {
        run_tiles_of_row<Arch, Choice>(x, y, n, streaming, form, scale_at, general);
    }
}

/// `count` rows of n elements, one after the other, from x to y; x[0] stands at `position` of the caller's span.
struct row_group {
    const float* x;
    float* y;
    std::size_t n, count, position;
};

/// Runs rows that have a scale each, from entry `row` of the table on. general(k, begin, some) runs the elements of row k that the fast
/// form does not cover. The caller ends the streaming.
template <class Arch, bool Choice, class Streaming, class Form, std::size_t Size, class General>
void run_each_row(const row_group& rows, Streaming streaming, const Form& given, const scale_table<Arch, Size>& scales, std::size_t row,
                  const General& general) noexcept {
    constexpr std::size_t alignment = sizeof(vf<Arch>);
    Form form = given;  // a copy, whose constants stay in registers
    for (std::size_t k = 0; k < rows.count; ++k) {
        const std::size_t at = k * rows.n;
        const fast_scale<Arch> by = scales.one(row + k);
        if (by.limit == no_value) {
            general(k, 0, rows.n);
            continue;
        }
        std::size_t head = 0;
        if (streaming) {
            const std::size_t past = reinterpret_cast<std::uintptr_t>(rows.y + at) % alignment;
            head = past == 0 ? 0 : std::min(rows.n, (alignment - past) / sizeof(float));
            if (head != 0) general(k, 0, head);
        }
        QK_TRACE("rows", rows.position + at + head, rows.n - head, Form);
        const auto declined = [&](std::size_t begin, std::size_t some) { general(k, head + begin, some); };
        const auto same = [&](std::size_t) QK_INLINE_CALL -> const fast_scale<Arch>& { return by; };
        run_tiles<Arch, Choice>(rows.x + at + head, rows.y + at + head, rows.n - head, rows.position + at + head, streaming, form, same,
                                declined);
    }
}

/// Runs rows that have a scale each: row k has entry first + k of the table, and the same entry of `zero` unless that is null.
template <class Arch, class Rows, std::size_t Size>
void run_rows(const Rows& rows, const row_group& r, const scale_table<Arch, Size>& scales, std::size_t first,
              const std::int64_t* zero) noexcept {
    const auto general = [&](std::size_t k, std::size_t begin, std::size_t some) {
        const std::size_t at = k * r.n + begin;
        run_row_general<Arch>(r.x + at, r.y + at, some, r.position + at, rows.step(scales, first + k, zero));
    };
    if (!rows.usable) {
        for (std::size_t k = 0; k < r.count; ++k) general(k, 0, r.n);
        return;
    }
    const bool scaled = r.count != 1 || scales.scale[first] != 1.0f;
    rows.with_form(scaled, scales.product[first] != 0, [&](const auto& form, auto choice) {
        if constexpr (is_baseline<Arch>) {
            run_each_row<Arch, choice.value>(r, rows.streaming, form, scales, first, general);
        } else {                                                    // a constant: short rows feel every instruction
            constexpr bool half_even = !requires { form.rounds; };  // other roundings do so much that streaming is not worth its code
            if constexpr (half_even) {
                if (rows.streaming) return run_each_row<Arch, choice.value>(r, std::true_type(), form, scales, first, general);
            }
            run_each_row<Arch, choice.value>(r, std::false_type(), form, scales, first, general);
        }
    });
}

}  // namespace QK_ISA
}  // namespace qk::kernels
