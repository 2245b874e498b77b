// SPDX-License-Identifier: Apache-2.0
// What a run reads, told to its output_set: so that no output takes an input's place, whichever setting names it.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "qk/graph/files/output_set.hpp"
#include "qk/graph/pipeline/data.hpp"
#include "qk/graph/pipeline/precision.hpp"

namespace qk::graph::pipeline {

/// The model and its external data. A remark where names in it have to change to be read.
std::vector<std::string> declare_model(output_set& files, const std::string& model);
/// Inputs, calibration, labels.
void declare(output_set& files, const data_settings& data);
/// Both, with plan and target. Returns remarks.
std::vector<std::string> declare_run(output_set& files, const std::string& model, const data_settings& data,
                                     const precision_settings& precision = {});
/// The page and the JSON beside it.
void declare_report(output_set& files, const std::string& report);

/// The JSON beside an HTML report; empty without one.
std::filesystem::path beside_report(const std::string& report);

}  // namespace qk::graph::pipeline
