// SPDX-License-Identifier: Apache-2.0
// Runs the step of an elementwise format over rows: the fast form on the tiles that it covers, the general form on the rest.
#pragma once

#include "qk/kernels/drivers/scale_table.hpp"
#include "qk/kernels/lanes/streaming.hpp"
#include "qk/kernels/steps/any_rounding.hpp"
#include "qk/kernels/steps/fast.hpp"
#include "qk/kernels/steps/table.hpp"

namespace qk::kernels {

/// Runs the general form: y[i] = step(x[i]). `position` is that of x[0] in the caller's span (stochastic rounding).
template <class Arch, class Step>
#if defined(__GNUC__)
__attribute__((noinline))
#endif
void run_row_general(const float* x, float* y, std::size_t n, std::size_t position, const Step& step) noexcept {
    constexpr std::size_t w = lanes<Arch>;
    const auto bits = [&](std::size_t i, std::size_t count) { return random_lanes<Arch>(step.random(), position + i, 1, count); };
    std::size_t i = 0;
    for (; i + w <= n; i += w) store<Arch>(y + i, step.general(load<Arch>(x + i), bits(i, w)));
    if (i < n) store_some<Arch>(y + i, 1, n - i, step.general(load_some<Arch>(x + i, 1, n - i), bits(i, n - i)));
}

/// Does what run_tiles_of_row does for whole lines of 64 bytes, stores them past the caches, and returns how many elements these hold.
/// Memory is faster when lines are read and written in turn than when tiles are.
template <class Arch, bool Choice, class Form, class ScaleAt, class Complete>
QK_INLINE std::size_t stream_lines(const float* x, float* y, std::size_t n, const Form& form, const ScaleAt& scale_at,
                                   const Complete& general) noexcept {
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
template <class Arch, bool Choice, class Streaming, class Form, class ScaleAt, class Complete>
QK_INLINE void run_tiles_of_row(const float* x, float* y, std::size_t n, Streaming streaming, const Form& form, const ScaleAt& scale_at,
                                const Complete& general) noexcept {
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
template <class Arch, bool Choice, class Streaming, class Form, class ScaleAt, class Complete>
QK_INLINE void run_tiles(const float* x, float* y, std::size_t n, std::size_t position, Streaming streaming, Form& form,
                         const ScaleAt& scale_at, const Complete& general) noexcept {
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
template <class Arch, bool Choice, class Streaming, class Form, std::size_t Size, class Complete>
void run_each_row(const row_group& rows, Streaming streaming, const Form& given, const scale_table<Arch, Size>& scales, std::size_t row,
                  const Complete& general) noexcept {
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
        const auto declined = [&](std::size_t begin, std::size_t some) { general(k, head + begin, some); };
        const auto same = [&](std::size_t) QK_INLINE_CALL -> const fast_scale<Arch>& { return by; };
        run_tiles<Arch, Choice>(rows.x + at + head, rows.y + at + head, rows.n - head, rows.position + at + head, streaming, form, same,
                                declined);
    }
}

/// What is known of a floating format when compiling. Only the fast forms that the format may need are compiled then.
enum class floating_kind : std::uint8_t { any, power_of_two, float32_exponents, other };
constexpr floating_kind kind_of(floating f) {
    if (f == e8m0) return floating_kind::power_of_two;
    return min_exponent(f) == -126 ? floating_kind::float32_exponents : floating_kind::other;
}
constexpr floating_kind kind_of(integer) { return floating_kind::any; }
constexpr floating_kind kind_of(const table&) { return floating_kind::any; }
constexpr bool may_be(floating_kind known, floating_kind what) { return known == floating_kind::any || known == what; }

/// Returns the rules of the half-even forms, without flushes and without a zero point that is added before rounding: only the forms of
/// other roundings need these, unless scales are very small.
template <class Rules>
QK_INLINE Rules without_flush(Rules r) noexcept {
    r.flush_below = r.least_input = 0;
    if constexpr (requires { r.zero_before; }) r.zero_before = false;
    return r;
}

/// What the rows (or columns) of an array have in common while each has a scale and a zero point of its own: the rules of the family, its
/// fast forms, and which of them applies.
template <class Arch, floating_kind Known>
struct floating_rows {
    floating_rules rules;
    fast_floating<Arch> fast;
    fast_power_of_two<Arch> power;
    bool flushes, other_rounding, usable, scales_apply, streaming;

    floating_rows(floating f, const semantics& how, bool, bool stream_rows) noexcept
        : rules(rules_of(f, how)),
          fast(without_flush(rules)),
          power(rules),
          flushes(kernels::flushes(rules)),
          // Rounding to nearest makes subnormal inputs zero anyway, except in formats with float32's exponents; results are flushed by the
          // forms of the other roundings.
          other_rounding(!power.usable() &&
                         (rules.how != rounding::half_even || rules.random.used || rules.flush_below != 0 || (fast.shift != 0 && flushes))),
          scales_apply(f != fp32),
          streaming(stream_rows) {
        // A step of the grid, and the factor that counts in steps, must be normal numbers.
        const bool countable = rules.powers_of_two || fast.shift != 0 || !any(fast.least <= vi<Arch>((rules.mantissa_bits + 1) << 23));
        usable =
            default_environment<Arch>() && !rules.general &&
            (power.usable() || ((fast.limit != no_value || rules.powers_of_two) && (!other_rounding || (countable && !is_baseline<Arch>))));
    }
    std::int32_t limit_of(float scale) const noexcept {
        if (power.usable()) return power.limit;
        if (rules.powers_of_two) return rounded_power<Arch>::limit;
        const bool flush_is_served = fast.shift != 0 || (rules.least_step > step_bias - 60 && scale > 0x1p-60f);
        return flushes && !flush_is_served ? no_value : fast.limit;
    }

    /// Fills `t` from the caller's scales. `worth`: it pays to make quotients products where these are exact.
    template <std::size_t Size>
    void fill(scale_table<Arch, Size>& t, const float* scale, const std::int64_t*, std::size_t count, bool worth) const noexcept {
        for (std::size_t k = 0; k < count; ++k) {
            t.scale[k] = scales_apply ? scale[k] : 1.0f;
            t.lowest[k] = t.highest[k] = 0;
            t.limit[k] = limit_of(t.scale[k]);
        }
        t.finish(count, worth && !other_rounding ? fast.tie_bits : 0, false);
    }
    template <std::size_t Size>
    floating_step<Arch> step(const scale_table<Arch, Size>& t, std::size_t k, const std::int64_t*) const noexcept {
        return {rules, vf<Arch>(t.scale[k]), t.scale[k] != 1.0f};
    }
    template <std::size_t Size>
    floating_step<Arch> step_across(const scale_table<Arch, Size>& t, std::size_t i, std::size_t, const std::int64_t*) const noexcept {
        return {rules, load<Arch>(t.scale + i), scales_apply};
    }

    /// Calls call(form, is it scaled) with the fast form that applies.
    template <class Scaled, class Call>
    void with_form(Scaled scaled, bool product, const Call& call) const noexcept {
        const auto either = [&](const auto& form) {
            if constexpr (std::same_as<Scaled, bool>) scaled ? call(form, std::true_type()) : call(form, std::false_type());
            else call(form, scaled);
        };
        if constexpr (may_be(Known, floating_kind::power_of_two)) {
            if (power.usable()) return either(power);
            if constexpr (!is_baseline<Arch>) {
                if (rules.powers_of_two) return call(rounded_power<Arch>(rules), std::true_type());
            }
        }
        if constexpr (may_be(Known, floating_kind::float32_exponents)) {
            if constexpr (!is_baseline<Arch>) {
                if (fast.shift != 0 && other_rounding) return call(rounded_truncation<Arch>(fast, rules), std::true_type());
            }
            if (fast.shift != 0) return either(fast_truncation<Arch>(fast));
        }
        if constexpr (Known == floating_kind::power_of_two) return;
        if constexpr (!is_baseline<Arch>) {
            if (other_rounding) return call(rounded_floating<Arch>(fast, rules), std::true_type());
        }
        if constexpr (has_fused<Arch>()) {
            if (product && scaled)
                return fast.saturates ? call(floating_by_product<Arch, true>{fast}, std::true_type())
                                      : call(floating_by_product<Arch, false>{fast}, std::true_type());
        }
        either(fast);
    }
};

template <class Arch>
struct integer_rows {
    integer_rules rules;
    fast_integer<Arch> fast;
    bool wide;  ///< more codes than fast's sums hold
    bool flushes, other_rounding, usable, streaming;
    int tie_bits;  ///< significant bits of a tie between two codes less the zero point; 0: divide

    integer_rows(integer f, const semantics& how, bool one_scale, bool stream_rows) noexcept
        : rules(rules_of(f, how, one_scale)),
          fast(without_flush(rules)),
          wide(f.bits > 20),
          flushes(kernels::flushes(rules)),
          other_rounding(rules.how != rounding::half_even || rules.random.used || rules.zero_before || wide),
          usable(default_environment<Arch>() && is_counted(rules.how, rules.random) && !(other_rounding && is_baseline<Arch>)),
          streaming(stream_rows),
          tie_bits(f.bits < 20 && !fast.multiply ? f.bits + 1 : 0) {
        if (flushes) fast.least_scale = std::bit_cast<std::int32_t>(0x1p-60f) + 1;
    }

    template <std::size_t Size>
    void fill(scale_table<Arch, Size>& t, const float* scale, const std::int64_t* zero, std::size_t count, bool worth) const noexcept {
        if (wide) return fill_wide(t, scale, zero, count);
        for (std::size_t k = 0; k < count; ++k) {  // which compilers vectorise
            const auto lowest = static_cast<float>(rules.lowest - (zero == nullptr ? 0 : zero[k])),
                       highest = static_cast<float>(rules.highest - (zero == nullptr ? 0 : zero[k]));
            t.scale[k] = scale[k];
            t.limit[k] = fast.limit_of(scale[k], lowest, highest);
            t.lowest[k] = fast.sum_of(lowest);
            t.highest[k] = fast.sum_of(highest);
        }
        t.finish(count, worth && !other_rounding ? tie_bits : 0, fast.multiply);
    }
    template <std::size_t Size>
    QK_APART void fill_wide(scale_table<Arch, Size>& t, const float* scale, const std::int64_t* zero, std::size_t count) const noexcept {
        for (std::size_t k = 0; k < count; ++k) {
            const std::int64_t z = zero == nullptr ? 0 : zero[k];
            const bool is_served = !(rules.zero_before && z != 0);
            t.scale[k] = scale[k];
            t.limit[k] = is_served ? fast.wide_limit_of(scale[k]) : no_value;
            t.lowest[k] = std::bit_cast<std::int32_t>(static_cast<float>(rules.lowest - z));
            t.highest[k] = std::bit_cast<std::int32_t>(static_cast<float>(rules.highest - z));
        }
        t.finish(count, 0, fast.multiply);
    }
    template <std::size_t Size>
    integer_step<Arch> step(const scale_table<Arch, Size>& t, std::size_t k, const std::int64_t* zero) const noexcept {
        return {rules, t.scale[k], zero == nullptr ? 0 : zero[k]};
    }
    template <std::size_t Size>
    integer_step<Arch> step_across(const scale_table<Arch, Size>& t, std::size_t i, std::size_t count,
                                   const std::int64_t* zero) const noexcept {
        return {rules, load<Arch>(t.scale + i), zero == nullptr ? nullptr : zero + i, count};
    }

    /// Calls call(form, does it multiply by the reciprocal) with the fast form that applies.
    template <class Scaled, class Call>
    void with_form(Scaled, bool product, const Call& call) const noexcept {
        if constexpr (!is_baseline<Arch>) {
            if (rules.random.used && !rules.zero_before && !wide) return call(integer_by_words<Arch>(fast, rules), std::false_type());
            if (other_rounding) return call(rounded_integer<Arch>(fast, rules, wide), std::false_type());
        }
        if constexpr (has_fused<Arch>()) {
            if (product) return call(integer_by_product<Arch>{fast}, std::false_type());
        }
        fast.multiply ? call(fast, std::true_type()) : call(fast, std::false_type());
    }
};

/// Tables have the general form alone.
template <class Arch>
struct table_rows {
    static constexpr bool usable = false, streaming = false;
    table_rules<Arch> rules;

    table_rows(const table& f, const semantics& how) noexcept : rules(f, how) {}
    template <std::size_t Size>
    void fill(scale_table<Arch, Size>& t, const float* scale, const std::int64_t*, std::size_t count, bool) const noexcept {
        for (std::size_t k = 0; k < count; ++k) {
            t.scale[k] = scale[k];
            t.lowest[k] = t.highest[k] = 0;
            t.limit[k] = no_value;
        }
        t.finish(count, 0, false);
    }
    template <std::size_t Size>
    table_step<Arch> step(const scale_table<Arch, Size>& t, std::size_t k, const std::int64_t*) const noexcept {
        return {&rules, vf<Arch>(t.scale[k]), t.scale[k] != 1.0f};
    }
    template <std::size_t Size>
    table_step<Arch> step_across(const scale_table<Arch, Size>& t, std::size_t i, std::size_t, const std::int64_t*) const noexcept {
        return {&rules, load<Arch>(t.scale + i), true};
    }
    template <class Scaled, class Call>
    void with_form(Scaled, bool, const Call&) const noexcept {}
};

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

}  // namespace qk::kernels
