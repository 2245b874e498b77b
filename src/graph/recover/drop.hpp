// SPDX-License-Identifier: Apache-2.0
// Removes quantizers that were recovered into a plan from the model, with what only they needed.
#pragma once

#include <onnx/onnx_pb.h>

#include <set>
#include <string>
#include <vector>

#include "graph/export/marks.hpp"
#include "graph/model/edit.hpp"
#include "graph/recover/calls.hpp"
#include "qk/graph/model/model.hpp"

namespace qk::graph::detail {

inline std::set<std::string> int8_names(const onnx::ModelProto& m) {
    std::set<std::string> names;
    for (const auto& p : m.metadata_props()) {
        if (p.key() != marks::int8_property) continue;
        std::size_t at = 0;
        for (std::size_t end; (end = p.value().find('\n', at)) != std::string::npos; at = end + 1)
            names.insert(p.value().substr(at, end - at));
    }
    return names;
}

/// `owned` marks nodes that are part of a quantizer. Removes those that nobody reads any more, and constants that only they read.
inline void drop_quantizers(model& m, const std::vector<bool>& owned) {
    onnx::GraphProto& g = m.graph();
    std::vector<bool> gone(static_cast<std::size_t>(g.node_size()), false);
    mark_unread(g, gone, [&](int i) {
        return owned[static_cast<std::size_t>(i)] || (g.node(i).op_type() == "Constant" && g.node(i).domain().empty());
    });
    remove_nodes(g, gone);
    allow_free_initializers(m.proto());
    forget_functions(m.proto());
    auto& properties = *m.proto().mutable_metadata_props();
    for (int k = properties.size(); k-- > 0;)
        if (properties.Get(k).key() == marks::int8_property) properties.DeleteSubrange(k, 1);
    m.reindex();
    drop_unused_initializers(m);
    // Remove shapes of tensors that no longer exist.
    auto& infos = *g.mutable_value_info();
    for (int k = infos.size(); k-- > 0;)
        if (m.producer(infos.Get(k).name()) < 0) infos.DeleteSubrange(k, 1);
    m.reindex();
}

}  // namespace qk::graph::detail
