// SPDX-License-Identifier: Apache-2.0
// `qk search` as one call.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "qk/graph/pipeline/mix.hpp"

namespace qk::graph::pipeline {

/// Each member is the command's option of the same name; empty: not given.
struct search_settings : mix_settings {
    std::string strategy = "greedy", direction = "narrow", ranking = "auto", output, save_plan, cache, style, weights = "packed";
    std::map<std::string, double> targets, drops;        ///< --target-METRIC and --target-METRIC-drop, by metric; at most one target in all
    std::optional<double> target_drop, target_relative;  ///< of any metric, also of the user's; "criterion" in `plan` says the same
    std::optional<double> target_metric, budget, budget_ratio, wide_share;
    std::size_t max_trials = 0;  ///< 0: no limit
    double time_limit = 0;       ///< seconds; 0: none
    std::uint64_t seed = 0;
    bool returns_model = false;                ///< the outcome has the model's bytes, also where no `output` is named
    bool returns_plan = false;                 ///< the outcome's plan fits the float model, as one that is saved does
    std::atomic<bool>* interrupted = nullptr;  ///< when it becomes true, the search ends with the best so far
};

struct search_outcome {
    search_result result;
    std::string model;                      ///< its bytes, if they were asked for
    std::vector<std::string> export_notes;  ///< notes on writing the model
};

/// Searches, and writes every file that the settings name, or none. Writes the same files as the command. Throws qk::graph::error.
search_outcome search(const search_settings& settings, const progress_function& progress = {});

}  // namespace qk::graph::pipeline
