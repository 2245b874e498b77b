// SPDX-License-Identifier: Apache-2.0
// Calls a node's operator; every error names the node.
#pragma once

#include <new>
#include <span>
#include <stdexcept>
#include <string_view>

#include "graph/evaluate/execute/network.hpp"

namespace qk::graph::execute::detail {

inline const op_context::subgraph_runner& no_subgraphs() {
    static const op_context::subgraph_runner none = [](const onnx::GraphProto&, std::span<const tensor>) -> std::vector<tensor> {
        throw error("this node has no subgraph");
    };
    return none;
}

inline void call_node(const net_node& node, const prepared_op* prepared, std::span<const tensor> in, std::span<tensor> out,
                      allocator& memory, const op_context::subgraph_runner& subgraphs) {
    try {
        op_context call(node.view, in, out, memory, subgraphs);
        if (prepared != nullptr) prepared->run(call);
        else node.op->run(call);
    } catch (const error& e) {
        if (std::string_view(e.what()).find("node '") != std::string_view::npos) throw;
        node.view.fail(e.what());
    } catch (const std::bad_alloc&) {
        node.view.fail("not enough memory for its result");
    } catch (const std::logic_error&) {  // std::length_error, std::out_of_range
        node.view.fail("a size or index is out of range");
    }
}

}  // namespace qk::graph::execute::detail
