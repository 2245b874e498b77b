// SPDX-License-Identifier: Apache-2.0
// Settings and steps that sensitivity and search share: formats to choose from, layers, metric, data.
#pragma once

#include <string>
#include <vector>

#include "qk/graph/base/ranks.hpp"
#include "qk/graph/export/export.hpp"
#include "qk/graph/files/output_set.hpp"
#include "qk/graph/pipeline/plan.hpp"
#include "qk/graph/search/search.hpp"

namespace qk::graph::pipeline {

/// Each member is the command's option of the same name; empty: not given.
struct mix_settings {
    model_source model;
    std::string metric, baseline = "float", cost = "auto", latency_table, metric_command, metric_server, report;
    double metric_timeout = 600;  ///< seconds
    std::string wide = "int16/int8";
    std::vector<std::string> narrow{"int8/int8"}, narrow_for, op_types, layers, exclude;
    int output_index = 0;
    bool higher_is_better = false, overwrite = false;
    std::string command;  ///< command line that a report shows
    ranks together;       ///< processes that share this run; by default this one alone
    data_settings data;
    precision_settings precision;
    outputs_metric measure_outputs{};   ///< a function of the caller's that measures, in place of `metric`: of the outputs,
    bool measures_any_samples = false;  ///< measure_outputs knows of samples what it is given: it may be asked about others of their number
    model_metric measure_model{};       ///< or of the model that the export would write. At most one of the two
    std::string measure_name{};         ///< that function's name

    remote_scores elsewhere{};  ///< measures the trials on other machines
    cancel_function cancel{};

    /// Declares to `files` everything that a run reads, and the report. Returns remarks.
    std::vector<std::string> declare(output_set& files) const;
    /// Fills in mix_options, but nothing that only a search has; labels fit `inputs`. Uses `default_metric` where `metric` was not
    /// given; `style` is the export for a metric server that wants models. The model must outlive the options.
    void fill(mix_options& options, const graph::model& m, const named_tensors& inputs, const std::string& default_metric,
              const export_options& style = {}) const;
    bool measured_by_user() const { return !metric_command.empty() || !metric_server.empty() || measure_outputs || measure_model; }
};

/// Rotates the model and scales its channels once, before any layer is searched, for the narrowest of the formats that may be chosen. Adds
/// remarks to the options. Returns what was done, as a plan has it.
precision_plan transform_mix(model& m, const data_settings& data, mix_options& options);

/// Calibrates for every format that may be chosen, with histograms if a report draws them. Where it runs the model on `inputs`, `options`
/// gets the float outputs.
calibration calibrate_mix(const model& m, const data_settings& data, const named_tensors& inputs, mix_options& options, bool histograms,
                          const progress_function& progress = {});

}  // namespace qk::graph::pipeline
