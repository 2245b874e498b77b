// SPDX-License-Identifier: Apache-2.0
// Rewrites a model before anything is planned: computes constants once, and folds batch normalizations into the layer before them.
#pragma once

#include "qk/graph/model/model.hpp"

namespace qk::graph {

/// Turns Constant nodes and nodes of constants into initializers. A result larger than `limit` bytes stays a node, unless it leads to a
/// layer or to the table of a Gather and has at most 8 times the bytes of the node's largest input. Initializers that only folded nodes
/// read are removed, so that there is no second copy.
void fold_constants(model& m, std::size_t limit = std::size_t{1} << 26);
/// Before: Conv|ConvTranspose|Gemm -> BatchNormalization.  After: one node.  Conditions: inference form, constants, single use.
void fold_batch_normalization(model& m);

}  // namespace qk::graph
