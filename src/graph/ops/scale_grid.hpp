// SPDX-License-Identifier: Apache-2.0
// Maps elements to their scales: per tensor, per axis or blocked, as QuantizeLinear's documentation defines them.
#pragma once

#include <string>

#include "graph/ops/op.hpp"
#include "graph/ops/working_type.hpp"

namespace qk::graph::ops {

/// A tensor seen as [outer][length][inner]. The scale of element (o, k, i) has the index `index(o, k, i)`.
struct scale_grid {
    std::size_t outer = 1, length = 1, inner = 1;
    std::size_t block = 0;   ///< elements along `length` under one scale; 0: one scale for the whole tensor
    std::size_t blocks = 1;  ///< scales along `length`
    bool blocked = false;    ///< the scale also varies over outer and inner

    std::size_t index(std::size_t o, std::size_t k, std::size_t i) const {
        if (block == 0) return 0;
        return blocked ? (o * blocks + k / block) * inner + i : k;
    }

    /// Calls f(begin, count, scale index) for runs of contiguous elements that share a scale.
    template <class F>
    void for_each_run(F&& f) const {
        if (block == 0) return f(std::size_t{0}, outer * length * inner, std::size_t{0});
        for (std::size_t o = 0; o < outer; ++o) {
            if (blocked && inner == 1) {
                for (std::size_t k = 0; k < length; k += block) f(o * length + k, std::min(block, length - k), index(o, k, 0));
                continue;
            }
            for (std::size_t k = 0; k < length; ++k) {
                const std::size_t begin = (o * length + k) * inner;
                if (!blocked) f(begin, inner, k);
                else
                    for (std::size_t i = 0; i < inner; ++i) f(begin + i, std::size_t{1}, index(o, k, i));
            }
        }
    }
};

/// Makes the grid that the shapes of x and its scale describe. Errors name the node.
inline scale_grid make_scale_grid(const op_context& call, const dims& x, const tensor& scale, std::int64_t axis_attribute,
                                  std::int64_t block_size) {
    scale_grid g;
    if (scale.rank() == 0 || scale.size() == 1) {
        g.inner = product(x, 0, x.size());
        return g;
    }
    // The scales of a vector run along its only axis, whatever the attribute says.
    const std::size_t axis = x.size() == 1 ? 0 : normal_axis(call, axis_attribute, x.size());
    g.outer = product(x, 0, axis);
    g.length = static_cast<std::size_t>(x[axis]);
    g.inner = product(x, axis + 1, x.size());
    if (block_size < 0) call.fail("block_size " + std::to_string(block_size) + " is negative");
    if (scale.rank() == 1 && block_size == 0) {
        if (scale.size() != g.length) {
            call.fail("a scale of shape " + to_string(scale.shape()) + " does not fit axis " + std::to_string(axis) + " of " +
                      to_string(x));
        }
        g.block = 1;
        g.blocks = g.length;
        return g;
    }
    g.blocked = true;
    const std::size_t given = scale.rank() == x.size() ? static_cast<std::size_t>(scale.dim(axis)) : 0;
    if (given == 0) call.fail("a scale of shape " + to_string(scale.shape()) + " does not fit " + to_string(x));
    g.block = block_size > 0 ? static_cast<std::size_t>(block_size) : (g.length + given - 1) / given;
    g.block = std::max<std::size_t>(g.block, 1);
    g.blocks = (g.length + g.block - 1) / g.block;
    dims expected = x;
    expected[axis] = static_cast<std::int64_t>(g.blocks);
    if (scale.shape() != expected) {
        call.fail("blocks of " + std::to_string(g.block) + " along axis " + std::to_string(axis) + " of " + to_string(x) +
                  " need a scale of shape " + to_string(expected) + ", not " + to_string(scale.shape()));
    }
    return g;
}

}  // namespace qk::graph::ops
