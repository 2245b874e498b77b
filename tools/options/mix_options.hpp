// SPDX-License-Identifier: Apache-2.0
// The options that sensitivity and search share: formats to choose from, layers, metric, data.
#pragma once

#include <atomic>
#include <string>
#include <vector>

#include "options/data_options.hpp"
#include "options/option_table.hpp"
#include "options/precision_options.hpp"
#include "qk/graph/calibrate/statistics.hpp"
#include "qk/graph/export/export.hpp"
#include "qk/graph/files/output_set.hpp"
#include "qk/graph/search/search.hpp"

namespace qk::tool {

struct mix_arguments {
    std::string model, metric, baseline = "float", cost = "auto", latency_table, metric_command, metric_server, report;
    double metric_timeout = 600;
    std::string wide = "int16/int8";
    std::vector<std::string> narrow{"int8/int8"}, op_types, layers, exclude;
    int output_index = 0;
    bool higher_is_better = false, json = false, overwrite = false;
    data_options data;
    precision_options precision;

    void add(option_table& verb);
    /// Everything that both verbs read, and the report.
    void declare(graph::output_set& files) const;
    /// Everything of mix_options but what only a search has. `default_metric` where --metric was not given; `style` is how a
    /// --metric-server that asks for models gets them. The model must outlive the options.
    void fill(graph::mix_options& options, const graph::model& m, const std::string& default_metric,
              const graph::export_options& style = {}) const;
    bool measured_by_user() const { return !metric_command.empty() || !metric_server.empty(); }
};

/// "Metrics:" and what each of them measures, for the end of --help.
std::string metric_definitions();

/// Calibration for every format that may be chosen, with histograms if a report wants to draw them. Where it runs the model on `inputs`,
/// `options` gets the float outputs.
graph::calibration calibrate_mix(const graph::model& m, const data_options& data, const graph::named_tensors& inputs,
                                 graph::mix_options& options, bool histograms);

/// Set by the first Ctrl-C after watch_interrupts(); a second one ends the process as usual.
std::atomic<bool>& interrupted();
void watch_interrupts();

}  // namespace qk::tool
