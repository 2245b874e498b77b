// SPDX-License-Identifier: Apache-2.0
// Makes a plan from settings, and a model for the user's runtime from a plan: what quantize, evaluate, sensitivity and search share.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "qk/graph/calibrate/statistics.hpp"
#include "qk/graph/export/export.hpp"
#include "qk/graph/pipeline/data.hpp"
#include "qk/graph/pipeline/precision.hpp"

namespace qk::graph::pipeline {

// Reports the progress of long work.

/// Called with what is being done ("calibrating"), how much of it is done, and how much there is (0: unknown). Called from one thread at a
/// time.
using progress_function = std::function<void(std::string_view what, std::size_t done, std::size_t all)>;

/// Returns a function that reports one piece of work to `report`, or does nothing if `report` is empty. Refers to `report`.
inline std::function<void(std::size_t, std::size_t)> progress_of(const progress_function& report, const char* what) {
    return [&report, what](std::size_t done, std::size_t all) {
        if (report) report(what, done, all);
    };
}

/// Loads a model for planning: folds constants and batch normalization. `notes` gets one if the model is quantized already.
model load_for_planning(const model_source& from, std::vector<plan_note>* notes = nullptr);

/// Returns statistics for planning: from a calibration file, or from a pass over the calibration data (or the inputs) that gathers what the
/// methods need. Runs nothing when no request needs a range and no format may overflow. `histograms` gathers histograms even where no
/// method needs them (a report draws them). Where it runs the model on `inputs`, `outputs` gets the float outputs.
calibration calibrate_for(const model& m, const data_settings& data, const asked_precision& asked, bool histograms = false,
                          const progress_function& progress = {}, const named_tensors* inputs = nullptr, named_tensors* outputs = nullptr);

/// Makes a plan from what was asked (precision_settings::read). `m` comes from load_for_planning(); its weights and biases change where
/// weights are rounded other than to nearest, biases are corrected, or the model is transformed. `seen` gets the statistics, with
/// histograms if `full`.
quantize_result make_plan(model& m, const data_settings& data, asked_precision asked, calibration* seen = nullptr, bool full = false,
                          const progress_function& progress = {});

/// Returns how int8 weights are stored for what was asked: as the target profile says, else pair-safe.
int8_codes codes_for(const quantize_options& options);

/// Returns the style of that name, or the default where it is empty.
export_style style_of(const std::string& name);

/// Writes for a runtime: its style where none is named, and how it wants files. Throws where it does not have what the style writes.
void write_for(const target_profile& target, export_options& options, bool style_named);

/// Calls export_model after two changes that alter no value, where the style has them: Relu and Clip nodes that the quantizers behind them
/// make needless are left out, and int8 activations are stored as uint8 unless `keep_int8`, which keeps int8 weights, too. The notes say
/// so.
export_result write_plan(const model& m, const precision_plan& plan, export_options options, bool keep_int8 = false);

}  // namespace qk::graph::pipeline
