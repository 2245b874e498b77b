// SPDX-License-Identifier: Apache-2.0
// AdaQuant's choice of the scale of a layer's input (Hubara et al. 2020, equation 2: weights, biases and both scales). Clipping values
// costs less than rounding them coarsely; only the layer's output tells how much less.
#pragma once

#include <functional>

#include "qk/graph/model/model.hpp"
#include "qk/graph/plan/plan.hpp"

namespace qk::graph::detail {

/// Is true when the scale of a layer's input 0 can be learned: it is one given number of a format below 16 bits, nobody else reads the
/// tensor, and no data-moving operator makes it (it would share the scale of its source).
bool input_scale_learns(const model& m, const precision_plan& plan, const onnx::NodeProto& layer);

/// Returns the factor between 0.2 and 2 with the least error(factor) that a search from 1 finds in steps of 25, 10 and 3 percent; 1 where
/// none is better. `start` is error(1).
float better_factor(const std::function<double(float)>& error, double start);

}  // namespace qk::graph::detail
