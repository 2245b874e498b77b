// SPDX-License-Identifier: Apache-2.0
// `qk finetune` as one call.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "qk/graph/learn/finetune.hpp"
#include "qk/graph/pipeline/plan.hpp"

namespace qk::graph::pipeline {

/// Each member is the command's option of the same name; empty: not given.
struct finetune_settings {
    model_source model;
    std::string output, save_plan;  ///< no output: the outcome has the model's bytes
    int output_index = 0, epochs = 10, batch = 32;
    double rate = 0.003, held_out = 0.1;
    std::uint64_t seed = 0;
    bool overwrite = false;
    data_settings data;
    precision_settings precision;
    cancel_function cancel{};
};

struct finetune_outcome {
    finetune_result result;
    std::string model;                 ///< its bytes, where no output is named
    quantize_report report;            ///< report on the plan
    std::vector<std::string> remarks;  ///< remarks on reading the model
};

/// Makes the plan, learns, and writes the float model with the learned values and the plan that fits it. Throws qk::graph::error.
finetune_outcome finetune(const finetune_settings& settings, const progress_function& progress = {});

}  // namespace qk::graph::pipeline
