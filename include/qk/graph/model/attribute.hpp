// SPDX-License-Identifier: Apache-2.0
// An attribute of a node by name, for passes that read the protobuf itself.
#pragma once

#include <onnx/onnx_pb.h>

#include <string_view>

namespace qk::graph::detail {

/// nullptr: the node does not have it.
inline const onnx::AttributeProto* find_attribute(const onnx::NodeProto& node, std::string_view name) {
    for (const auto& a : node.attribute())
        if (a.name() == name) return &a;
    return nullptr;
}

}  // namespace qk::graph::detail
