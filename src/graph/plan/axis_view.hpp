// SPDX-License-Identifier: Apache-2.0
// Describes a tensor's shape as kernels see it: how long an axis is, how often it occurs, and how far apart its elements are.
#pragma once

#include "qk/graph/base/tensor.hpp"
#include "qk/graph/plan/layers.hpp"
#include "qk/parameters.hpp"

namespace qk::graph::detail {

inline along_axis seen_by_blocks(const dims& shape, std::size_t axis) {
    if (shape.empty()) return {1, 1, 1};
    along_axis a;
    for (std::size_t i = 0; i < axis; ++i) a.outer *= static_cast<std::size_t>(shape[i]);
    a.length = static_cast<std::size_t>(shape[axis]);
    a.inner = 1;
    for (std::size_t i = axis + 1; i < shape.size(); ++i) a.inner *= static_cast<std::size_t>(shape[i]);
    return a;
}
inline along_axis seen_by_blocks(const dims& shape, int axis, bool flatten) {
    if (flatten && shape.size() > 1) {
        const auto rows = static_cast<std::size_t>(shape[0]);
        return {rows, rows == 0 ? 0 : element_count(shape) / rows, 1};
    }
    return seen_by_blocks(shape, resolve_axis(axis, shape.size()));
}

}  // namespace qk::graph::detail
