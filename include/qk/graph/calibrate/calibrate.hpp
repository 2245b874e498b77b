// SPDX-License-Identifier: Apache-2.0
// Fills a calibration in one pass over data: streaming, with threads, in bounded memory, with the same result for any number of threads.
#pragma once

#include <set>
#include <string>

#include "qk/graph/calibrate/statistics.hpp"
#include "qk/graph/evaluate/evaluator.hpp"

namespace qk::graph {

struct calibrate_options {
    int threads = 0;
    bool histograms = true;       ///< false: ranges only (min_max needs no more), about twice as fast
    bool moving_average = false;  ///< also average = (1 - weight) * average + weight * range, sample after sample
    double average_weight = 0.01;
    std::set<std::string> tensors{};  ///< only these; empty: every activation of float32, float16 or bfloat16
    run_limits limits{};
};

/// Runs the model in float32 and records each activation's range and histogram; activations themselves are not kept. `outputs`, if not
/// null, gets the outputs of a model that does not mix samples: a search compares with them and saves another run.
calibration calibrate(const model& m, const named_tensors& inputs, const calibrate_options& options = {}, const progress& report = {},
                      named_tensors* outputs = nullptr);

/// Returns options that gather the statistics that a method needs, and no more.
calibrate_options options_for(range_method method);

}  // namespace qk::graph
