// SPDX-License-Identifier: Apache-2.0
// Declares to an output_set what a run reads, so that no output replaces an input, whichever setting names it.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "qk/graph/files/output_set.hpp"
#include "qk/graph/pipeline/data.hpp"
#include "qk/graph/pipeline/precision.hpp"

namespace qk::graph::pipeline {

/// Declares the model and its external data; nothing for a model in memory. Returns a remark where names in the model are not UTF-8.
std::vector<std::string> declare_model(output_set& files, const model_source& model);
/// Declares inputs, calibration and labels. Returns remarks on folders that hold more than data.
std::vector<std::string> declare(output_set& files, const data_settings& data);
/// Declares the model, the data, the plan and the target. Returns remarks.
std::vector<std::string> declare_run(output_set& files, const model_source& model, const data_settings& data,
                                     const precision_settings& precision = {});
/// Declares the HTML report and the JSON beside it.
void declare_report(output_set& files, const std::string& report);

/// Returns the file of the JSON beside an HTML report; empty without a report.
std::filesystem::path beside_report(const std::string& report);

}  // namespace qk::graph::pipeline
