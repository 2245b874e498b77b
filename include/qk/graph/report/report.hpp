// SPDX-License-Identifier: Apache-2.0
// The pages of `qk quantize --report` and `qk calibrate --report`: what was asked, what every tensor got and why, what it costs.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "qk/graph/calibrate/statistics.hpp"
#include "qk/graph/quantize/planner.hpp"
#include "qk/graph/report/html.hpp"

namespace qk::graph {

/// What a report is about.
struct report_subject {
    std::string model;    ///< file name
    std::string command;  ///< as typed
    std::vector<request> requests;
    std::vector<std::string> export_notes;                     ///< what export did beyond placing quantizers
    double input_bytes = 0, output_bytes = 0;                  ///< of the files; 0: not written
    std::vector<std::pair<std::string, std::string>> facts{};  ///< measured: what it is, and its value
    std::string recipe{};                                      ///< what a recipe did
    std::vector<std::vector<std::string>> tried{};             ///< rows of what it tried: step, dB, top-1, whether it was kept
};
std::string quantize_html(const report_subject& subject, const quantize_result& result, const plan_cost& cost, const calibration* seen);

/// One method's range of one tensor and the mean squared error it causes.
struct method_range {
    range_method method = range_method::min_max;
    value_range range;
    quantizer how;
    double error = 0;
    double sqnr = 0;
};
struct method_comparison {
    std::string tensor;
    std::vector<method_range> methods;
    std::size_t best = 0;  ///< index of the method with the least error
};
/// Returns the ranges of every tensor under every given method, for one integer format. Methods without their statistics are left out.
std::vector<method_comparison> compare_methods(const calibration& seen, const std::vector<range_method>& methods, const precision& what,
                                               double percentile = 99.999);

nlohmann::ordered_json to_json(const std::vector<method_comparison>& all);
std::string calibration_html(const std::string& model, const std::string& command, const calibration& seen, const precision& what,
                             const std::vector<method_comparison>& all);
/// Draws a histogram of at most `bars` bars with the given lines in it.
void draw_histogram(html_page& page, const std::string& title, const tensor_statistics& s, const std::vector<html_marker>& markers,
                    std::size_t bars = 120);

}  // namespace qk::graph
