// SPDX-License-Identifier: Apache-2.0
// Finds which layer can bear which format: sensitivities, and the search for a mix. Calibration is the caller's.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "qk/graph/evaluate/evaluator.hpp"
#include "qk/graph/plan/requests.hpp"
#include "qk/graph/quantize/choices.hpp"
#include "qk/graph/quantize/plan_file.hpp"
#include "qk/graph/quantize/planner.hpp"
#include "qk/graph/search/mixture.hpp"
#include "qk/graph/search/rounded_weights.hpp"
#include "qk/graph/search/scorer.hpp"
#include "qk/graph/search/trials.hpp"

namespace qk::graph {

/// What the cost of a mix counts.
enum class cost_kind : std::uint8_t {
    automatic,       ///< size where the options' weights differ in bits, else bit operations
    size,            ///< stored bytes of the model's weights
    bit_operations,  ///< multiply-accumulates * bits * bits, for one sample
    latency,         ///< costs from a user's table
};
const char* name_of(cost_kind k);

/// A parsed "ACTIVATION/WEIGHT". Each side is a format and, behind each '@', how it is used (quantize/choices.hpp). Parsing throws an error
/// that says what is wrong.
struct format_pair {
    precision activation, weight;
    weight_rounding rounding = weight_rounding::nearest;
    friend bool operator==(const format_pair&, const format_pair&) = default;
};
format_pair parse_format_pair(const std::string& text);

/// Options that sensitivity and search share: which layers, which formats, and how they are measured.
struct mix_options {
    std::string wide = "int16/int8";                  ///< ACTIVATION/WEIGHT
    std::vector<std::string> narrow = {"int8/int8"};  ///< each ACTIVATION/WEIGHT with alternatives: "int8@min_max|entropy/int8" are two
    std::vector<choice_request> choices;              ///< narrow options that some layers get instead
    bool per_channel = true;
    std::optional<weight_rounding> narrow_rounding{};  ///< of weights below 8 bits whose choice says nothing of it
    bool pair_safe = false;                            ///< int8 weights of searched layers become pair-safe (quantize/pair_safe.hpp)
    std::vector<std::string> op_types;                 ///< only layers of these types; empty: all layers
    std::vector<std::string> layers;                   ///< only these names or globs; empty: all
    std::vector<std::string> exclude;                  ///< layers that stay wide
    std::vector<request> fixed;                        ///< requests that hold in every mix (a --plan of requests)
    precision_plan fixed_plan;                         ///< quantizers that hold in every mix (a saved plan)
    std::optional<tolerable_loss> criterion;           ///< a requests file's goal: for a search without a target of its own
    std::vector<std::string> remarks;                  ///< remarks about these options; results begin with them
    quantize_options quantize;                         ///< calibration method (best: chosen by measuring), target profile, ...
    named_tensors rounding_samples;                    ///< samples for learned or compensated rounding; empty: the inputs
    named_tensors pair_samples;                ///< a few that say what layers with pair-safe weights read; empty: those for rounding
    std::shared_ptr<rounded_weights> rounded;  ///< gets the weights not rounded to nearest, for writing a trial's model
    score_options scoring;
    bool baseline_wide = false;  ///< the reference is the wide model's outputs instead of float's
    cost_kind cost = cost_kind::automatic;
    std::filesystem::path latency_table;
};

/// Sensitivity of one layer at one option, all others at the base.
struct sensitivity_row {
    std::string layer, op_type, option;
    mixture::part part = mixture::part::both;
    double metric = 0;          ///< metric of the model with this change alone
    double harm = 0;            ///< how much worse the metric is than the base's
    double error = 0;           ///< mean squared error of the output
    double added = 0;           ///< `error` less the base's; below 0 where errors cancel
    double saving = 0;          ///< cost saved
    std::size_t position = 0;   ///< place of the layer among those searched, in network order
    double standard_error = 0;  ///< standard error of an estimated `error`; 0 where measured
    bool measured = true;       ///< false: estimated from gradients (estimated.hpp)
};
struct sensitivity_result {
    std::string metric_name, cost_unit;
    double base_metric = 0;  ///< metric of the base: all wide, or all at the first narrow option (widening)
    double base_error = 0;   ///< mean squared error of the base's output
    bool widened = false;
    std::vector<sensitivity_row> rows;           ///< least harm first
    std::map<std::string, std::string> modules;  ///< by layer: the module of torch, where it has another name
    double seconds = 0;
    session_statistics statistics;
    std::vector<std::string> remarks;
};

struct search_options : mix_options {
    std::string strategy = "greedy";
    std::string direction = "narrow";   ///< greedy: narrow or widen
    std::string ranking = "auto";       ///< how moves from the wide model are ranked: measured, gradient, or auto: the cheaper of the two
    std::optional<double> target;       ///< value that the metric must reach
    std::optional<double> target_drop;  ///< by how much the metric may be worse than the reference's
    std::optional<double> target_relative;  ///< the same as a multiple of the magnitude of the reference's
    std::optional<double> budget;           ///< largest cost, in the cost's unit
    std::optional<double> budget_ratio;     ///< largest cost, as a share of the wide model's
    std::optional<double> wide_share;       ///< share of searched layers that stay wide, exactly (rounded)
    search_limits limits;
    std::uint64_t seed = 0;
    std::filesystem::path cache;
    std::function<void(std::size_t trials, const trial& best)> on_trial;
};

struct search_result {
    std::string status;
    bool target_met = false;
    std::string strategy, metric_name, cost_unit;
    double metric = 0;             ///< metric of the chosen mix
    double baseline_metric = 0;    ///< metric with every searched layer wide
    double float_metric = 0;       ///< metric of the reference outputs themselves: drops count from it
    std::optional<double> target;  ///< as a value of the metric
    double cost = 0, wide_cost = 0, float_cost = 0;
    double seconds = 0;
    std::size_t evaluations = 0, layer_evaluations = 0, naive_layer_evaluations = 0, cached = 0, peak_bytes = 0, samples = 0;
    search_space space;
    assignment choice;
    precision_plan plan;
    std::map<std::string, tensor> weights;       ///< by name: weights of the plan that are not rounded to nearest
    std::map<std::string, std::string> modules;  ///< by layer: the module of torch, where it has another name
    std::vector<trial> history, front;
    std::vector<std::string> remarks;
    double sampling_error = 0;                       ///< standard error of an accuracy over this many samples; 0 for other metrics
    std::optional<measured_difference> over_wide{};  ///< of the mix and every layer wide, where the measure takes samples one by one
};

struct option_list;  // options.hpp

/// Everything that sensitivity and search need: a plan for each option, a scorer, costs.
class mix_problem {
  public:
    /// Compensated or learned rounding takes its samples from options.rounding_samples, or from `inputs` if that is empty.
    mix_problem(const model& m, const named_tensors& inputs, const calibration& seen, const mix_options& options);

    const search_space& space() const { return space_; }
    const mixture& mix() const { return *mix_; }
    scorer& score() { return *scorer_; }
    const std::string& cost_unit() const { return cost_unit_; }
    double float_cost() const { return float_cost_; }
    const std::map<std::string, std::string>& modules() const { return modules_; }
    const std::string& op_type(std::size_t layer) const { return op_types_[layer]; }
    const std::vector<std::string>& remarks() const { return remarks_; }
    const rounded_weights& rounded() const { return *rounded_; }
    std::vector<qk::graph::score> evaluate(std::span<const assignment> candidates);
    /// Measures two assignments on the same samples (scorer::compare), or takes what was measured of them.
    std::optional<measured_difference> compare(const assignment& before, const assignment& after);
    /// Returns the key of a cache: identifies model, data, formats, scales and metric.
    std::string key(const named_tensors& inputs) const;

  private:
    quantize_result plan_for(const format_pair& pair, const option_list& all, const mix_options& options, const quantize_options& how);
    void settle_method(const option_list& all, const mix_options& options, quantize_options& how);
    void round_weights(precision_plan& plan, weight_rounding how, const named_tensors& inputs, const mix_options& options);
    bool weights_differ() const;
    void measure_costs(const layer_view& layers, const calibration& seen, const mix_options& options);
    void remember_fixed(const mix_options& options, const std::vector<std::vector<plan_note>>& of_options);
    const model* model_;
    planner plans_;
    std::vector<std::string> searched_;
    std::shared_ptr<rounded_weights> rounded_;
    std::optional<mixture> mix_;
    std::optional<scorer> scorer_;
    std::map<assignment, std::vector<metric_terms>> terms_;  // of what was measured, as far as 64 MiB go
    search_space space_;
    std::vector<std::string> op_types_;           // by searched layer
    std::map<std::string, std::string> modules_;  // of torch, by searched layer, where they have another name
    std::vector<std::string> remarks_;
    std::string cost_unit_;
    double float_cost_ = 0;
};

/// Measures each layer (and its weights alone, its activations alone) narrowed alone from the wide model; with `widen` each widened alone
/// from the model that is narrow everywhere.
sensitivity_result measure_sensitivity(const model& m, const named_tensors& inputs, const calibration& seen, const mix_options& options,
                                       bool widen = false);

/// Runs the whole search. The wide model is always measured, so there is always a result; `status` says how the search ended.
search_result search(const model& m, const named_tensors& inputs, const calibration& seen, const search_options& options);

}  // namespace qk::graph
