// SPDX-License-Identifier: Apache-2.0
// Reverse mode over a network: a forward pass that records what each node read and made, and the walk back. The network is the file's own
// graph, node by node, functions expanded, nothing folded. If the record would not fit into memory, stretches of the forward pass are
// forgotten and run again when the walk reaches them (Chen et al. 2016, arXiv:1604.06174); the gradients have the same bits.
#pragma once

#include <limits>
#include <memory>
#include <span>
#include <vector>

#include "graph/evaluate/execute/network.hpp"

namespace qk::graph::gradient {

struct tape;

/// Callbacks at the uses of values, called by the thread that walks. A pass is a walk from one set of seeds; several passes walk over one
/// tape side by side.
class edge_visitor {
  public:
    virtual ~edge_visitor() = default;
    /// Returns what node `node` reads as its input `input` in place of `value`.
    virtual tensor forward(std::size_t /*node*/, std::size_t /*input*/, const tensor& value) { return value; }
    /// Receives the gradients of a node's outputs, by output, then pass, before they go through the node.
    virtual void at_node(const tape& /*t*/, std::size_t /*node*/, std::span<const std::vector<tensor>> /*gradients*/) {}
    /// Turns the gradients by what one use read of `value` into those by `value`, in place, by pass. A gradient that is emptied goes no
    /// further.
    virtual void backward(std::size_t /*node*/, std::size_t /*input*/, const tensor& /*value*/, std::span<tensor> /*gradients*/) {}
    /// Returns whether gradients end at a node without a vector-Jacobian product. If not, a gradient that has to flow through it is an
    /// error.
    virtual bool ends_at(std::size_t /*node*/) { return false; }
    /// Returns whether in_body() is to receive the gradients by initializers within bodies (of If, Loop, Scan), run by run.
    virtual bool wants_bodies() const { return false; }
    virtual void in_body(const execute::network& /*body*/, std::size_t /*value*/, const tensor& /*gradient*/) {}
};

/// The record of one forward pass.
struct tape {
    std::vector<tensor> values;             ///< by value of the network
    std::vector<char> active;               ///< by value: whether a gradient can flow to it
    std::vector<std::vector<tensor>> read;  ///< by node: its inputs as it read them
    struct body {                           ///< for a node with subgraphs: the one that was taken and its runs, in order
        const execute::subnetwork* graph = nullptr;
        std::vector<std::shared_ptr<tape>> runs;
        std::vector<std::pair<int, int>> shared;  ///< the body's constants that the outer graph has, too: (inner, outer) values
    };
    std::vector<body> bodies;  ///< by node
    struct stretch {           ///< nodes [first, end) whose results are forgotten and made again together
        std::size_t first = 0, end = 0;
        bool forgotten = false;
    };
    std::vector<stretch> stretches;  ///< empty: everything is held
    std::size_t bytes = 0;           ///< bytes that nodes made and that are still held
};

constexpr std::size_t no_limit = std::numeric_limits<std::size_t>::max();
/// Returns how many bytes each of `threads` tapes may hold at once if all together may hold `asked`; 0 stands for half of the available
/// memory.
std::size_t tape_limit(std::size_t asked, int threads);

/// Runs the network on tensors in the order of its inputs and records it. `roots` marks the values whose gradients may be wanted (inputs,
/// constants, results of nodes). If more than `limit` bytes would be held, stretches of nodes keep only what later nodes read.
tape record(const execute::network& net, std::span<const tensor> inputs, std::span<const char> roots, edge_visitor* visitor = nullptr,
            std::size_t limit = no_limit);

/// Returns by value the gradients of the sum of seed * output: one for every root, empty if no path leads there. `seeds` are by output; an
/// empty one counts as zeros. Throws error, which names the node, if a gradient has to flow through an operator without a product.
std::vector<tensor> walk_back(const execute::network& net, const tape& t, std::span<const tensor> seeds, edge_visitor* visitor = nullptr);

/// Walks several passes at once: seeds[pass] as above, and the result by pass.
std::vector<std::vector<tensor>> walk_back(const execute::network& net, const tape& t, std::span<const std::vector<tensor>> seeds,
                                           edge_visitor* visitor);
/// Walks several passes and uses up the tape and the seeds: what they hold is freed as soon as it has been walked over.
std::vector<std::vector<tensor>> walk_back(const execute::network& net, tape&& t, std::vector<std::vector<tensor>>&& seeds,
                                           edge_visitor* visitor = nullptr);

/// Runs node `number` again as record() did. The tape must hold what the node reads.
void rerun_node(const execute::network& net, std::size_t number, tape& t, edge_visitor* visitor);

/// Runs one node without subgraphs as record() does.
void run_forward(const execute::net_node& node, std::span<const tensor> in, std::span<tensor> out);

/// Adds `g` to `sum`; an empty `sum` becomes `g`. Both are real and of one shape.
void accumulate(tensor& sum, const tensor& g);

}  // namespace qk::graph::gradient
