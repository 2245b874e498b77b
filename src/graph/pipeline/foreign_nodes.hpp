// SPDX-License-Identifier: Apache-2.0
// Calibrates models with operators that qk does not have: by what runs before them, or in a runtime that knows them.
#pragma once

#include <memory>
#include <string>

#include "qk/graph/files/temporary_folder.hpp"
#include "qk/graph/model/model.hpp"
#include "qk/graph/pipeline/data.hpp"
#include "qk/graph/pipeline/plan.hpp"
#include "qk/graph/pipeline/precision.hpp"

namespace qk::graph::pipeline {

/// Where a model with samples has such operators, or `run_with` names a runtime, returns a folder whose statistics.json has the ranges that
/// could be found. Layers that read what has no range are excluded in `asked`, with a note. Null: the model runs here.
std::unique_ptr<temporary_folder> calibrate_elsewhere(const model& m, const data_settings& data, asked_precision& asked,
                                                      const std::string& run_with, const progress_function& progress);

}  // namespace qk::graph::pipeline
