// SPDX-License-Identifier: Apache-2.0
// Runs the step of an elementwise format over rows: tiles by the short form where it serves them, all else by the complete one.
#pragma once

#include "qk/kernels/quick_roundings.hpp"
#include "qk/kernels/quick_steps.hpp"
#include "qk/kernels/streaming.hpp"

namespace qk::kernels {

/// y[i] = step(x[i]); `position` is that of x[0] in the caller's span (stochastic rounding).
template <class Arch, class Step>
#if defined(__GNUC__)
__attribute__((noinline))
#endif
void run_row_completely(const float* x, float* y, std::size_t n, std::size_t position, const Step& step) noexcept {
    constexpr std::size_t w = lanes<Arch>;
    const auto bits = [&](std::size_t i, std::size_t count) { return random_lanes<Arch>(step.random(), position + i, 1, count); };
    std::size_t i = 0;
    for (; i + w <= n; i += w) store<Arch>(y + i, step.complete(load<Arch>(x + i), bits(i, w)));
    if (i < n) store_some<Arch>(y + i, 1, n - i, step.complete(load_some<Arch>(x + i, 1, n - i), bits(i, n - i)));
}

/// Tiles of four vectors, tested with one compare. `Choice` is what the short form is compiled for (scaled, multiplied);
/// complete(begin, count) does what it declines.
template <class Arch, bool Choice, bool Streaming, class Quick, class Complete>
std::size_t run_tiles(const float* x, float* y, std::size_t n, const Quick& quick, const Complete& complete) noexcept {
    constexpr std::size_t w = lanes<Arch>, tile = 4 * w;
    using V = vi<Arch>;
    const Quick q = quick;  // its constants in registers
    const V limit(q.limit), magnitude(magnitude_bits);
    std::size_t i = 0;
    for (; i + tile <= n; i += tile) {
        const vf<Arch> a = q.template prepare<Choice>(load<Arch>(x + i)), b = q.template prepare<Choice>(load<Arch>(x + i + w));
        const vf<Arch> c = q.template prepare<Choice>(load<Arch>(x + i + 2 * w)), d = q.template prepare<Choice>(load<Arch>(x + i + 3 * w));
        const V most = xsimd::max(xsimd::max(as_int<Arch>(a) & magnitude, as_int<Arch>(b) & magnitude),
                                  xsimd::max(as_int<Arch>(c) & magnitude, as_int<Arch>(d) & magnitude));
        if (__builtin_expect(xsimd::any(most > limit), 0)) {
            complete(i, tile);
            continue;
        }
        const auto put = [](float* to, vf<Arch> v) { Streaming ? stream<Arch>(to, v) : store<Arch>(to, v); };
        put(y + i, q.template finish<Choice>(a, i));
        put(y + i + w, q.template finish<Choice>(b, i + w));
        put(y + i + 2 * w, q.template finish<Choice>(c, i + 2 * w));
        put(y + i + 3 * w, q.template finish<Choice>(d, i + 3 * w));
    }
    return i;
}

/// Without streaming.
template <class Arch, bool Choice, class Quick, class Complete>
void run_tiles_and_end(const float* x, float* y, std::size_t n, const Quick& quick, const Complete& complete) noexcept {
    const std::size_t done = run_tiles<Arch, Choice, false>(x, y, n, quick, complete);
    if (done < n) complete(done, n - done);
}

/// The caller ends the streaming.
template <class Arch, bool Choice, class Quick, class Complete>
void run_row_quickly(const float* x, float* y, std::size_t n, bool streaming, const Quick& quick, const Complete& complete) noexcept {
    constexpr std::size_t alignment = sizeof(vf<Arch>);
    std::size_t done = 0;
    if (streaming) {
        const std::size_t past = reinterpret_cast<std::uintptr_t>(y) % alignment;
        if (past % sizeof(float) == 0) {
            done = std::min(n, past == 0 ? 0 : (alignment - past) / sizeof(float));
            complete(0, done);
            const auto rest = [&, head = done](std::size_t begin, std::size_t count) { complete(head + begin, count); };
            done += run_tiles<Arch, Choice, true>(x + done, y + done, n - done, quick, rest);
        }
    }
    const auto rest = [&, from = done](std::size_t begin, std::size_t count) { complete(from + begin, count); };
    done += run_tiles<Arch, Choice, false>(x + done, y + done, n - done, quick, rest);
    if (done < n) complete(done, n - done);
}

/// Rows of a few vectors are not worth a short form's preparation.
template <class Arch>
inline constexpr std::size_t quick_from = 4 * lanes<Arch>;

/// Rows shorter than this divide: the reciprocal would take longer.
inline constexpr std::size_t product_from = 2048;

/// What the rows of an array share, of which each has a scale and a zero point of its own.
template <class Arch>
struct floating_rows {
    floating_rules rules;
    quick_floating<Arch> quick;
    bool usable, streaming;

    floating_rows(floating f, const semantics& how, bool, bool stream_rows) noexcept
        : rules(rules_of(f, how)), quick(rules), usable(quick.limit != no_value && default_environment<Arch>()), streaming(stream_rows) {}

    void run(const float* x, float* y, std::size_t n, std::size_t position, float scale, std::int64_t) noexcept {
        const bool scaled = scale != 1.0f;
        const auto complete = [&](std::size_t begin, std::size_t count) {
            run_row_completely<Arch>(x + begin, y + begin, count, position + begin, floating_step<Arch>(rules, vf<Arch>(scale), scaled));
        };
        if (!usable || n < quick_from<Arch>) return complete(0, n);
        quick.scale = vf<Arch>(scale);
        if (rules.how != rounding::half_even || rules.random.used) {
            const auto by = [&](const auto& form) {
                scaled ? run_tiles_and_end<Arch, true>(x, y, n, form, complete) : run_tiles_and_end<Arch, false>(x, y, n, form, complete);
            };
            if (quick.shift != 0) return by(rounded_truncation<Arch>(quick, rules, position));
            // Steps and what counts them are to be normal numbers.
            if (xsimd::any(quick.least <= vi<Arch>((rules.mantissa_bits + 1) << 23))) return complete(0, n);
            return by(rounded_floating<Arch>(quick, rules, position));
        }
        const auto by = [&](const auto& form) {
            scaled ? run_row_quickly<Arch, true>(x, y, n, streaming, form, complete) : run_row_quickly<Arch, false>(x, y, n, streaming, form, complete);
        };
        quick.shift != 0 ? by(quick_truncation<Arch>(quick)) : by(quick);
    }
};

template <class Arch>
struct integer_rows {
    integer_rules rules;
    quick_integer<Arch> quick;
    bool usable, streaming;

    integer_rows(integer f, const semantics& how, bool one_scale, bool stream_rows) noexcept
        : rules(rules_of(f, how, one_scale)), quick(rules), usable(quick.plain && default_environment<Arch>()), streaming(stream_rows) {}

    void run(const float* x, float* y, std::size_t n, std::size_t position, float scale, std::int64_t zero) noexcept {
        const auto complete = [&](std::size_t begin, std::size_t count) {
            run_row_completely<Arch>(x + begin, y + begin, count, position + begin, integer_step<Arch>(rules, scale, zero));
        };
        const auto low = static_cast<float>(rules.lowest - zero), high = static_cast<float>(rules.highest - zero);
        if (!usable || n < quick_from<Arch> || !quick.set(scale, low, high)) return complete(0, n);
        if (rules.how != rounding::half_even || rules.random.used) {
            const rounded_integer<Arch> form(quick, rules, low, high, position);
            quick.multiply ? run_tiles_and_end<Arch, true>(x, y, n, form, complete) : run_tiles_and_end<Arch, false>(x, y, n, form, complete);
            return;
        }
        if constexpr (has_fused<Arch>()) {
            const auto multiplied = [&]() __attribute__((noinline)) {
                run_row_quickly<Arch, false>(x, y, n, streaming, integer_by_product<Arch>(quick), complete);
            };
            if (n >= product_from && quick.by_product()) return multiplied();
        }
        quick.multiply ? run_row_quickly<Arch, true>(x, y, n, streaming, quick, complete) : run_row_quickly<Arch, false>(x, y, n, streaming, quick, complete);
    }
};

}  // namespace qk::kernels
