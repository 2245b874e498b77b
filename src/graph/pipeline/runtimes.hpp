// SPDX-License-Identifier: Apache-2.0
// Runs a model in another runtime, through its Python package or a command of the user's, and reads every tensor that it gives.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "qk/graph/evaluate/evaluator.hpp"
#include "qk/graph/model/model.hpp"

namespace qk::graph::pipeline {

/// What a runtime gave: tensors by name, for each run.
struct runtime_answer {
    std::string runtime;  ///< "onnxruntime 1.32.0"
    std::vector<std::map<std::string, tensor>> runs;
    std::map<std::string, std::string> made_by{};  ///< by tensor, where an optimizer changed it: the operator that makes it there
    double seconds = 0;                            ///< of the runs, without loading
};

/// Runs `m` in onnxruntime or openvino. `wanted` are the tensors to give, of types that numpy has. With the optimizer on, onnxruntime gives
/// those that survive its fusions, openvino the model's outputs. `library` has operators for onnxruntime, which takes them in place of the
/// model's functions; empty: none.
runtime_answer run_in_runtime(const std::string& runtime, const model& m, const std::vector<std::string>& wanted,
                              const std::vector<named_tensors>& runs, bool optimizes, const std::filesystem::path& library = {});

/// Returns the ratio of signal to difference of an output over all runs, in decibels, counting what is finite in the
/// reference; -Inf where the other is not.
double decibels_beside(const std::string& output, const runtime_answer& reference, const runtime_answer& other);

/// Calls `COMMAND MODEL.onnx INPUTS OUTPUTS` for each run: folders of NAME.npy. Every tensor of `wanted` is an output of MODEL.onnx.
runtime_answer run_command(const std::string& command, const model& m, const std::vector<std::string>& wanted,
                           const std::vector<named_tensors>& runs);

}  // namespace qk::graph::pipeline
