// SPDX-License-Identifier: Apache-2.0
// If, Loop and Scan on a tape: each run of a body has a tape of its own, and the walk back goes through the runs in reverse, to what a body
// captured, to the values that it carries from run to run, and to the sequences that it scans.
#pragma once

#include <span>
#include <utility>
#include <vector>

#include "qk/graph/gradient/tape.hpp"

namespace qk::graph::gradient {

/// record() for a body: `constants` stand in the place of the network's own; `own_constants`: initializers of bodies within are roots.
tape record_graph(const execute::network& net, std::span<const tensor> inputs, std::span<const char> roots, edge_visitor* visitor,
                  std::size_t limit, bool own_constants, std::span<const std::pair<int, tensor>> constants);

/// Runs node `number`, which has subgraphs, and notes the runs of its body.
void run_bodies(const execute::network& net, std::size_t number, tape& t, bool own_constants, std::span<const tensor> in,
                std::span<tensor> out);

/// Whether a gradient can flow to output k of a node whose runs the tape has.
bool body_output_active(const execute::net_node& node, std::size_t number, const tape& t, std::size_t k);

/// The gradients of what the node read itself, by input; those of what its body captured are added to `gradients`, by value.
std::vector<tensor> through_bodies(const execute::network& net, std::size_t number, const tape& t, std::span<const tensor> outputs,
                                   std::vector<tensor>& gradients, edge_visitor* visitor);

}  // namespace qk::graph::gradient
