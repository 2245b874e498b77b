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

/// Each member is the command's option of the same name; empty: not given.
struct evaluate_settings {
    model_source model;
    std::string output_dir, dump, compare;
    std::string run_with{};                 ///< a runtime that runs the file in the evaluator's place: onnxruntime, with qk's operators
                                            ///< onnxruntime+library, or openvino
    named_tensors expected;                 ///< outputs to compare with, in place of files in `compare`
    bool keep_outputs = false;              ///< the outputs are in the outcome even if no folder is named
    std::vector<std::string> accumulators;  ///< "NAME", "TYPE:NAME", "LAYER:NAME"; they override the requests file
    std::vector<std::string> metrics;       ///< empty: those that the labels suggest
    std::size_t generate = 0;               ///< greedy steps behind each prompt, instead of one run
    int output_index = 0;                   ///< output that is measured
    int batch = 0;                          ///< 0: chosen automatically
    bool packed_weights = false;            ///< evaluate_options::packed_weights
    double tolerance = 1e-4;                ///< largest difference, relative to the largest output
    bool overwrite = false;
    data_settings data;
    precision_settings precision;
    cancel_function cancel{};
};

struct evaluate_outcome {
    evaluate_result run;
    quantize_report report;                                ///< report on the plan, if there is one
    std::vector<std::string> remarks;                      ///< remarks on reading the model
    std::map<std::string, output_difference> differences;  ///< by output, from the values in `compare` or `expected`
    bool agree = true;                                     ///< no difference exceeds the tolerance
    nlohmann::ordered_json summary;                        ///< what `--json` prints
};

/// Runs the model, in float32 or under the plan that `precision` asks for, and writes the outputs where a folder is given. Throws
/// qk::graph::error.
evaluate_outcome evaluate(const evaluate_settings& settings, const progress_function& progress = {});

}  // namespace qk::graph::pipeline
