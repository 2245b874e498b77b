// SPDX-License-Identifier: Apache-2.0
// Defines the walk over operands that broadcast.
#include "graph/ops/broadcast.hpp"

namespace qk::graph::ops {

template <std::size_t N>
broadcast_walk<N>::broadcast_walk(std::span<const std::int64_t> out, const std::array<const dims*, N>& operands) {
    std::array<std::size_t, N> size{};  // elements of operand k within the axes seen so far
    size.fill(1);
    std::vector<std::array<std::size_t, N>> strides;
    for (std::size_t i = out.size(); i-- > 0;) {
        const auto length = static_cast<std::size_t>(out[i]);
        if (length == 1) continue;
        std::array<std::size_t, N> s{};
        for (std::size_t k = 0; k < N; ++k) {
            const dims& shape = *operands[k];
            const std::size_t skip = out.size() - shape.size();
            const std::size_t d = i < skip ? 1 : static_cast<std::size_t>(shape[i - skip]);
            s[k] = d == 1 ? 0 : size[k];
            size[k] *= d;
        }
        bool merge = !extent.empty();
        for (std::size_t k = 0; merge && k < N; ++k) merge = s[k] == strides.back()[k] * extent.back();
        if (merge) extent.back() *= length;
        else {
            extent.push_back(length);
            strides.push_back(s);
        }
    }
    if (!extent.empty()) {  // axes are innermost first so far
        run = extent.front();
        step = strides.front();
        extent.erase(extent.begin());
        strides.erase(strides.begin());
    }
    std::reverse(extent.begin(), extent.end());
    stride.assign(strides.rbegin(), strides.rend());
}

template <std::size_t N>
std::array<std::size_t, N> broadcast_walk<N>::place_of(std::size_t one, std::vector<std::size_t>& index) const {
    std::array<std::size_t, N> at{};
    index.resize(extent.size());
    if (runs() == 0) return at;  // an empty output has no runs
    for (std::size_t a = extent.size(); a-- > 0; one /= extent[a]) {
        index[a] = one % extent[a];
        for (std::size_t k = 0; k < N; ++k) at[k] += stride[a][k] * index[a];
    }
    return at;
}

template struct broadcast_walk<1>;
template struct broadcast_walk<2>;
template struct broadcast_walk<3>;

void map_rows(std::span<const std::int64_t> shape, const tensor& a, const tensor& b, tensor& y, const void* function, compute_row compute) {
    const broadcast_walk<2> walk(shape, {&a.shape(), &b.shape()});
    const std::size_t size_a = size_of(a.type()), size_b = size_of(b.type()), size_y = size_of(y.type());
    const auto row = [&](std::size_t at_a, std::size_t at_b, std::size_t at_y, std::size_t count) {
        compute(function,
                {a.bytes() + at_a * size_a, b.bytes() + at_b * size_b, y.bytes() + at_y * size_y, count, walk.step[0], walk.step[1]});
    };
    const std::size_t runs = walk.runs();
    if (runs == 1)
        return for_each_range(
            walk.run, 1, [&](std::size_t begin, std::size_t end) { row(begin * walk.step[0], begin * walk.step[1], begin, end - begin); });
    for_each_range(runs, walk.run + 4, [&](std::size_t first, std::size_t last) {
        walk.each_run(first, last, [&](std::size_t out, const std::array<std::size_t, 2>& at) { row(at[0], at[1], out, walk.run); });
    });
}

}  // namespace qk::graph::ops
