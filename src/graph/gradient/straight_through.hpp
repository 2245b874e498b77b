// SPDX-License-Identifier: Apache-2.0
// Gradients through a quantizer: straight-through with clipping, scales included (qk/backward.hpp).
#pragma once

#include <vector>

#include "qk/graph/base/tensor.hpp"
#include "qk/graph/plan/plan.hpp"

namespace qk::graph::gradient {

/// Returns the gradient by x from `g`, the gradient by the quantizer's result (float32, both of x's shape): 0 where x is clipped. Formats
/// that take their scales from the data clip next to nothing: for them it is `g` itself. If q's scales are given (not dynamic), one for the
/// tensor, for each channel or for each run, their gradients are added to `by_scale`, one value each.
tensor straight_through(const quantizer& q, const tensor& x, const tensor& g, std::vector<double>* by_scale = nullptr);

/// Returns whether a quantizer's scales can be learned: they are given and need not be powers of two.
bool scale_learns(const quantizer& q);

}  // namespace qk::graph::gradient
