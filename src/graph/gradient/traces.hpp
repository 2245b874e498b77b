// SPDX-License-Identifier: Apache-2.0
// The average trace of the loss's Hessian by each layer's weights, by Hutchinson's method (Dong et al. 2020, HAWQ-V2).
#pragma once

#include <span>
#include <string>
#include <vector>

#include "graph/gradient/estimate.hpp"

namespace qk::graph {

/// Returns for each of `layers` (names of nodes whose input 1 is constant weights) the trace of the Hessian of the mean cross-entropy by
/// the layer's weights, over their number. It takes the Gauss-Newton part J' S S' J, whose trace is the expected square of J' S v over
/// random v; for a layer in whose weights the output is piecewise linear, as behind Relu, this is the Hessian's own block. Labels are not
/// needed. A layer without constant weights gets 0. The bits are the same for any number of threads.
std::vector<double> average_hessian_traces(const model& m, const named_tensors& inputs, std::span<const std::string> layers,
                                           const estimate_options& options = {});

}  // namespace qk::graph
