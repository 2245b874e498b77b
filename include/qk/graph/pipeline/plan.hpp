// SPDX-License-Identifier: Apache-2.0
// From settings to a plan, and from a plan to a model for the user's runtime: what quantize, evaluate, sensitivity and search do alike.
#pragma once

#include <string>

#include "qk/graph/calibrate/statistics.hpp"
#include "qk/graph/export/export.hpp"
#include "qk/graph/pipeline/data.hpp"
#include "qk/graph/pipeline/precision.hpp"
#include "qk/graph/pipeline/progress.hpp"

namespace qk::graph::pipeline {

/// A model ready for planning: constants and batch normalization folded.
model load_for_planning(const std::string& file);

/// Statistics for planning: a calibration file, or a pass over the calibration data (or the inputs) with what the methods need. Nothing is
/// run when no request needs a range. `histograms`: gathered even where no method needs them (a report draws them). Where it runs the model
/// on `inputs`, `outputs` gets the float outputs.
calibration calibrate_for(const model& m, const data_settings& data, const asked_precision& asked, bool histograms = false,
                          const progress_function& progress = {}, const named_tensors* inputs = nullptr, named_tensors* outputs = nullptr);

/// Everything between what is asked (precision_settings::read) and a plan. `m` comes from load_for_planning(); where weights are rounded
/// otherwise than to nearest, or biases corrected, they change. `seen` gets the statistics; `full`: with histograms.
quantize_result make_plan(model& m, const data_settings& data, asked_precision asked, calibration* seen = nullptr, bool full = false,
                          const progress_function& progress = {});

/// export_model after two changes that no value shows: Relu and Clip nodes that the quantizers behind them make needless are left out, and
/// int8 activations are stored as uint8 unless `keep_int8` (not in styles amd and qinteger), which keeps int8 weights, too. The notes say
/// so.
export_result write_plan(const model& m, const precision_plan& plan, export_options options, bool keep_int8 = false);

}  // namespace qk::graph::pipeline
