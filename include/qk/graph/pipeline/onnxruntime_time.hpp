// SPDX-License-Identifier: Apache-2.0
// Asks a python that has onnxruntime how long two models take; where qk's operators for it are.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "qk/graph/evaluate/evaluator.hpp"
#include "qk/graph/model/model.hpp"

namespace qk::graph::pipeline {

/// Medians of one sample on one thread, in turns.
struct runtime_times {
    double float_milliseconds = 0, milliseconds = 0;
    std::string runtime{};                   ///< "onnxruntime 1.32.0"
    std::optional<double> with_operators{};  ///< the quantized model with qk's operators, where they are and it has functions for them
};

/// Returns the file of qk's operators: that of QK_ONNXRUNTIME_LIBRARY, or beside the program or module, or among the libraries of its
/// installation; empty where there is none.
std::filesystem::path onnxruntime_library();
/// Returns the file that an option asks for: its name, or by this word (and "") the one above. Throws where there is none.
std::filesystem::path onnxruntime_library(const std::string& asked);
inline constexpr const char* beside_qk = "beside";

/// Times both models with the first of the samples; with zeros where there are none. `has_functions`: the quantized one calls functions of
/// qk's. Throws with what onnxruntime said if it cannot run one of them.
runtime_times time_in_onnxruntime(const std::filesystem::path& float_model, const std::filesystem::path& quantized_model, const model& m,
                                  const named_tensors* samples, bool has_functions);

}  // namespace qk::graph::pipeline
