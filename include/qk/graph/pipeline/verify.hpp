// SPDX-License-Identifier: Apache-2.0
// Runs what is to be written in the runtime that it is meant for, before it is written. docs/guide/export.md, "Verified in its runtime".
#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "qk/graph/model/model.hpp"
#include "qk/graph/pipeline/data.hpp"
#include "qk/graph/plan/plan.hpp"

namespace qk::graph::pipeline {

/// What a runtime made of a file: the output whose quality is furthest below what qk makes of it.
struct verified_file {
    std::string runtime;    ///< "openvino 2026.4.1", as the runtime says; its name alone where it did not run the file
    std::string not_run{};  ///< why it did not
    std::string output{};
    double sqnr = 0, of_qk = 0;  ///< decibels of that output against the float model's: in the runtime, and as qk computes the plan
    std::size_t samples = 0;
    std::string of{};  ///< what samples they are (file_quality.hpp)

    /// Is true when the runtime does not run the file, or the output is more than 1 dB worse there. Above 100 dB, where the order of
    /// float32 sums decides, the two are not told apart.
    bool departs() const;
    /// Returns a sentence for a person.
    std::string text() const;
};
nlohmann::ordered_json to_json(const verified_file& v);

/// Throws an error where verify_in() would for want of a runtime that has the name, of a Python that has it, or of samples.
void check_verify(const std::string& runtime, const data_settings& data);

/// Runs the exported model of `planned` under `plan` in "onnxruntime" (its optimizer on) or "openvino", on samples of the data (held out
/// where some are). `original` is the float model before anything changed its weights. Throws as check_verify() does, and where no output
/// holds floats.
verified_file verify_in(const std::string& runtime, const model& original, const model& planned, const precision_plan& plan,
                        const model& exported, const data_settings& data);

}  // namespace qk::graph::pipeline
