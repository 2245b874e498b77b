// SPDX-License-Identifier: Apache-2.0
// Sums in 16 lanes: they vectorise, are more accurate than one long chain, and depend on nothing but the number of terms.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>

namespace qk::graph::ops {

/// Sum of f(i) for i in [0, n).
template <class T, class F>
T lane_sum(std::size_t n, F&& f) {
    constexpr std::size_t lanes = 16;
    std::array<T, lanes> sum{};
    std::size_t i = 0;
    for (; i + lanes <= n; i += lanes)
        for (std::size_t l = 0; l < lanes; ++l) sum[l] += f(i + l);
    for (std::size_t l = 0; i < n; ++i, ++l) sum[l] += f(i);
    for (std::size_t half = lanes / 2; half > 0; half /= 2)
        for (std::size_t l = 0; l < half; ++l) sum[l] += sum[l + half];
    return sum[0];
}

/// Mean and population variance, by two passes.
template <class T>
struct moments {
    T mean, variance;
};
template <class T>
moments<T> moments_of(const T* x, std::size_t n) {
    const T count = static_cast<T>(n == 0 ? 1 : n);
    const T mean = lane_sum<T>(n, [x](std::size_t i) { return x[i]; }) / count;
    const T variance = lane_sum<T>(n, [x, mean](std::size_t i) { return (x[i] - mean) * (x[i] - mean); }) / count;
    return {mean, variance};
}

/// a . b
template <class T>
T dot(const T* a, const T* b, std::size_t n) {
    return lane_sum<T>(n, [a, b](std::size_t i) { return a[i] * b[i]; });
}

}  // namespace qk::graph::ops
