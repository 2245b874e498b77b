// SPDX-License-Identifier: Apache-2.0
// `qk gradient` as one call.
#pragma once

#include <string>
#include <vector>

#include "qk/graph/gradient/gradient.hpp"
#include "qk/graph/pipeline/data.hpp"

namespace qk::graph::pipeline {

/// Each member is the command's option of the same name; empty: not given.
struct gradient_settings {
    model_source model;
    std::string output;   ///< none: the gradients are in the outcome alone
    array_source vector;  ///< or the data's `labels`, not both
    int output_index = 0;
    bool overwrite = false;
    data_settings data;
    cancel_function cancel{};
};

struct gradient_outcome {
    gradient_result result;
    std::vector<std::string> remarks;  ///< remarks on reading the model
};

/// Computes the gradients and writes them as .npz. Throws qk::graph::error.
gradient_outcome gradient(const gradient_settings& settings);

}  // namespace qk::graph::pipeline
