// SPDX-License-Identifier: Apache-2.0
// Biases of zeros for layers that have none, so that a correction has a place.
#pragma once

#include <string>
#include <vector>

#include "qk/graph/model/model.hpp"
#include "qk/graph/plan/plan.hpp"

namespace qk::graph {

/// Gives every Conv, ConvTranspose and Gemm with constant weights a bias of zeros where it has none. The correction of biases needs that
/// before a plan is made. With `only`, layers whose new bias that plan names get one: so a plan that was saved with corrected biases fits
/// the model that it was made for. Returns the names of the biases.
std::vector<std::string> add_missing_biases(model& m, const precision_plan* only = nullptr);

}  // namespace qk::graph
