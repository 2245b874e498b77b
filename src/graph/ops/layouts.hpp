// SPDX-License-Identifier: Apache-2.0
// How operators compute values that lie channels last: rules that rows name.
#pragma once

#include <onnx/onnx_pb.h>

#include "graph/ops/op.hpp"

namespace qk::graph::ops {

template <layout_rule Rule>
layout_rule lies(const node_view&) {
    return Rule;
}
inline layout_rule scaled_layout(const node_view& n) { return n.get_int("block_size", 0) == 0 ? layout_rule::scaled : layout_rule::plain; }
inline layout_rule block_layout(const node_view& n) { return n.get_int("axis", 1) == 1 ? layout_rule::block_axis : layout_rule::plain; }
inline layout_rule concat_layout(const node_view& n) {
    return n.get_int("axis", 1) == 1 || n.get_int("axis", 1) == -3 ? layout_rule::concat : layout_rule::plain;
}
inline layout_rule max_pool_layout(const node_view& n) { return n.proto().output_size() == 1 ? layout_rule::max_pool : layout_rule::plain; }
inline layout_rule normalization_layout(const node_view& n) {
    const bool of_inference = n.version() >= 7 && n.get_int("training_mode", 0) == 0 && n.proto().output_size() == 1;
    return of_inference ? layout_rule::by_channel : layout_rule::plain;
}
inline layout_rule slice_layout(const node_view& n) { return n.version() >= 10 ? layout_rule::slice : layout_rule::plain; }
inline layout_rule pad_layout(const node_view& n) { return n.version() >= 11 ? layout_rule::pad : layout_rule::plain; }

}  // namespace qk::graph::ops
