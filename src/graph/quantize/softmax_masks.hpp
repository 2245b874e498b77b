// SPDX-License-Identifier: Apache-2.0
// Finds masks by what the graph does with them: values that are added to scores before a Softmax, so low that it makes them 0.
#pragma once

#include <map>
#include <string>

#include "qk/graph/calibrate/statistics.hpp"
#include "qk/graph/plan/layers.hpp"

namespace qk::graph {

/// Returns the tensors that hold such values (-1e4, -65504, -1e9), each with the range of the mask. A tensor counts where
/// - all its readers lead to Softmax (or Exp, or an attention operator's mask) through operators that pass values on, and
/// - what is added, or stands in for a score, comes from constants and model inputs without a layer between, and is so far below the other
///   scores that exp gives 0 beside them: by what calibration saw of these, or below -1000 where it saw nothing.
/// Large values that anything else reads, or that a layer computed, are no mask.
std::map<std::string, value_range> masks_before_softmax(const layer_view& layers, const calibration* seen);

}  // namespace qk::graph
