// SPDX-License-Identifier: Apache-2.0
// Saved plans and encodings that were written for the file as it is, before its BatchNormalization was folded: their entries follow the
// names.
#pragma once

#include <string>
#include <vector>

#include "qk/graph/model/model.hpp"
#include "qk/graph/plan/plan.hpp"
#include "qk/graph/quantize/resolve.hpp"

namespace qk::graph {

/// Moves entries whose names folding took away to what these became (name_history.hpp), where that means the same:
///   - formats without a scale, and dynamic ones, move as they are;
///   - scales of weights (and of int32 biases) are multiplied by what folding multiplied each channel by: the same values, rounded alike;
///   - a scale of a tensor between a layer and its normalization fits nothing that is left, and neither does one of a parameter: left out.
/// Each is said in a note: `renamed`, or `unrealised` for what was left out. Names that nothing is known of stay: check_plan() names them.
std::vector<plan_note> follow_names(precision_plan& plan, const model& m, const std::string& origin);

}  // namespace qk::graph
