// SPDX-License-Identifier: Apache-2.0
// What a call gives to the nodes of the function that it calls.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "graph/model/check.hpp"
#include "graph/model/subgraphs.hpp"
#include "qk/graph/model/attribute.hpp"

namespace qk::graph::detail {

/// Returns how many bytes bind_attributes() puts into a node, which may be as many times those of the call as the node has references.
inline std::size_t bytes_to_bind(const onnx::NodeProto& body, const onnx::NodeProto& call, const onnx::FunctionProto& f) {
    std::size_t bytes = 0;
    for_each_subgraph(body, [&](const onnx::GraphProto& g) {
        for (const auto& n : g.node()) bytes += bytes_to_bind(n, call, f);
    });
    for (const auto& a : body.attribute()) {
        if (a.ref_attr_name().empty()) continue;
        if (const onnx::AttributeProto* given = find_attribute(call, a.ref_attr_name())) bytes += given->ByteSizeLong();
        else
            for (const auto& d : default_attributes(f))
                if (d.name() == a.ref_attr_name()) bytes += d.ByteSizeLong();
    }
    return bytes;
}

/// Replaces references to the function's attributes by the call's values, or by the function's defaults; drops the others.
inline void bind_attributes(onnx::NodeProto& body, const onnx::NodeProto& call, const onnx::FunctionProto& f) {
    for_each_subgraph(body, [&](onnx::GraphProto& g) {
        for (auto& n : *g.mutable_node()) bind_attributes(n, call, f);
    });
    for (int i = body.attribute_size(); i-- > 0;) {
        onnx::AttributeProto& a = *body.mutable_attribute(i);
        if (a.ref_attr_name().empty()) continue;
        const std::string name = a.name(), wanted = a.ref_attr_name();
        if (const onnx::AttributeProto* given = find_attribute(call, wanted)) {
            a = *given;
        } else {
            const std::vector<onnx::AttributeProto> defaults = default_attributes(f);
            const auto found = std::ranges::find_if(defaults, [&](const auto& d) { return d.name() == wanted; });
            if (found == defaults.end()) {
                body.mutable_attribute()->DeleteSubrange(i, 1);
                continue;
            }
            a = *found;
        }
        a.set_name(name);
    }
}

}  // namespace qk::graph::detail
