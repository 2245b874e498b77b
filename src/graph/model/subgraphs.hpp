// SPDX-License-Identifier: Apache-2.0
// Graphs inside nodes (If, Loop, Scan): visits them, and collects the names that they read from around them.
#pragma once

#include <onnx/onnx_pb.h>

#include <string_view>
#include <unordered_set>

namespace qk::graph::detail {

template <class Visit>
void for_each_subgraph(onnx::NodeProto& n, const Visit& visit) {
    for (auto& a : *n.mutable_attribute()) {
        if (a.has_g()) visit(*a.mutable_g());
        for (auto& g : *a.mutable_graphs()) visit(g);
    }
}
template <class Visit>
void for_each_subgraph(const onnx::NodeProto& n, const Visit& visit) {
    for (const auto& a : n.attribute()) {
        if (a.has_g()) visit(a.g());
        for (const auto& g : a.graphs()) visit(g);
    }
}

/// Visits every tensor that is an initializer or an attribute, those of inner graphs included.
template <class Visit>
void for_each_tensor(onnx::GraphProto& g, const Visit& visit) {
    for (auto& t : *g.mutable_initializer()) visit(t);
    for (auto& n : *g.mutable_node())
        for (auto& a : *n.mutable_attribute()) {
            if (a.has_t()) visit(*a.mutable_t());
            for (auto& t : *a.mutable_tensors()) visit(t);
            if (a.has_g()) for_each_tensor(*a.mutable_g(), visit);
            for (auto& inner : *a.mutable_graphs()) for_each_tensor(inner, visit);
        }
}

inline void collect_outer(const onnx::GraphProto& g, std::unordered_set<std::string_view>& free) {
    std::unordered_set<std::string_view> own, read;
    for (const auto& i : g.input()) own.insert(i.name());
    for (const auto& t : g.initializer()) own.insert(t.name());
    for (const auto& t : g.sparse_initializer()) own.insert(t.values().name());
    for (const auto& n : g.node()) {
        own.insert(n.output().begin(), n.output().end());
        read.insert(n.input().begin(), n.input().end());
        for_each_subgraph(n, [&](const onnx::GraphProto& inner) { collect_outer(inner, read); });
    }
    for (const auto& o : g.output()) read.insert(o.name());
    for (const std::string_view name : read)
        if (!name.empty() && own.count(name) == 0) free.insert(name);
}

}  // namespace qk::graph::detail
