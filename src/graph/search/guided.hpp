// SPDX-License-Identifier: Apache-2.0
// Guides a search by gradients: estimates replace the evaluation of every single move, and traces of the Hessian serve hawq_v2.
#pragma once

#include "qk/graph/search/search.hpp"

namespace qk::graph {

/// Sets the estimates and Hessian weights of `run` as options.ranking says. `auto` estimates where that should take less time than
/// measuring, and measures where no gradient flows or the metric is the user's. With a limit that leaves too few trials for measuring it
/// estimates in any case, for the order alone. The result of the search is measured in every case.
/// Throws error for an unknown ranking, and for `gradient` where gradients cannot be had.
void guide_by_gradients(search_run& run, mix_problem& problem, const model& m, const named_tensors& inputs, const search_options& options);

}  // namespace qk::graph
