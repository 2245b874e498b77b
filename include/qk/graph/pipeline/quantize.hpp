// SPDX-License-Identifier: Apache-2.0
// `qk quantize` as one call.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "qk/graph/pipeline/plan.hpp"
#include "qk/graph/quantize/planner.hpp"

namespace qk::graph::pipeline {

/// Each member is an option of the command of the same name; empty: not given.
struct quantize_settings {
    std::string model, output, style = "portable", weights = "packed", save_plan, encodings, report, log;
    bool keep_int8 = false, overwrite = false;
    bool estimates = false;  ///< the error of every activation, even where neither report nor log is written
    std::string command;     ///< what a report says it was made by
    data_settings data;
    precision_settings precision;
};

struct quantize_outcome {
    quantize_result result;
    plan_cost cost;
    std::vector<std::string> remarks;       ///< of reading the model
    std::vector<std::string> export_notes;  ///< of writing it
    std::size_t edges = 0;                  ///< quantized ones
    double bytes_before = 0, bytes_after = 0;
    nlohmann::ordered_json summary;  ///< what `--json` prints
};

/// Requests and calibration become a plan, the plan becomes a model; every file that the settings name is written, or none. The same
/// files, byte for byte, as the command's. Throws qk::graph::error.
quantize_outcome quantize(const quantize_settings& settings, const progress_function& progress = {});

}  // namespace qk::graph::pipeline
