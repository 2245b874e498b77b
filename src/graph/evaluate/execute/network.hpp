// SPDX-License-Identifier: Apache-2.0
// A graph as the evaluator walks it: values and nodes by number, model-local functions expanded, subgraphs with what they capture.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <onnx/onnx_pb.h>

#include "graph/model/element_source.hpp"
#include "graph/ops/op.hpp"
#include "qk/graph/model/model.hpp"
#include "qk/graph/plan/plan.hpp"

namespace qk::graph::execute {

struct network;

/// A tensor of the graph. Constants hold their value, or where it comes from; other values exist when a program runs.
struct net_value {
    std::string name;
    tensor constant;
    int uses = 0;         ///< number of uses by nodes, subgraphs and graph outputs
    source_pointer late;  ///< source of a large constant that is read only when needed
    bool is_constant() const { return late != nullptr || !constant.empty(); }
};

struct net_input {
    int value = -1;           ///< -1: left out
    std::vector<edge> edges;  ///< the model's edges this use stands for, in the order that their quantizers apply (functions: the call's,
                              ///< then the body's)
};

/// A graph attribute (If, Loop, Scan): its own network, whose inputs are the graph's and then the captured outer values.
struct subnetwork {
    const onnx::GraphProto* graph = nullptr;
    std::unique_ptr<network> body;
    std::vector<int> captured;  ///< values of the surrounding network
};

struct net_node {
    node_view view;
    const op_entry* op = nullptr;
    std::vector<net_input> inputs;
    std::vector<int> outputs;  ///< -1: left out
    std::vector<subnetwork> bodies;
};

struct network {
    std::vector<net_value> values;
    std::vector<net_node> nodes;        ///< in an order that can be run
    std::vector<int> inputs;            ///< values
    std::vector<net_input> outputs;     ///< edge consumer "" and output number
    std::deque<onnx::NodeProto> owned;  ///< nodes of expanded functions, their attributes bound
};

/// Returns whether the operator's result is not a function of its inputs.
inline bool is_random(const net_node& n) { return n.op != nullptr && n.op->is.has(ops::random); }

/// Whether a network holds its large constants, or reads them only when needed.
enum class large_constants : std::uint8_t { held, late };

/// Builds the network of a model. Throws an error that names node, operator and version if the evaluator lacks an operator.
std::unique_ptr<network> make_network(const model& m, large_constants how = large_constants::held);

}  // namespace qk::graph::execute
