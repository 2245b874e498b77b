// SPDX-License-Identifier: Apache-2.0
// A search guided by gradients: estimates in place of the evaluation of every single move, and the Hessian's traces for hawq_v2.
#pragma once

#include "qk/graph/search/search.hpp"

namespace qk::graph {

/// Gives `run` what options.ranking asks for. `auto` estimates where that should take less time than measuring, and measures where no
/// gradient flows or the metric is the user's. What the search returns is measured in every case.
/// Throws error for an unknown ranking, and for `gradient` where it cannot be had.
void guide_by_gradients(search_run& run, mix_problem& problem, const model& m, const named_tensors& inputs, const search_options& options);

}  // namespace qk::graph
