// SPDX-License-Identifier: Apache-2.0
// Adapts saved plans and encodings that were written for a model's file as it is, before its BatchNormalization was folded: their entries
// follow the renamed tensors.
#pragma once

#include <string>
#include <vector>

#include "qk/graph/model/model.hpp"
#include "qk/graph/plan/plan.hpp"
#include "qk/graph/quantize/resolve.hpp"

namespace qk::graph {

/// Moves entries whose names folding removed to the successors of these names (name_history.hpp), where they keep their meaning:
///   - formats without a scale, and dynamic ones, move as they are;
///   - scales of weights (and of int32 biases) are multiplied by what folding multiplied each channel by: the same values, rounded alike;
///   - entries with a scale are dropped for a tensor between a layer and its normalization, and for a parameter of the normalization.
/// Returns a note for each: `renamed`, or `unrealised` for a dropped one. Names without a history stay; check_plan() names them.
std::vector<plan_note> follow_names(precision_plan& plan, const model& m, const std::string& origin);

}  // namespace qk::graph
