// SPDX-License-Identifier: Apache-2.0
// Implements Transpose: axes that stay together are merged first; then whole runs are copied, or square tiles transposed.
#pragma once

#include <algorithm>
#include <cstring>

#include "graph/base/inner_loop.hpp"
#include "graph/ops/dispatch.hpp"
#include "graph/ops/walk/rules.hpp"

namespace qk::graph::ops {

/// A permutation of axes, in which axes of length 1 are dropped and neighbours that stay neighbours are merged.
struct merged_permutation {
    std::vector<std::size_t> length;  ///< of each output axis
    std::vector<std::size_t> stride;  ///< in the input, of each output axis

    merged_permutation(std::span<const std::int64_t> shape, std::span<const std::size_t> order);
};

/// Transposes y[i * y_pitch + j] = x[j * x_pitch + i] for i < rows, j < columns, in tiles that stay in the L1 cache.
template <class T>
void turn(const T* x, std::size_t x_pitch, T* y, std::size_t y_pitch, std::size_t rows, std::size_t columns) {
    constexpr std::size_t tile = 16;
    for (std::size_t j0 = 0; j0 < columns; j0 += tile)
        for (std::size_t i0 = 0; i0 < rows; i0 += tile) {
            const std::size_t i1 = std::min(rows, i0 + tile), j1 = std::min(columns, j0 + tile);
            for (std::size_t i = i0; i < i1; ++i)
                for (std::size_t j = j0; j < j1; ++j) y[i * y_pitch + j] = x[j * x_pitch + i];
        }
}

/// Sets y to x with its axes in `order`: output axis k is input axis order[k]. y has x.size() elements.
template <class T>
void transpose_elements(const T* x, std::span<const std::int64_t> shape, std::span<const std::size_t> order, T* y) {
    const merged_permutation p(shape, order);
    const std::size_t axes = p.length.size();
    // Loops walk all output axes but the last and the one that is contiguous in the input; that one is transposed together with the last.
    const std::size_t last = axes - 1;
    std::size_t unit = last;
    for (std::size_t a = 0; a < axes; ++a)
        if (p.stride[a] == 1) unit = a;
    std::vector<std::size_t> to_stride(axes, 1);
    for (std::size_t a = last; a-- > 0;) to_stride[a] = to_stride[a + 1] * p.length[a + 1];
    std::vector<std::size_t> walked;
    std::size_t steps = 1;
    for (std::size_t a = 0; a < last; ++a)
        if (a != unit) {
            walked.push_back(a);
            steps *= p.length[a];
        }
    for (const std::size_t n : p.length)
        if (n == 0) return;

    const std::size_t each = p.length[last] * (unit == last ? 1 : p.length[unit]);
    const auto some = [&](std::size_t first, std::size_t end) {
        std::vector<std::size_t> index(walked.size());
        std::size_t from = 0, to = 0, rest = first;
        for (std::size_t k = walked.size(); k-- > 0;) {
            const std::size_t a = walked[k];
            index[k] = rest % p.length[a], rest /= p.length[a];
            from += index[k] * p.stride[a], to += index[k] * to_stride[a];
        }
        for (std::size_t step = first; step < end; ++step) {
            if (unit == last) std::memcpy(y + to, x + from, p.length[last] * sizeof(T));
            else turn(x + from, p.stride[last], y + to, to_stride[unit], p.length[unit], p.length[last]);
            for (std::size_t k = walked.size(); k-- > 0;) {
                const std::size_t a = walked[k];
                from += p.stride[a], to += to_stride[a];
                if (++index[k] < p.length[a]) break;
                from -= p.stride[a] * p.length[a], to -= to_stride[a] * p.length[a];
                index[k] = 0;
            }
        }
    };
    for_each_range(steps, each * (unit == last ? 1 : 4) + 8, some);
}

/// Returns x with its axes in `order`. The result shares x's memory if no element moves, else it is a copy.
tensor transposed(op_context& call, const tensor& x, std::span<const std::size_t> order);

void transpose(op_context& call);

inline constexpr op_entry transpose_ops[] = {
    {"", "Transpose", 1, transpose, nullptr, {follow_transpose}, {mover | reckons | moves_channels | keeps_all}}};

}  // namespace qk::graph::ops
