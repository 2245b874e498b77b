// SPDX-License-Identifier: Apache-2.0
// Puts what stands inside of nodes into the graph, so that layers there are layers like others: the model's own functions, the branch of an
// If whose condition is constant, and the bodies of short Loops whose number of turns is.
#pragma once

#include <string>
#include <vector>

#include "qk/graph/model/model.hpp"

namespace qk::graph {

/// Opens every call, If and Loop of the graph that holds layers and can be opened. Nodes are named NODE/INNER after the node that held
/// them. Returns a sentence for each kind of node that was opened. Functions should have the model's opset (raise_functions).
std::vector<std::string> open_bodies(model& m);

/// Opens every call of the model's own functions in the graph, for runtimes that have no functions. Calls inside of other nodes' bodies
/// stay.
void open_calls(model& m);

}  // namespace qk::graph
