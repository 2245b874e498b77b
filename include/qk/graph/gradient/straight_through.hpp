// SPDX-License-Identifier: Apache-2.0
// The way back through a quantizer, straight through with clipping, scales included (qk/backward.hpp).
#pragma once

#include <vector>

#include "qk/graph/base/tensor.hpp"
#include "qk/graph/plan/plan.hpp"

namespace qk::graph::gradient {

/// The gradient by x, from `g`, the one by what the quantizer makes of x (float32, both of x's shape): 0 where x is clipped. Formats that
/// find their scales in the data clip next to nothing: `g` itself. `by_scale`: what q's scales gain is added, one value each, where they
/// are given (not dynamic) and one for the tensor, for each channel or for each run; others leave it alone.
tensor straight_through(const quantizer& q, const tensor& x, const tensor& g, std::vector<double>* by_scale = nullptr);

/// Whether a quantizer's scales can be learned: where they are given, and not held to powers of two.
bool scale_learns(const quantizer& q);

}  // namespace qk::graph::gradient
