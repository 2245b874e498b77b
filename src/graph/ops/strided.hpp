// SPDX-License-Identifier: Apache-2.0
// Copies between two strided views of the same shape. Slice, Expand, Tile, Pad and related operators are such copies.
#pragma once

#include <cstring>
#include <vector>

#include "graph/ops/dispatch.hpp"

namespace qk::graph::ops {

/// One axis of a copy: its length, and the stride in elements on both sides (negative walks back, zero repeats).
struct copy_axis {
    std::size_t length;
    std::ptrdiff_t from, to;
};

/// Copies to[...] = from[...] over all axes, outermost first. Axes that continue one another are merged; the last one is a run.
template <class T>
void strided_copy(const T* from, T* to, const std::vector<copy_axis>& given) {
    std::vector<copy_axis> axes;
    for (const copy_axis& a : given) {
        if (a.length == 0) return;
        if (a.length == 1) continue;
        const auto n = static_cast<std::ptrdiff_t>(a.length);
        if (!axes.empty() && axes.back().from == a.from * n && axes.back().to == a.to * n)
            axes.back() = {axes.back().length * a.length, a.from, a.to};
        else axes.push_back(a);
    }
    if (axes.empty()) axes.push_back({1, 1, 1});
    const copy_axis run = axes.back();
    axes.pop_back();
    std::size_t steps = 1;
    for (const copy_axis& a : axes) steps *= a.length;
    std::vector<std::size_t> index(axes.size());
    for (std::size_t step = 0; step < steps; ++step) {
        if (run.from == 1 && run.to == 1) std::memcpy(to, from, run.length * sizeof(T));
        else if (run.from == 0 && run.to == 1) std::fill_n(to, run.length, *from);
        else {
            const T* f = from;
            T* t = to;
            for (std::size_t i = 0; i < run.length; ++i, f += run.from, t += run.to) *t = *f;
        }
        for (std::size_t k = axes.size(); k-- > 0;) {
            from += axes[k].from, to += axes[k].to;
            if (++index[k] < axes[k].length) break;
            const auto n = static_cast<std::ptrdiff_t>(axes[k].length);
            from -= axes[k].from * n, to -= axes[k].to * n;
            index[k] = 0;
        }
    }
}

/// Copies between the buffers of two tensors of any element type, from element `from_start` on to element `to_start` on.
inline void strided_copy(const op_context& call, const tensor& from, std::ptrdiff_t from_start, tensor& to, std::ptrdiff_t to_start,
                         const std::vector<copy_axis>& axes) {
    dispatch_width(call, from.type(),
                   [&]<class T>(type_tag<T>) { strided_copy(from.as<T>().data() + from_start, to.as<T>().data() + to_start, axes); });
}

/// Returns the row-major strides of a shape as signed numbers.
inline std::vector<std::ptrdiff_t> signed_strides(std::span<const std::int64_t> shape) {
    const auto s = row_major_strides(shape);
    return {s.begin(), s.end()};
}

}  // namespace qk::graph::ops
