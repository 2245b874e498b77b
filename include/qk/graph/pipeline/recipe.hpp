// SPDX-License-Identifier: Apache-2.0
// Recipes: what a practitioner does beyond choosing formats, in the time that is given. Each is some rows of one table of steps; an option
// that the user gave stays as it is. docs/guide/recipes.md.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "qk/graph/pipeline/file_quality.hpp"
#include "qk/graph/pipeline/mix.hpp"
#include "qk/graph/pipeline/plan.hpp"

namespace qk::graph::pipeline {

enum class recipe : std::uint8_t {
    fast,      ///< formats and options as they are: one pass over the samples
    balanced,  ///< every step that usually pays, once
    best,      ///< steps are tried one after the other on samples that nothing learned from; what measures best is kept
};
const char* name_of(recipe r);
std::vector<std::string> recipe_names();
recipe parse_recipe(std::string_view name);  ///< throws an error that lists the names

/// A way to quantize that `best` tried, and what the output was worth.
struct recipe_trial {
    std::string step;  ///< "as asked", "smooth_quant", ...
    double sqnr = 0;   ///< decibels
    double gain = 0;   ///< over what was best before the step
    std::optional<double> top1{};
    bool kept = false;
};

/// What a recipe did, and why it was that recipe.
struct recipe_report {
    recipe how = recipe::fast;
    std::string why;                   ///< where the user named none, or named one that has nothing to do
    std::vector<std::string> steps{};  ///< what was done beyond what was asked
    std::vector<recipe_trial> trials{};
    std::optional<file_quality> quality{};  ///< of the trial that was kept

    /// Returns "recipe balanced (samples are given): calibration method by measurement, bias correction".
    std::string text() const;
};
nlohmann::ordered_json to_json(const recipe_report& r);

/// Chooses the recipe. `asked` "" means balanced where samples are given and fast elsewhere. Throws if a recipe that needs samples is asked
/// for without them.
recipe_report choose_recipe(const std::string& asked, const data_settings& data, const asked_precision& precision);

/// Adds the steps of `balanced` to what was asked, and names them in the report. `may_change` false leaves out those that change weights or
/// biases: a plan alone does not hold them.
void add_steps(asked_precision& asked, const model& m, bool may_change, recipe_report& report);

/// Adds a recipe to a search: the calibration method, and with `may_change` how weights below 8 bits are rounded (balanced: with
/// compensation, best: AdaRound) and, for best, the scaling of channels. A remark says so.
void add_recipe(mix_options& options, const mix_settings& settings, const model& m, bool may_change);

/// Makes the plan as make_plan() does, by the recipe.
quantize_result make_plan_by(recipe_report& report, model& m, const data_settings& data, asked_precision asked, bool may_change,
                             calibration* seen, bool full, const progress_function& progress = {});

}  // namespace qk::graph::pipeline
