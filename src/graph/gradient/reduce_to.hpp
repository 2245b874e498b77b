// SPDX-License-Identifier: Apache-2.0
// The transpose of broadcasting: a gradient is summed over the axes along which its operand was repeated.
#pragma once

#include <vector>

#include "graph/gradient/backward.hpp"
#include "graph/ops/broadcast.hpp"
#include "graph/ops/sums.hpp"

namespace qk::graph::gradient {

/// Calls f(i, j) for every element i of a tensor of shape `all`, j being the element of an operand of shape `part` that is broadcast there.
template <class F>
void each_broadcast(const dims& all, const dims& part, F&& f) {
    const ops::broadcast_walk<1> walk(all, {&part});
    walk.each_run([&](std::size_t out, const std::array<std::size_t, 1>& at) {
        if (walk.step[0] != 0)
            for (std::size_t i = 0; i < walk.run; ++i) f(out + i, at[0] + i);
        else
            for (std::size_t i = 0; i < walk.run; ++i) f(out + i, at[0]);
    });
}

/// Returns `g` summed to `shape`, which broadcasts to g's. Sums are taken in double, run by run in the order of g's elements.
template <class T>
tensor reduced_to(const tensor& g, const dims& shape) {
    if (g.shape() == shape) return g;
    if (g.size() == element_count(shape)) return g.reshaped(shape);
    std::vector<double> sums(element_count(shape), 0.0);
    const T* from = g.as<T>().data();
    const ops::broadcast_walk<1> walk(g.shape(), {&shape});
    walk.each_run([&](std::size_t out, const std::array<std::size_t, 1>& at) {
        if (walk.step[0] != 0) {
            for (std::size_t i = 0; i < walk.run; ++i) sums[at[0] + i] += static_cast<double>(from[out + i]);
            return;
        }
        sums[at[0]] += ops::lane_sum<double>(walk.run, [&](std::size_t i) { return static_cast<double>(from[out + i]); });
    });
    return rounded_sums<T>(sums, shape);
}

}  // namespace qk::graph::gradient
