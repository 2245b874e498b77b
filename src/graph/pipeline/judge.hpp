// SPDX-License-Identifier: Apache-2.0
// Says of one tensor on two sides whether it departs, and which mistake explains it.
#pragma once

#include <string>

#include "graph/pipeline/forced.hpp"
#include "qk/graph/pipeline/diff.hpp"

namespace qk::graph::pipeline {

/// Adds what one run shows to `d`. The first run in which the tensor departs also gives the rule that explains it.
void judge(const judged_tensor& both, tensor_diff& d);

/// Returns the ratio of two sums of squares: infinite without noise, and negative infinity for noise alone.
double decibels(double signal, double noise);

}  // namespace qk::graph::pipeline
