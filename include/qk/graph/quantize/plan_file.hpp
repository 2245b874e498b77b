// SPDX-License-Identifier: Apache-2.0
// Reads and writes requests files, saved plans and target profiles as JSON. Errors name line and path. The schema is docs/guide/plan.md.
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

/// How much worse than the reference's a metric may be: the goal of a search.
struct tolerable_loss {
    double value = 0;
    bool relative = false;  ///< a multiple of the reference's magnitude, else a difference
    std::string origin{};
};

/// What a file given to --plan holds: a saved plan, or requests and options (those that it sets).
struct plan_file {
    std::optional<precision_plan> plan;
    std::vector<request> requests;
    std::vector<accumulator_request> accumulators;  ///< units that multiply layers: for evaluations
    std::vector<choice_request> choices;            ///< entries with lists: for searches
    std::optional<placement> where;
    std::optional<approach> how;
    std::optional<bool> dual, strict, strict_all, per_channel, correct_bias;
    std::optional<range_method> method, weight_method;
    std::optional<qk::scale_rule> scale_rule;
    std::optional<qk::scale_objective> scale_objective;
    bool best_method = false;
    std::optional<double> percentile;
    std::optional<target_profile> target;
    std::optional<weight_rounding> rounding;
    std::optional<channel_scaling> scaling;
    std::optional<stream_rotation> rotation;
    std::optional<tolerable_loss> criterion;  ///< for searches

    /// Copies what the file sets into `options`.
    void fill(quantize_options& options) const;
};

/// Loads a saved plan, a requests file, or AIMET encodings of version 1.0.0; their keys tell them apart.
plan_file load_plan_file(const std::filesystem::path& file);
plan_file parse_plan_file(std::string_view text, const std::string& label);

nlohmann::ordered_json to_json(const quantizer& q);
nlohmann::ordered_json to_json(const precision_plan& plan);
nlohmann::ordered_json to_json(const quantize_report& report);
quantizer read_quantizer(const json_cursor& c);
/// Reads FORMAT[@WORD...], the words being those for weights or for activations, or an object with "format" and options.
precision read_precision(const json_cursor& c, bool weight = false);
/// Reads a name of semantics, or {"base": NAME, "rounding": ..., ...}.
qk::semantics read_semantics(const json_cursor& c);
nlohmann::ordered_json to_json(const qk::semantics& s);

void save_plan(const precision_plan& plan, const std::filesystem::path& file);

/// Throws if the plan names tensors, layers or edges that the model lacks, or has per-channel scales that do not fit a constant's shape.
void check_plan(const precision_plan& plan, const model& m, const std::string& label);

target_profile load_target(const std::filesystem::path& file);
target_profile read_target(const json_cursor& c);
/// Returns a built-in profile (builtin_target_names), or nullopt for any other name. "onnxruntime" is what stock onnxruntime 1.31 has on
/// the CPU (profiles/onnxruntime.json is the same as a file).
std::optional<target_profile> builtin_target(std::string_view name);

const char* name_of(placement p);
const char* name_of(approach a);
const char* name_of(weight_rounding r);
placement parse_placement(std::string_view name);  ///< throws an error that lists the names
approach parse_approach(std::string_view name);
weight_rounding parse_weight_rounding(std::string_view name);
stream_rotation parse_stream_rotation(std::string_view name);
range_method parse_weight_method(std::string_view name);  ///< min_max or mse

/// Returns the names of the calibration methods as files and options spell them, then `more`.
std::vector<std::string> range_method_names(const std::vector<std::string>& more = {});

}  // namespace qk::graph
