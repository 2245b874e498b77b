// SPDX-License-Identifier: Apache-2.0
// `qk quantize` as one call.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "qk/graph/pipeline/onnxruntime_time.hpp"
#include "qk/graph/pipeline/plan.hpp"
#include "qk/graph/pipeline/recipe.hpp"
#include "qk/graph/pipeline/verify.hpp"
#include "qk/graph/quantize/planner.hpp"

namespace qk::graph::pipeline {

/// Each member is the command's option of the same name; empty: not given.
struct quantize_settings {
    model_source model;
    std::string output, style, weights = "packed", save_plan, encodings, report, log;
    std::string encodings_version = "1.0.0";
    bool keep_int8 = false, overwrite = false;
    bool inlined = false;                 ///< no functions in the file
    std::string run_with{};               ///< calibrates in onnxruntime or openvino, which may know operators that qk does not
    std::string verify{};                 ///< runs the file in onnxruntime or openvino before it is written; none is where it departs
    bool time = false;                    ///< times float model and file in onnxruntime
    std::optional<int> accuracy_level{};  ///< of MatMulNBits, from 0 to 4
    bool estimates = false;               ///< computes the error of every activation, even without report and log
    bool returns_model = false;           ///< the outcome has the model's bytes, also where no `output` is named
    bool returns_plan = false;            ///< the outcome's plan fits the float model, as one that is saved does
    std::string command;                  ///< command line that a report shows
    data_settings data;
    precision_settings precision;
    cancel_function cancel{};
};

struct quantize_outcome {
    quantize_result result;
    std::string model;  ///< its bytes, if they were asked for
    plan_cost cost;
    std::vector<std::string> remarks;       ///< remarks on reading the model
    std::vector<std::string> export_notes;  ///< notes on writing it
    std::size_t edges = 0;                  ///< number of quantized edges
    recipe_report recipe;
    std::optional<runtime_times> times;     ///< where they were asked for and onnxruntime was found
    std::string not_timed;                  ///< why it was not
    std::optional<verified_file> verified;  ///< where that was asked for; if it departs, no file is written and no model returned
    std::string level_price;                ///< what the accuracy level costs, as a sentence; empty without one
    double bytes_before = 0, bytes_after = 0;
    nlohmann::ordered_json summary;  ///< what `--json` prints
};

/// Makes a plan from requests and calibration, and a model from the plan; writes every file that the settings name, or none. Writes the
/// same files as the command, byte for byte. Throws qk::graph::error.
quantize_outcome quantize(const quantize_settings& settings, const progress_function& progress = {});

}  // namespace qk::graph::pipeline
