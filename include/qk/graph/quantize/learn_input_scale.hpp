// SPDX-License-Identifier: Apache-2.0
// AdaQuant's scale of what a layer reads (Hubara et al. 2020, equation 2: weights, biases and both scales): values that are clipped cost
// less than values that are rounded coarsely, and how much less only the layer's output says.
#pragma once

#include <functional>

#include "qk/graph/model/model.hpp"
#include "qk/graph/plan/plan.hpp"

namespace qk::graph::detail {

/// Whether the scale of a layer's input 0 is the layer's alone: one number that is given, of a format below 16 bits, on a tensor that
/// nobody else reads and that was not only moved from one with the same scale.
bool input_scale_learns(const model& m, const precision_plan& plan, const onnx::NodeProto& layer);

/// The factor of a scale with the least error(factor) that steps of a quarter, a tenth and a thirtieth find from 1; `start` is error(1).
/// 1 where nothing is better. Between 0.2 and 2.
float better_factor(const std::function<double(float)>& error, double start);

}  // namespace qk::graph::detail
