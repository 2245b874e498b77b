// SPDX-License-Identifier: Apache-2.0
// Reverse mode over a network: a forward pass that keeps what each node read and made, and the walk back. The network is the file's own
// graph, node by node, functions expanded, nothing folded. Where it would not fit into memory, stretches of the forward pass are forgotten
// and run again when the walk comes to them (Chen et al. 2016, arXiv:1604.06174); the gradients are the same bits.
#pragma once

#include <limits>
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
    virtual tensor forward(std::size_t /*node*/, std::size_t /*input*/, const tensor& value) { return value; }
    /// The gradients of a node's outputs, by output, then pass, before they go through it.
    virtual void at_node(const tape& /*t*/, std::size_t /*node*/, std::span<const std::vector<tensor>> /*gradients*/) {}
    /// The gradients by what was read of `value` in one use alone, by pass: to be made those by `value`. Emptied ones go no further.
    virtual void backward(std::size_t /*node*/, std::size_t /*input*/, const tensor& /*value*/, std::span<tensor> /*gradients*/) {}
    /// Asked of nodes without a vector-Jacobian product: whether gradients end there. Otherwise one that has to flow through is an error.
    virtual bool ends_at(std::size_t /*node*/) { return false; }
    /// Whether the gradients by the own initializers of bodies (If, Loop, Scan) are asked for; they come to in_body, run by run.
    virtual bool wants_bodies() const { return false; }
    virtual void in_body(const execute::network& /*body*/, std::size_t /*value*/, const tensor& /*gradient*/) {}
};

/// One forward pass.
struct tape {
    std::vector<tensor> values;             ///< of the network's values
    std::vector<char> active;               ///< a gradient can flow to the value
    std::vector<std::vector<tensor>> read;  ///< by node: its inputs as it read them
    struct body {                           ///< of a node with subgraphs: the runs of the one that was taken, in their order
        const execute::subnetwork* graph = nullptr;
        std::vector<std::shared_ptr<tape>> runs;
        std::vector<std::pair<int, int>> shared;  ///< values of the body that are constants around it, and which
    };
    std::vector<body> bodies;  ///< by node
    struct stretch {           ///< nodes [first, end) whose results are forgotten and made again together
        std::size_t first = 0, end = 0;
        bool forgotten = false;
    };
    std::vector<stretch> stretches;  ///< none: everything is held
    std::size_t bytes = 0;           ///< that nodes made and that were held at the end
};

constexpr std::size_t no_limit = std::numeric_limits<std::size_t>::max();
/// Bytes that each of `threads` tapes may hold at once where `asked` bytes are for all of them; 0: half of the memory that is available.
std::size_t tape_limit(std::size_t asked, int threads);

/// Runs the network on tensors in the order of its inputs. `roots`: by value, those whose gradient may be asked for (inputs, constants).
/// Where more than `limit` bytes were held, stretches of nodes are forgotten but for what later ones read.
tape record(const execute::network& net, std::span<const tensor> inputs, std::span<const char> roots, edge_visitor* visitor = nullptr,
            std::size_t limit = no_limit);

/// The gradients of the sum of seed * output for every value that is a root; empty where no path leads. `seeds` are by output, empty ones
/// count as zeros. An operator without a product is an error that names the node, if a gradient has to flow through it.
std::vector<tensor> walk_back(const execute::network& net, const tape& t, std::span<const tensor> seeds, edge_visitor* visitor = nullptr);

/// Several passes at once: seeds[pass] as above, and the result by pass.
std::vector<std::vector<tensor>> walk_back(const execute::network& net, const tape& t, std::span<const std::vector<tensor>> seeds,
                                           edge_visitor* visitor);
/// The same with the tape and the seeds given away: what they hold goes as soon as it has been walked over.
std::vector<std::vector<tensor>> walk_back(const execute::network& net, tape&& t, std::vector<std::vector<tensor>>&& seeds,
                                           edge_visitor* visitor = nullptr);

/// Runs node `number` again for a tape that has what it reads, as record ran it.
void rerun_node(const execute::network& net, std::size_t number, tape& t, edge_visitor* visitor);

/// One node without subgraphs, as record runs it.
void run_forward(const execute::net_node& node, std::span<const tensor> in, std::span<tensor> out);

/// `g` added to `sum`, which takes g's place if it is empty. Both real, of one shape.
void accumulate(tensor& sum, const tensor& g);

}  // namespace qk::graph::gradient
