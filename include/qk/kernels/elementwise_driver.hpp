// SPDX-License-Identifier: Apache-2.0
// Runs the step of an elementwise format over rows: tiles by the short form where it serves them, all else by the complete one.
#pragma once

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

/// Tiles of four vectors, tested with one compare. `Choice` is what the short form is compiled for (scaled, multiplied).
template <class Arch, bool Choice, bool Streaming, class Step, class Quick>
std::size_t run_tiles(const float* x, float* y, std::size_t n, std::size_t position, const Step& step, const Quick& quick) noexcept {
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
            run_row_completely<Arch>(x + i, y + i, tile, position + i, step);
            continue;
        }
        const auto put = [](float* to, vf<Arch> v) { Streaming ? stream<Arch>(to, v) : store<Arch>(to, v); };
        put(y + i, q.template finish<Choice>(a));
        put(y + i + w, q.template finish<Choice>(b));
        put(y + i + 2 * w, q.template finish<Choice>(c));
        put(y + i + 3 * w, q.template finish<Choice>(d));
    }
    if (Streaming) end_streaming<Arch>();
    return i;
}

template <class Arch, bool Choice, class Step, class Quick>
void run_row_quickly(const float* x, float* y, std::size_t n, std::size_t position, const Step& step, const Quick& quick) noexcept {
    constexpr std::size_t alignment = sizeof(vf<Arch>);
    std::size_t done = 0;
    if (streams<Arch>(x, y, n)) {
        const std::size_t past = reinterpret_cast<std::uintptr_t>(y) % alignment;
        if (past % sizeof(float) == 0) {
            const std::size_t head = past == 0 ? 0 : (alignment - past) / sizeof(float);
            run_row_completely<Arch>(x, y, head, position, step);
            done = head + run_tiles<Arch, Choice, true>(x + head, y + head, n - head, position + head, step, quick);
        }
    }
    done += run_tiles<Arch, Choice, false>(x + done, y + done, n - done, position + done, step, quick);
    if (done < n) run_row_completely<Arch>(x + done, y + done, n - done, position + done, step);
}

/// Rows of a few vectors are not worth a short form's preparation.
template <class Arch>
inline constexpr std::size_t quick_from = 4 * lanes<Arch>;

template <class Arch>
void run_row(const float* x, float* y, std::size_t n, std::size_t position, const floating_step<Arch>& step) noexcept {
    if (n >= quick_from<Arch> && default_environment<Arch>()) {
        const quick_floating<Arch> quick(step);
        if (quick.shift != 0) {
            const quick_truncation<Arch> shorter(quick);
            return step.scaled ? run_row_quickly<Arch, true>(x, y, n, position, step, shorter) : run_row_quickly<Arch, false>(x, y, n, position, step, shorter);
        }
        if (quick.limit != no_value) {
            return step.scaled ? run_row_quickly<Arch, true>(x, y, n, position, step, quick) : run_row_quickly<Arch, false>(x, y, n, position, step, quick);
        }
    }
    run_row_completely<Arch>(x, y, n, position, step);
}

template <class Arch>
void run_row(const float* x, float* y, std::size_t n, std::size_t position, const integer_step<Arch>& step) noexcept {
    if (n >= quick_from<Arch> && default_environment<Arch>()) {
        const quick_integer<Arch> quick(step);
        if (quick.limit != no_value) {
            if (quick.multiply) return run_row_quickly<Arch, true>(x, y, n, position, step, quick);
            return run_row_quickly<Arch, false>(x, y, n, position, step, quick);
        }
    }
    run_row_completely<Arch>(x, y, n, position, step);
}

}  // namespace qk::kernels
