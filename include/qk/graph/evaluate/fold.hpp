// SPDX-License-Identifier: Apache-2.0
// Rewritings that run before anything is planned: constants are computed once, and batch normalizations join the layer before them.
#pragma once

#include "qk/graph/model/model.hpp"

namespace qk::graph {

/// Constant nodes and nodes of constants become initializers. What is larger than `limit` bytes stays computed, but for what leads to a
/// layer or to the table of a Gather: a weight is a weight whatever its size. An initializer that nobody else reads goes, so that there is
/// no second copy.
void fold_constants(model& m, std::size_t limit = std::size_t{1} << 26);
/// Before: Conv|ConvTranspose|Gemm -> BatchNormalization.  After: one node.  Conditions: inference form, constants, single use.
void fold_batch_normalization(model& m);

}  // namespace qk::graph
