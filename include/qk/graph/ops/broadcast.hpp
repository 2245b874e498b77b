// SPDX-License-Identifier: Apache-2.0
// Numpy broadcasting: the common shape of some operands, and a walk over it in runs along which each operand either stands still or
// advances by one.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <vector>

#include "qk/graph/base/inner_loop.hpp"
#include "qk/graph/ops/dispatch.hpp"

namespace qk::graph::ops {

/// The shape that all operands stretch to; fails naming the node when there is none.
inline dims broadcast_shape(const op_context& call, std::span<const tensor* const> operands) {
    dims shape;
    for (const tensor* t : operands) {
        const dims& s = t->shape();
        if (s.size() > shape.size()) shape.insert(shape.begin(), s.size() - shape.size(), 1);
        const std::size_t skip = shape.size() - s.size();
        for (std::size_t i = 0; i < s.size(); ++i) {
            std::int64_t& d = shape[skip + i];
            if (d == 1) d = s[i];
            else if (s[i] != 1 && s[i] != d) call.fail("shapes do not broadcast: " + to_string(s) + " against " + to_string(shape));
        }
    }
    return shape;
}

/// How N operands move while an output of some shape is written in order.
///
/// Axes over which every operand moves alike are merged, so most calls become one run or a few long ones. The innermost axis
/// is the run: there, step[k] is 0 (operand k repeats one element) or 1 (it is contiguous).
template <std::size_t N>
struct broadcast_walk {
    std::size_t run = 1;                ///< length of the innermost axis
    std::array<std::size_t, N> step{};  ///< 0 or 1
    std::vector<std::size_t> extent;    ///< outer axes, outermost first
    std::vector<std::array<std::size_t, N>> stride;

    broadcast_walk(std::span<const std::int64_t> out, const std::array<const dims*, N>& operands) {
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
        if (!extent.empty()) {  // innermost first so far
            run = extent.front();
            step = strides.front();
            extent.erase(extent.begin());
            strides.erase(strides.begin());
        }
        std::reverse(extent.begin(), extent.end());
        stride.assign(strides.rbegin(), strides.rend());
    }

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
    /// For the runs in [first, last).
    template <class F>
    void each_run(std::size_t first, std::size_t last, F&& f) const {
        std::array<std::size_t, N> at{};
        std::vector<std::size_t> index(extent.size());
        std::size_t rest = first;
        for (std::size_t a = extent.size(); a-- > 0;) {
            index[a] = rest % extent[a], rest /= extent[a];
            for (std::size_t k = 0; k < N; ++k) at[k] += stride[a][k] * index[a];
        }
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
};

/// y[i] = f(a[i], b[i]) with broadcasting; `shape` is the broadcast shape of a and b.
template <class A, class B, class Y, class F>
void map_broadcast(std::span<const std::int64_t> shape, const tensor& a, const tensor& b, tensor& y, F f) {
    const broadcast_walk<2> walk(shape, {&a.shape(), &b.shape()});
    const A* pa = a.as<A>().data();
    const B* pb = b.as<B>().data();
    Y* py = y.as<Y>().data();
    // A loop per way to move, so that each vectorises.
    const auto some = [&](const A* x, const B* w, Y* to, std::size_t n) {
        if (walk.step[0] && walk.step[1])
            for (std::size_t i = 0; i < n; ++i) to[i] = f(x[i], w[i]);
        else if (walk.step[0])
            for (std::size_t i = 0; i < n; ++i) to[i] = f(x[i], *w);
        else if (walk.step[1])
            for (std::size_t i = 0; i < n; ++i) to[i] = f(*x, w[i]);
        else
            for (std::size_t i = 0; i < n; ++i) to[i] = f(*x, *w);
    };
    const std::size_t runs = walk.runs();
    if (runs == 1)
        return for_each_range(walk.run, 1, [&](std::size_t begin, std::size_t end) {
            some(pa + begin * walk.step[0], pb + begin * walk.step[1], py + begin, end - begin);
        });
    for_each_range(runs, walk.run + 4, [&](std::size_t first, std::size_t last) {
        walk.each_run(first, last,
                      [&](std::size_t out, const std::array<std::size_t, 2>& at) { some(pa + at[0], pb + at[1], py + out, walk.run); });
    });
}

/// y[i] = f(a[i], b[i], c[i]) with broadcasting.
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
