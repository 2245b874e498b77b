// SPDX-License-Identifier: Apache-2.0
// Attributes of a node by name, for passes that read the protobuf itself.
#pragma once

#include <onnx/onnx_pb.h>

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

namespace qk::graph::detail {

/// Returns whether a text, most often an operator's type, is in a short list.
inline bool one_of(std::string_view text, std::initializer_list<std::string_view> list) {
    return std::find(list.begin(), list.end(), text) != list.end();
}

/// Returns nullptr when the node does not have the attribute.
inline const onnx::AttributeProto* find_attribute(const onnx::NodeProto& node, std::string_view name) {
    for (const auto& a : node.attribute())
        if (a.name() == name) return &a;
    return nullptr;
}
inline std::int64_t int_attribute(const onnx::NodeProto& node, std::string_view name, std::int64_t otherwise) {
    const onnx::AttributeProto* a = find_attribute(node, name);
    return a != nullptr ? a->i() : otherwise;
}
inline float float_attribute(const onnx::NodeProto& node, std::string_view name, float otherwise) {
    const onnx::AttributeProto* a = find_attribute(node, name);
    return a != nullptr ? a->f() : otherwise;
}
inline std::string text_attribute(const onnx::NodeProto& node, std::string_view name, const char* otherwise) {
    const onnx::AttributeProto* a = find_attribute(node, name);
    return a != nullptr ? a->s() : otherwise;
}

}  // namespace qk::graph::detail
