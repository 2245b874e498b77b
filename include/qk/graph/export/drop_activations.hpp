// SPDX-License-Identifier: Apache-2.0
// Rewrites before an integer export that change no value and let runtimes fuse more.
#pragma once

#include <string>
#include <vector>

#include "qk/graph/model/model.hpp"
#include "qk/graph/plan/plan.hpp"

namespace qk::graph {

/// Before: node -> Relu|Clip -> integer quantizer.  After: node -> integer quantizer.
/// Conditions: the Relu or Clip alone reads the node; all its readers have the same static integer quantizer, one scale, whose codes reach
/// no further than the bounds, so that clamping to a code does the same. The tensor keeps the name of the Relu's output: plans stay valid.
/// Returns the names of the removed nodes.
std::vector<std::string> drop_needless_activations(model& m, const precision_plan& plan);

/// Stores int8 activations as uint8 with zero point + 128: the same values, in the type for which onnxruntime on x86 has the most integer
/// kernels. Changes static activations with one scale, and no constants. Returns how many changed.
std::size_t store_activations_unsigned(precision_plan& plan, const model& m);

}  // namespace qk::graph
