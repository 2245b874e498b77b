// SPDX-License-Identifier: Apache-2.0
// A model as a device computes it: some of its layers, or all, multiplied and added by a unit. docs/guide/evaluate.md.
#pragma once

#include "qk/graph/evaluate/evaluator.hpp"
#include "qk/graph/plan/accumulators.hpp"

namespace qk::graph {

/// evaluator(m, options).run(inputs, plan) with the layers that `units` names computed by their units. An operand under a quantizer is read
/// as its codes; one without becomes what the device multiplies (scale 1), or float32 where the unit is an accumulator alone. Products
/// are summed from +0 in the order of the layer's reduction (Conv: channel, kernel row, kernel column); the sum is multiplied by the
/// operands' scales and the bias is added in float32. Bit for bit what matrix_multiply_add gives for the same codes. Error for operands
/// that the unit does not take, for blocks, and for scales along the reduction.
evaluate_result evaluate_under(const model& m, const evaluate_options& options, const layer_accumulators& units,
                               const named_tensors& inputs, const precision_plan& plan = {}, const progress& report = {});

}  // namespace qk::graph
