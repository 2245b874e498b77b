// SPDX-License-Identifier: Apache-2.0
// Requests files, saved plans and target profiles as JSON: one loader, errors with line and path. The schema is docs/guide/plan.md.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "qk/graph/files/json_cursor.hpp"
#include "qk/graph/model/model.hpp"
#include "qk/graph/plan/accumulators.hpp"
#include "qk/graph/plan/plan.hpp"
#include "qk/graph/plan/requests.hpp"
#include "qk/graph/quantize/choices.hpp"
#include "qk/graph/quantize/planner.hpp"

namespace qk::graph {

/// What a file given to --plan holds: a saved plan, or requests and options (those that it sets).
struct plan_file {
    std::optional<precision_plan> plan;
    std::vector<request> requests;
    std::vector<accumulator_request> accumulators;  ///< what multiplies: for an evaluation
    std::vector<choice_request> choices;            ///< entries with lists: for searches
    std::optional<placement> where;
    std::optional<approach> how;
    std::optional<bool> dual, strict, per_channel, correct_bias;
    std::optional<range_method> method;
    bool best_method = false;
    std::optional<double> percentile;
    std::optional<target_profile> target;
    std::optional<weight_rounding> rounding;
    std::optional<channel_scaling> scaling;
    std::optional<stream_rotation> rotation;

    /// Puts what the file sets into options.
    void fill(quantize_options& options) const;
};

/// Saved plans, requests files, and AIMET encodings of version 1.0.0 (told apart by their keys).
plan_file load_plan_file(const std::filesystem::path& file);
plan_file parse_plan_file(std::string_view text, const std::string& label);

nlohmann::ordered_json to_json(const quantizer& q);
nlohmann::ordered_json to_json(const precision_plan& plan);
nlohmann::ordered_json to_json(const quantize_report& report);
quantizer read_quantizer(const json_cursor& c);
/// A format string, or an object with "format" and options.
precision read_precision(const json_cursor& c);
/// A name of semantics, or {"base": NAME, "rounding": ..., ...}.
qk::semantics read_semantics(const json_cursor& c);
nlohmann::ordered_json to_json(const qk::semantics& s);

void save_plan(const precision_plan& plan, const std::filesystem::path& file);

/// Error if the plan names tensors or edges that the model lacks, or scales that do not fit a constant's shape.
void check_plan(const precision_plan& plan, const model& m, const std::string& label);

target_profile load_target(const std::filesystem::path& file);
target_profile read_target(const json_cursor& c);
/// "onnxruntime": what stock onnxruntime 1.31 has on the CPU (profiles/onnxruntime.json is the same as a file); nullopt: not a built-in
/// name.
std::optional<target_profile> builtin_target(std::string_view name);

const char* name_of(placement p);
const char* name_of(approach a);
const char* name_of(weight_rounding r);
placement parse_placement(std::string_view name);  ///< error listing the names
approach parse_approach(std::string_view name);
weight_rounding parse_weight_rounding(std::string_view name);
stream_rotation parse_stream_rotation(std::string_view name);

/// The names of the calibration methods, as files and options spell them, then `more`.
std::vector<std::string> range_method_names(const std::vector<std::string>& more = {});

}  // namespace qk::graph
