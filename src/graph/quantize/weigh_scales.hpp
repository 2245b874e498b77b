// SPDX-License-Identifier: Apache-2.0
// scale_objective::weighted where values share a float32 scale: integers, small floats and tables. Formats with blocks of their own get
// weights that such a search leaves unchanged (weigh_scales, compensate.hpp); here the plan holds the scales, so the plan changes.
#pragma once

#include "qk/graph/quantize/compensate.hpp"

namespace qk::graph {

/// Does the plan search such scales by scale_objective::weighted?
bool weighs_plan_scales(const model& m, const precision_plan& plan);

/// Searches these scales again, each column of a weight weighted by the sum of squares that it is multiplied with in the samples, and puts
/// them into the plan, an int32 bias's with them. Weights stay. The results are in the order of the nodes.
std::vector<compensated_weight> weigh_plan_scales(const model& m, precision_plan& plan, const named_tensors& samples,
                                                  const compensate_options& options = {}, const progress& report = {});

}  // namespace qk::graph
