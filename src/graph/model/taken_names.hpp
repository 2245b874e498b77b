// SPDX-License-Identifier: Apache-2.0
// The names of a graph, its bodies and its nodes, and new ones beside them.
#pragma once

#include <onnx/onnx_pb.h>

#include <string>

#include "graph/model/check.hpp"
#include "graph/model/subgraphs.hpp"

namespace qk::graph::detail {

class taken_names {
  public:
    void take(const std::string& name) { names_.insert(name); }
    template <class Nodes>
    void take_nodes(const Nodes& nodes) {
        for (const auto& n : nodes) {
            names_.insert(n.name());
            names_.insert(n.output().begin(), n.output().end());
            for_each_subgraph(n, [&](const onnx::GraphProto& inner) { take_graph(inner); });
        }
    }
    void take_graph(const onnx::GraphProto& g) {
        for (const auto& v : g.input()) names_.insert(v.name());
        for (const auto& t : g.initializer()) names_.insert(t.name());
        for (const auto& t : g.sparse_initializer()) names_.insert(t.values().name());
        take_nodes(g.node());
    }

    /// Returns `stem`, or `stem_2`, ...: a name that neither a tensor nor a node has.
    std::string fresh(const std::string& stem) {
        std::string name = stem;
        for (int i = 2; !names_.insert(name).second; ++i) name = stem + "_" + std::to_string(i);
        return name;
    }

  private:
    string_set names_;
};

}  // namespace qk::graph::detail
