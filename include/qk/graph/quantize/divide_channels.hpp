// SPDX-License-Identifier: Apache-2.0
// Rewriting for scale_channels.hpp: the channels of a tensor, its last axis, are divided by factors where that costs nothing, else by a
// Mul.
#pragma once

#include <string>
#include <vector>

#include "qk/graph/model/model.hpp"

namespace qk::graph::detail {

/// Input `index` of a node becomes `value`, in the type that it had: in place where nobody else reads the constant, else under a new name
/// (NAME_done) that the history knows.
void replace_constant(model& m, int node, int index, const tensor& value, const std::string& done = "scaled");

/// The nodes of `readers` read x / s from now on. The name of the node that took the factors; empty: a new Mul. The model is to be
/// reindexed behind it.
std::string divide_channels(model& m, const std::string& x, const std::vector<int>& readers, const std::vector<float>& s);

}  // namespace qk::graph::detail
