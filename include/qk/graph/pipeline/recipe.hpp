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
    fast,      ///< formats and options as they are
    balanced,  ///< the steps that usually pay are tried on samples that nothing learned from; what gains more than chance may is kept
    best,      ///< so are all steps, and all ways of each
};
const char* name_of(recipe r);
std::vector<std::string> recipe_names();
recipe parse_recipe(std::string_view name);  ///< throws an error that lists the names

/// A way to quantize that was tried, and what the output was worth on samples that it did not learn from.
struct recipe_trial {
    std::string step;   ///< "as asked", "ranges by mse", ...
    double sqnr = 0;    ///< decibels
    double gain = 0;    ///< decibels by which a sample's error fell below what was best before, in the mean over the samples
    double chance = 0;  ///< what chance may gain: the step is kept where it gains more
    std::optional<double> top1{};
    bool kept = false;
    std::string failed{};  ///< why it could not be tried
};

/// What a recipe did, and why it was that recipe.
struct recipe_report {
    recipe how = recipe::fast;
    std::string why;                   ///< where the user named none, or named one that has nothing to do
    std::vector<std::string> steps{};  ///< what was done beyond what was asked
    std::vector<recipe_trial> trials{};
    std::optional<file_quality> quality{};  ///< of what was kept
    std::string not_measured{};             ///< why there is none although samples are given

    /// Returns "recipe balanced (samples are given): calibration method by measurement, bias correction".
    std::string text() const;
};
nlohmann::ordered_json to_json(const recipe_report& r);

/// Chooses the recipe. `asked` "" means balanced where samples are given and fast elsewhere. Throws if a recipe that needs samples is asked
/// for without them.
recipe_report choose_recipe(const std::string& asked, const data_settings& data, const asked_precision& precision);

/// Adds a recipe to a search: the calibration method, and with `may_change` how weights below 8 bits are rounded (balanced: with
/// compensation, best: AdaRound) and, for best, the scaling of channels. A remark says so.
void add_recipe(mix_options& options, const mix_settings& settings, const model& m, bool may_change);

/// Makes the plan as make_plan() does, by the recipe, and measures it. `may_change` false leaves out steps that change weights or biases.
quantize_result make_plan_by(recipe_report& report, model& m, const data_settings& data, asked_precision asked, bool may_change,
                             calibration* seen, bool full, const progress_function& progress = {});

}  // namespace qk::graph::pipeline
