// SPDX-License-Identifier: Apache-2.0
// `qk evaluate` as one call.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "qk/graph/evaluate/accuracy.hpp"
#include "qk/graph/evaluate/evaluator.hpp"
#include "qk/graph/pipeline/plan.hpp"

namespace qk::graph::pipeline {

/// Each member is an option of the command of the same name; empty: not given.
struct evaluate_settings {
    std::string model, output_dir, compare;
    std::vector<std::string> accumulators;  ///< "NAME", "TYPE:NAME", "LAYER:NAME": after those of the requests file
    std::vector<std::string> metrics;       ///< none: those that the labels suggest
    std::size_t generate = 0;               ///< greedy steps behind each prompt, instead of one run
    int output_index = 0;                   ///< of the output that is measured
    int batch = 0;                          ///< 0: chosen here
    double tolerance = 1e-4;                ///< of a difference, over the largest output
    bool overwrite = false;
    data_settings data;
    precision_settings precision;
};

struct evaluate_outcome {
    evaluate_result run;
    quantize_report report;                                ///< of the plan, if there is one
    std::vector<std::string> remarks;                      ///< of reading the model
    std::map<std::string, output_difference> differences;  ///< from what `compare` holds, by output
    bool agree = true;                                     ///< none of them beyond the tolerance
    nlohmann::ordered_json summary;                        ///< what `--json` prints
};

/// Runs the model, in float32 or under the plan that `precision` asks for, and writes the outputs where a folder is given. Throws
/// qk::graph::error.
evaluate_outcome evaluate(const evaluate_settings& settings, const progress_function& progress = {});

}  // namespace qk::graph::pipeline
