// SPDX-License-Identifier: Apache-2.0
// Reverse mode over a network: a forward pass that keeps what each node read and made, and the walk back. The network is the file's own
// graph, node by node, functions expanded, nothing folded.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "qk/graph/evaluate/execute/network.hpp"

namespace qk::graph::gradient {

struct tape;

/// What is done at the uses of values. Called by the thread that walks. Passes are walks of other seeds over one tape, side by side.
class edge_visitor {
  public:
    virtual ~edge_visitor() = default;
    /// What node `node` reads as its input `input` in place of `value`.
    virtual tensor forward(std::size_t node, std::size_t input, const tensor& value) {
        static_cast<void>(node), static_cast<void>(input);
        return value;
    }
    /// The gradients of a node's outputs, by output, then pass, before they go through it.
    virtual void at_node(const tape& t, std::size_t node, std::span<const std::vector<tensor>> gradients) {
        static_cast<void>(t), static_cast<void>(node), static_cast<void>(gradients);
    }
    /// The gradients by what was read of `value` in one use alone, by pass: to be made those by `value`. Emptied ones go no further.
    virtual void backward(std::size_t node, std::size_t input, const tensor& value, std::span<tensor> gradients) {
        static_cast<void>(node), static_cast<void>(input), static_cast<void>(value), static_cast<void>(gradients);
    }
};

/// One forward pass.
struct tape {
    std::vector<tensor> values;             ///< of the network's values
    std::vector<char> active;               ///< a gradient can flow to the value
    std::vector<std::vector<tensor>> read;  ///< by node: its inputs as it read them
    struct body {                           ///< of an If: the branch that was taken
        const execute::subnetwork* graph = nullptr;
        std::shared_ptr<tape> record;
        std::vector<std::pair<int, int>> shared;  ///< values of the branch that are constants around it, and which
    };
    std::vector<body> bodies;  ///< by node
};

/// Runs the network on tensors in the order of its inputs. `roots`: by value, those whose gradient may be asked for (inputs, constants).
tape record(const execute::network& net, std::span<const tensor> inputs, std::span<const char> roots, edge_visitor* visitor = nullptr);

/// The gradients of the sum of seed * output for every value that is a root; empty where no path leads. `seeds` are by output, empty ones
/// count as zeros. An operator without a product is an error that names the node, if a gradient has to flow through it.
std::vector<tensor> walk_back(const execute::network& net, const tape& t, std::span<const tensor> seeds, edge_visitor* visitor = nullptr);

/// Several passes at once: seeds[pass] as above, and the result by pass.
std::vector<std::vector<tensor>> walk_back(const execute::network& net, const tape& t, std::span<const std::vector<tensor>> seeds,
                                           edge_visitor* visitor);
/// The same with the tape given away: what it holds goes as soon as it has been walked over.
std::vector<std::vector<tensor>> walk_back(const execute::network& net, tape&& t, std::span<const std::vector<tensor>> seeds,
                                           edge_visitor* visitor = nullptr);

/// One node without subgraphs, as record runs it.
void run_forward(const execute::net_node& node, std::span<const tensor> in, std::span<tensor> out);

/// `g` added to `sum`, which takes g's place if it is empty. Both real, of one shape.
void accumulate(tensor& sum, const tensor& g);

}  // namespace qk::graph::gradient
