// SPDX-License-Identifier: Apache-2.0
// Finds the calibration method that suits a model: makes one plan by each and measures it on data.
#pragma once

#include <functional>
#include <vector>

#include "qk/graph/evaluate/evaluator.hpp"
#include "qk/graph/quantize/planner.hpp"
#include "qk/graph/search/scorer.hpp"

namespace qk::graph {

/// Returns the method whose plan, made by `plan_by`, scores best under `measured`, among those that `seen` has statistics for; the first
/// (min_max), unless another does better by more than chance (difference_of()). Equal plans are measured once.
method_choice choose_method(const std::function<precision_plan(range_method)>& plan_by, const calibration& seen, scorer& measured,
                            const progress& report = {});

/// Returns the method whose plan scores best on `inputs` by `scoring.metric`, likewise. Skips methods for which `seen` lacks statistics,
/// and measures equal plans once; requests that name a method of their own keep it. Errors are those of planner::plan and of scorer.
method_choice choose_method(const model& m, const std::vector<request>& requests, quantize_options options, const calibration& seen,
                            named_tensors inputs, score_options scoring, const progress& report = {});

}  // namespace qk::graph
