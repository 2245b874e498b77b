// SPDX-License-Identifier: Apache-2.0
// Gives the model's own functions the model's opset, so that their nodes can stand in the graph.
#pragma once

#include "qk/graph/model/model.hpp"

namespace qk::graph {

/// Rewrites each function of an older opset for the model's. A function that cannot be rewritten stays as it is.
void raise_functions(model& m);

}  // namespace qk::graph
