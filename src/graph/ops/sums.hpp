// SPDX-License-Identifier: Apache-2.0
// Sums over parallel lanes: they vectorise, are more accurate than one long chain, and their order depends on the number of terms alone.
#pragma once

#include <array>
#include <cstddef>
#include <type_traits>

#include "graph/ops/vector_math.hpp"

namespace qk::graph::ops {

/// Returns the sum of f(i) for i in [0, n), in 16 lanes.
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

/// Returns the sum of map(x[i]) for i in [0, n). map takes a T; for float it must also take a vfloat.
template <class T, class Map>
T row_sum(const T* x, std::size_t n, Map map) {
    if constexpr (std::is_same_v<T, float>) return fold_row(x, n, 0.0f, map, [](auto a, auto b) { return a + b; });
    else return lane_sum<T>(n, [&](std::size_t i) { return map(x[i]); });
}

/// Mean and population variance, computed in two passes.
template <class T>
struct moments {
    T mean, variance;
};
template <class T>
moments<T> moments_of(const T* x, std::size_t n) {
    const T count = static_cast<T>(n == 0 ? 1 : n);
    const T mean = row_sum(x, n, [](auto v) { return v; }) / count;
    const auto squared = [mean](auto v) {
        const auto d = v - mean;
        return d * d;
    };
    return {mean, row_sum(x, n, squared) / count};
}

/// Returns the dot product of a and b.
template <class T>
T dot(const T* a, const T* b, std::size_t n) {
    return lane_sum<T>(n, [a, b](std::size_t i) { return a[i] * b[i]; });
}

}  // namespace qk::graph::ops
