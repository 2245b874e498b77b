// SPDX-License-Identifier: Apache-2.0
// If, Loop and Scan on a tape: each run of a body has a tape of its own, and the walk back goes through the runs in reverse, to what a body
// captured, to the values that it carries from run to run, and to the sequences that it scans.
#pragma once

#include <span>
#include <utility>
#include <vector>

#include "graph/gradient/tape.hpp"

namespace qk::graph::gradient {

/// Records a body as record() does a network: `constants` replace the network's own; with `own_constants`, initializers of bodies within it
/// are roots.
tape record_graph(const execute::network& net, std::span<const tensor> inputs, std::span<const char> roots, edge_visitor* visitor,
                  std::size_t limit, bool own_constants, std::span<const std::pair<int, tensor>> constants);

/// Runs node `number`, which has subgraphs, and records the runs of its body in `t`.
void run_bodies(const execute::network& net, std::size_t number, tape& t, bool own_constants, std::span<const tensor> in,
                std::span<tensor> out);

/// Returns whether a gradient can flow to output k of a node whose runs are on the tape.
bool body_output_active(const execute::net_node& node, std::size_t number, const tape& t, std::size_t k);

/// Returns the gradients by the node's own inputs. Adds those by values that its body captured to `gradients`, which is by value.
std::vector<tensor> through_bodies(const execute::network& net, std::size_t number, const tape& t, std::span<const tensor> outputs,
                                   std::vector<tensor>& gradients, edge_visitor* visitor);

}  // namespace qk::graph::gradient
