// SPDX-License-Identifier: Apache-2.0
// How products sum: rules that rows name.
#pragma once

#include <algorithm>

#include "graph/ops/op.hpp"
#include "qk/graph/model/attribute.hpp"

namespace qk::graph::ops {

inline product_axes conv_axes(const onnx::NodeProto& n) {
    return {
        .sums = 1, .in = 1, .out = 0, .groups = std::max<std::int64_t>(graph::detail::int_attribute(n, "group", 1), 1), .windows = true};
}
inline product_axes conv_transpose_axes(const onnx::NodeProto& n) {
    product_axes axes = conv_axes(n);
    axes.in = 0, axes.out = 1, axes.transposed = true;
    return axes;
}
inline product_axes gemm_axes(const onnx::NodeProto& n) {
    const bool turned = graph::detail::int_attribute(n, "transB", 0) != 0;
    return {.sums = graph::detail::int_attribute(n, "transA", 0) != 0 ? 0 : 1, .in = turned ? 1 : 0, .out = turned ? 0 : 1};
}
inline product_axes matmul_axes(const onnx::NodeProto&) { return {}; }

}  // namespace qk::graph::ops
