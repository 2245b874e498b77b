// SPDX-License-Identifier: Apache-2.0
// Asks a python that has onnxruntime how long two models take.
#pragma once

#include <filesystem>
#include <string>

#include "qk/graph/evaluate/evaluator.hpp"
#include "qk/graph/model/model.hpp"

namespace qk::graph::pipeline {

/// Medians of one sample on one thread, in turns.
struct runtime_times {
    double float_milliseconds = 0, milliseconds = 0;
    std::string runtime{};  ///< "onnxruntime 1.32.0"
};

/// Times both models in `folder` with the first of the samples; with zeros where there are none. Throws with what onnxruntime said if it
/// cannot run one of them.
runtime_times time_in_onnxruntime(const std::filesystem::path& float_model, const std::filesystem::path& quantized_model, const model& m,
                                  const named_tensors* samples);

}  // namespace qk::graph::pipeline
