// SPDX-License-Identifier: Apache-2.0
// Numpy broadcasting: computes the common shape of operands, and walks over it in runs along which each operand repeats one element or
// advances by one.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <vector>

#include "graph/base/inner_loop.hpp"
#include "graph/ops/dispatch.hpp"

namespace qk::graph::ops {

/// Returns the shape that all operands broadcast to. Fails with the node's name when there is none.
dims broadcast_shape(const op_context& call, std::span<const tensor* const> operands);

/// Describes how N operands advance while an output of a given shape is written in order.
///
/// Neighbouring axes along which every operand advances alike are merged, so most calls have one run or a few long ones. The innermost axis
/// is the run: along it step[k] is 0 (operand k repeats one element) or 1 (operand k is contiguous).
template <std::size_t N>
struct broadcast_walk {
    std::size_t run = 1;                ///< length of a run
    std::array<std::size_t, N> step{};  ///< 0 or 1
    std::vector<std::size_t> extent;    ///< outer axes, outermost first
    std::vector<std::array<std::size_t, N>> stride;

    broadcast_walk(std::span<const std::int64_t> out, const std::array<const dims*, N>& operands);

    std::size_t runs() const {
        std::size_t n = run == 0 ? 0 : 1;
        for (const std::size_t e : extent) n *= e;
        return n;
    }
    /// Calls f(output offset, operand offsets) for every run.
    template <class F>
    void each_run(F&& f) const {
        each_run(0, runs(), f);
    }
    /// Calls f for the runs in [first, last) only.
    template <class F>
    void each_run(std::size_t first, std::size_t last, F&& f) const {
        std::vector<std::size_t> index;
        std::array<std::size_t, N> at = place_of(first, index);
        for (std::size_t r = first; r < last; ++r) {
            f(r * run, at);
            for (std::size_t a = extent.size(); a-- > 0;) {
                for (std::size_t k = 0; k < N; ++k) at[k] += stride[a][k];
                if (++index[a] < extent[a]) break;
                for (std::size_t k = 0; k < N; ++k) at[k] -= stride[a][k] * extent[a];
                index[a] = 0;
            }
        }
    }

  private:
    /// Returns the operands' offsets at run `one`, and sets `index` to its place along the outer axes.
    std::array<std::size_t, N> place_of(std::size_t one, std::vector<std::size_t>& index) const;
};

// Instantiated in src/graph/ops/broadcast.cpp.
extern template struct broadcast_walk<1>;
extern template struct broadcast_walk<2>;
extern template struct broadcast_walk<3>;

/// One run of two broadcast operands: `count` results; each operand advances (step 1) or repeats one element (step 0).
struct pair_row {
    const std::byte *a, *b;
    std::byte* y;
    std::size_t count, step_a, step_b;
};

/// Computes one row. `function` is the pointer that map_rows received.
using compute_row = void (*)(const void* function, const pair_row& row);

/// Calls `compute` for every row of a and b, broadcast to `shape`, the shape of y. It does not depend on element types, so one instance is
/// compiled for all of them.
void map_rows(std::span<const std::int64_t> shape, const tensor& a, const tensor& b, tensor& y, const void* function, compute_row compute);

/// Computes one row of y[i] = f(a[i], b[i]). Each combination of steps has a loop of its own, so that each vectorises.
template <class A, class B, class Y, class F>
void compute_elements(const void* function, const pair_row& row) {
    const F& f = *static_cast<const F*>(function);
    const A* a = reinterpret_cast<const A*>(row.a);
    const B* b = reinterpret_cast<const B*>(row.b);
    Y* y = reinterpret_cast<Y*>(row.y);
    if (row.step_a && row.step_b)
        for (std::size_t i = 0; i < row.count; ++i) y[i] = f(a[i], b[i]);
    else if (row.step_a)
        for (std::size_t i = 0; i < row.count; ++i) y[i] = f(a[i], *b);
    else if (row.step_b)
        for (std::size_t i = 0; i < row.count; ++i) y[i] = f(*a, b[i]);
    else std::fill_n(y, row.count, f(*a, *b));
}

/// Computes y[i] = f(a[i], b[i]) with broadcasting; `shape` is the broadcast shape of a and b.
template <class A, class B, class Y, class F>
void map_broadcast(std::span<const std::int64_t> shape, const tensor& a, const tensor& b, tensor& y, const F& f) {
    map_rows(shape, a, b, y, &f, compute_elements<A, B, Y, F>);
}

/// Computes y[i] = f(a[i], b[i], c[i]) with broadcasting; `shape` is their broadcast shape.
template <class A, class B, class C, class Y, class F>
void map_broadcast(std::span<const std::int64_t> shape, const tensor& a, const tensor& b, const tensor& c, tensor& y, F f) {
    const broadcast_walk<3> walk(shape, {&a.shape(), &b.shape(), &c.shape()});
    const auto [sa, sb, sc] = walk.step;
    const A* pa = a.as<A>().data();
    const B* pb = b.as<B>().data();
    const C* pc = c.as<C>().data();
    Y* py = y.as<Y>().data();
    walk.each_run([&, sa = sa, sb = sb, sc = sc](std::size_t out, const std::array<std::size_t, 3>& at) {
        const A* x = pa + at[0];
        const B* u = pb + at[1];
        const C* v = pc + at[2];
        Y* to = py + out;
        if (sa && sb && sc)
            for (std::size_t i = 0; i < walk.run; ++i) to[i] = f(x[i], u[i], v[i]);
        else
            for (std::size_t i = 0; i < walk.run; ++i) to[i] = f(x[i * sa], u[i * sb], v[i * sc]);
    });
}

}  // namespace qk::graph::ops
