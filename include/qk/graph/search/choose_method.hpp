// SPDX-License-Identifier: Apache-2.0
// Which way of choosing ranges suits a model: one plan by each, measured on data.
#pragma once

#include <functional>
#include <vector>

#include "qk/graph/evaluate/evaluator.hpp"
#include "qk/graph/quantize/planner.hpp"
#include "qk/graph/search/scorer.hpp"

namespace qk::graph {

/// The method whose plan does best by `measured`, of those that `seen` has the statistics for: the function below with plans and measure of
/// the caller's.
method_choice choose_method(const std::function<precision_plan(range_method)>& plan_by, const calibration& seen, scorer& measured,
                            const progress& report = {});

/// The method whose plan does best on `inputs` by `scoring.metric`; of equals the one with the smaller output error, then the first by
/// value. Methods for which `seen` lacks statistics are passed over, and methods whose plans are equal are measured once; requests that
/// name a method of their own keep it. Errors: those of planner::plan and of scorer.
method_choice choose_method(const model& m, const std::vector<request>& requests, quantize_options options, const calibration& seen,
                            named_tensors inputs, score_options scoring, const progress& report = {});

}  // namespace qk::graph
