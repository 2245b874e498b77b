// SPDX-License-Identifier: Apache-2.0
// Rewrites the model for scale_channels.hpp: divides the channels of a tensor (its last axis) by factors, in constants of the nodes that
// make the tensor where that is possible, else by a Mul.
#pragma once

#include <string>
#include <vector>

#include "qk/graph/model/model.hpp"

namespace qk::graph::detail {

/// Replaces the constant at input `index` of a node by `value`, in the constant's type. Writes it in place where nobody else reads the
/// constant, else under a new name, NAME_ followed by `done`, which the model's history leads to.
void replace_constant(model& m, int node, int index, const tensor& value, const std::string& done = "scaled");

/// Makes the nodes of `readers` read x / s. Returns the name of the node that took the factors; empty: a new Mul. The caller reindexes the
/// model afterwards.
std::string divide_channels(model& m, const std::string& x, const std::vector<int>& readers, const std::vector<float>& s);

}  // namespace qk::graph::detail
