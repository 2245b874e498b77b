// SPDX-License-Identifier: Apache-2.0
// What sensitivity and search share: formats to choose from, layers, metric, data.
#pragma once

#include <string>
#include <vector>

#include "qk/graph/base/ranks.hpp"
#include "qk/graph/export/export.hpp"
#include "qk/graph/files/output_set.hpp"
#include "qk/graph/pipeline/plan.hpp"
#include "qk/graph/search/search.hpp"

namespace qk::graph::pipeline {

/// Each member is an option of the command of the same name; empty: not given.
struct mix_settings {
    std::string model, metric, baseline = "float", cost = "auto", latency_table, metric_command, metric_server, report;
    double metric_timeout = 600;  ///< seconds
    std::string wide = "int16/int8";
    std::vector<std::string> narrow{"int8/int8"}, narrow_for, op_types, layers, exclude;
    int output_index = 0;
    bool higher_is_better = false, overwrite = false;
    std::string command;  ///< what a report says it was made by
    ranks together;       ///< the processes that run this together; alone by default
    data_settings data;
    precision_settings precision;

    /// Names everything that a run reads, and the report. Returns remarks.
    std::vector<std::string> declare(output_set& files) const;
    /// Everything of mix_options but what only a search has. `default_metric` where `metric` was not given; `style` is how a metric server
    /// that asks for models gets them. The model must outlive the options.
    void fill(mix_options& options, const graph::model& m, const std::string& default_metric, const export_options& style = {}) const;
    bool measured_by_user() const { return !metric_command.empty() || !metric_server.empty(); }
};

/// Rotation and scaling of channels, once and before any layer is searched: for the narrowest of the formats that may be chosen. What there
/// is to say of it goes to the options' remarks.
void transform_mix(model& m, const data_settings& data, mix_options& options);

/// Calibration for every format that may be chosen, with histograms if a report wants to draw them. Where it runs the model on `inputs`,
/// `options` gets the float outputs.
calibration calibrate_mix(const model& m, const data_settings& data, const named_tensors& inputs, mix_options& options, bool histograms,
                          const progress_function& progress = {});

}  // namespace qk::graph::pipeline
