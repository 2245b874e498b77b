// SPDX-License-Identifier: Apache-2.0
// Edits that passes over a model share: they remove nodes and the constants that only those read, and write attributes.
#pragma once

#include <onnx/onnx_pb.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "graph/model/subgraphs.hpp"
#include "qk/graph/model/model.hpp"

namespace qk::graph::detail {

/// Removes initializers that nobody reads, and graph inputs that only named them.
inline void drop_unused_initializers(model& m) {
    auto& g = m.graph();
    const auto unused = [&](const std::string& name) { return m.uses(name).empty() && m.is_constant(name); };
    auto& inputs = *g.mutable_input();
    for (int i = inputs.size(); i-- > 0;)
        if (unused(inputs.Get(i).name())) inputs.DeleteSubrange(i, 1);
    google::protobuf::RepeatedPtrField<onnx::TensorProto> kept;
    for (auto& t : *g.mutable_initializer())
        if (!unused(t.name())) kept.Add()->Swap(&t);
    g.mutable_initializer()->Swap(&kept);
    m.reindex();
}

inline void remove_nodes(onnx::GraphProto& g, const std::vector<bool>& gone) {
    google::protobuf::RepeatedPtrField<onnx::NodeProto> kept;
    for (int i = 0; i < g.node_size(); ++i)
        if (!gone[static_cast<std::size_t>(i)]) kept.Add()->Swap(g.mutable_node(i));
    g.mutable_node()->Swap(&kept);
}

/// Marks as `gone` nodes that may go and whose outputs nobody reads, until there are no more. Nodes that are `gone` already read nothing.
template <class MayGo>
void mark_unread(const onnx::GraphProto& g, std::vector<bool>& gone, const MayGo& may_go) {
    for (bool again = true; again;) {
        again = false;
        std::unordered_set<std::string_view> read;
        for (int i = 0; i < g.node_size(); ++i) {
            if (gone[static_cast<std::size_t>(i)]) continue;
            read.insert(g.node(i).input().begin(), g.node(i).input().end());
            for_each_subgraph(g.node(i), [&](const onnx::GraphProto& body) { collect_outer(body, read); });
        }
        for (const auto& o : g.output()) read.insert(o.name());
        for (int i = 0; i < g.node_size(); ++i) {
            const auto& outputs = g.node(i).output();
            if (gone[static_cast<std::size_t>(i)] || !may_go(i)) continue;
            if (std::any_of(outputs.begin(), outputs.end(), [&](const std::string& o) { return read.contains(o); })) continue;
            gone[static_cast<std::size_t>(i)] = again = true;
        }
    }
}

/// These write attributes: each adds one, and checks for none of the same name.
inline onnx::AttributeProto& add_attribute(onnx::NodeProto& n, const std::string& name, onnx::AttributeProto::AttributeType type) {
    onnx::AttributeProto& a = *n.add_attribute();
    a.set_name(name);
    a.set_type(type);
    return a;
}
inline void set_attribute(onnx::NodeProto& n, const std::string& name, std::int64_t value) {
    add_attribute(n, name, onnx::AttributeProto::INT).set_i(value);
}
inline void set_attribute(onnx::NodeProto& n, const std::string& name, float value) {
    add_attribute(n, name, onnx::AttributeProto::FLOAT).set_f(value);
}
inline void set_attribute(onnx::NodeProto& n, const std::string& name, const std::string& value) {
    add_attribute(n, name, onnx::AttributeProto::STRING).set_s(value);
}
inline void set_attribute(onnx::NodeProto& n, const std::string& name, const std::vector<std::int64_t>& values) {
    onnx::AttributeProto& a = add_attribute(n, name, onnx::AttributeProto::INTS);
    for (const std::int64_t v : values) a.add_ints(v);
}
inline void remove_attribute(onnx::NodeProto& n, std::string_view name) {
    for (int i = n.attribute_size(); i-- > 0;)
        if (n.attribute(i).name() == name) n.mutable_attribute()->DeleteSubrange(i, 1);
}

/// Before IR version 4 every initializer had to be a graph input as well.
inline void allow_free_initializers(onnx::ModelProto& m) {
    if (m.ir_version() < 4) m.set_ir_version(4);
}

}  // namespace qk::graph::detail
