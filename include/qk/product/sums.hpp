// SPDX-License-Identifier: Apache-2.0
// The order of every sum of a product (qk/product.hpp, "The order"): sixteen partial sums, products and sums rounded once, one tree.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "qk/inline.hpp"
#include "qk/kernels/lanes/simd.hpp"

namespace qk::detail {

/// Partial sums of a row: weight k is added to number k % 16, whatever the width of a vector.
inline constexpr std::size_t partial_sums = 16;

template <class Arch>
inline constexpr std::size_t vectors_of_sums = partial_sums / kernels::lanes<Arch>;

/// Returns a * b + c, rounded once, on every processor.
///
/// Without the instruction: the product of two floats is exact in a double, and the sum's error is another double. If there is an error,
/// the sum is made odd (the last bit of its significand is set, toward the exact sum), which tells the exact sum from a tie of the second
/// rounding, that to float.
template <class Arch>
QK_INLINE kernels::vf<Arch> fused(kernels::vf<Arch> a, kernels::vf<Arch> b, kernels::vf<Arch> c) noexcept {
    if constexpr (kernels::has_fused<Arch>()) {
        return kernels::fma(a, b, c);
    } else {
        constexpr std::size_t w = kernels::lanes<Arch>;
        alignas(64) float x[w], y[w], z[w];
        kernels::store<Arch>(x, a), kernels::store<Arch>(y, b), kernels::store<Arch>(z, c);
        for (std::size_t i = 0; i < w; ++i) {
            const double p = static_cast<double>(x[i]) * static_cast<double>(y[i]), q = static_cast<double>(z[i]);
            const double s = p + q, other = s - p, error = (p - (s - other)) + (q - other);
            std::int64_t bits = std::bit_cast<std::int64_t>(s);
            const bool inexact = error > 0 || error < 0;  // not for NaN, which Inf leaves
            if (inexact && bits % 2 == 0) bits += (error > 0) == (s > 0) ? 1 : -1;
            z[i] = static_cast<float>(std::bit_cast<double>(bits));
        }
        return kernels::load<Arch>(z);
    }
}

/// Joins the partial sums: those eight apart, then four, two and one.
QK_INLINE float joined(const float* sum) noexcept {
    float s[partial_sums / 2];
    for (std::size_t i = 0; i < 8; ++i) s[i] = sum[i] + sum[i + 8];
    for (std::size_t i = 0; i < 4; ++i) s[i] += s[i + 4];
    return (s[0] + s[2]) + (s[1] + s[3]);
}

/// sum[r][m] += w[r] * x[m] for R rows of weights and M vectors of n values each, where sum[r][m] has all partial sums.
template <class Arch, std::size_t R, std::size_t M>
QK_APART void add_products(const float* w, std::size_t w_stride, const float* x, std::size_t x_stride, std::size_t n, float* sum,
                           std::size_t sum_stride) noexcept {
    constexpr std::size_t width = kernels::lanes<Arch>, V = vectors_of_sums<Arch>;
    kernels::vf<Arch> s[R][M][V];
    for (std::size_t r = 0; r < R; ++r)
        for (std::size_t m = 0; m < M; ++m)
            for (std::size_t v = 0; v < V; ++v) s[r][m][v] = kernels::load<Arch>(sum + r * sum_stride + m * partial_sums + v * width);
    std::size_t i = 0;
    for (; i + partial_sums <= n; i += partial_sums) {
        kernels::unrolled<V>([&](auto v) QK_INLINE_CALL {
            kernels::vf<Arch> weight[R];
            kernels::unrolled<R>([&](auto r) QK_INLINE_CALL { weight[r] = kernels::load<Arch>(w + r * w_stride + i + v * width); });
            kernels::unrolled<M>([&](auto m) QK_INLINE_CALL {
                const kernels::vf<Arch> value = kernels::load<Arch>(x + m * x_stride + i + v * width);
                kernels::unrolled<R>([&](auto r) QK_INLINE_CALL { s[r][m][v] = fused<Arch>(value, weight[r], s[r][m][v]); });
            });
        });
    }
    for (std::size_t v = 0; v < V && i + v * width < n; ++v) {  // sums without a product stay as they are
        const std::size_t at = i + v * width, count = n - at < width ? n - at : width;
        const kernels::mask<Arch> own = kernels::iota<Arch>() < kernels::vi<Arch>(static_cast<std::int32_t>(count));
        for (std::size_t r = 0; r < R; ++r) {
            const kernels::vf<Arch> weight = kernels::load_first<Arch>(w + r * w_stride + at, count);
            for (std::size_t m = 0; m < M; ++m) {
                const kernels::vf<Arch> value = kernels::load_first<Arch>(x + m * x_stride + at, count);
                s[r][m][v] = select(own, fused<Arch>(value, weight, s[r][m][v]), s[r][m][v]);
            }
        }
    }
    for (std::size_t r = 0; r < R; ++r)
        for (std::size_t m = 0; m < M; ++m)
            for (std::size_t v = 0; v < V; ++v) kernels::store<Arch>(sum + r * sum_stride + m * partial_sums + v * width, s[r][m][v]);
}

}  // namespace qk::detail
