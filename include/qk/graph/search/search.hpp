// SPDX-License-Identifier: Apache-2.0
// Which layer can bear which format: sensitivities, and the search for a mix. One call does calibration, search and final check.
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
#include "qk/graph/quantize/planner.hpp"
#include "qk/graph/search/mixture.hpp"
#include "qk/graph/search/rounded_weights.hpp"
#include "qk/graph/search/scorer.hpp"
#include "qk/graph/search/trials.hpp"

namespace qk::graph {

/// What a cost counts.
enum class cost_kind : std::uint8_t {
    automatic,       ///< size where the options' weights differ in bits, else bit operations
    size,            ///< stored bytes of the model's weights
    bit_operations,  ///< multiply-accumulates * bits * bits, for one sample
    latency,         ///< a user's table
};
const char* name_of(cost_kind k);

/// "ACTIVATION/WEIGHT"; either side a format and, behind each '@', how it is used (quantize/choices.hpp). Error naming what is wrong.
struct format_pair {
    precision activation, weight;
    weight_rounding rounding = weight_rounding::nearest;
    friend bool operator==(const format_pair&, const format_pair&) = default;
};
format_pair parse_format_pair(const std::string& text);

/// What sensitivity and search have in common: which layers, which formats, measured how.
struct mix_options {
    std::string wide = "int16/int8";                  ///< ACTIVATION/WEIGHT
    std::vector<std::string> narrow = {"int8/int8"};  ///< likewise, with alternatives: "int8@min_max|entropy/int8" are two
    std::vector<choice_request> choices;              ///< narrow ones that some layers have instead
    bool per_channel = false;
    std::vector<std::string> op_types;  ///< only layers of these types; empty: all compute layers
    std::vector<std::string> layers;    ///< only these names or globs; empty: all
    std::vector<std::string> exclude;   ///< these stay wide
    std::vector<request> fixed;         ///< hold whatever the mix (a --plan of requests)
    precision_plan fixed_plan;          ///< likewise (a saved plan)
    std::vector<std::string> remarks;   ///< what there is to say of these; results open with it
    quantize_options quantize;          ///< calibration method (best: chosen by measuring), target profile, ...
    named_tensors rounding_samples;     ///< that rounding of weights looks at; empty: the inputs
    std::shared_ptr<rounded_weights>
        rounded;  ///< gets weights that were rounded otherwise than to nearest, for whoever writes the model of a trial
    score_options scoring;
    bool baseline_wide = false;  ///< scores count from the wide model's outputs instead of float's
    cost_kind cost = cost_kind::automatic;
    std::filesystem::path latency_table;
};

/// One layer at one option, alone.
struct sensitivity_row {
    std::string layer, op_type, option;
    mixture::part part = mixture::part::both;
    double metric = 0;          ///< of the model with this change alone
    double harm = 0;            ///< how much worse than the base
    double error = 0;           ///< mean squared error of the output
    double added = 0;           ///< what this change alone adds to that error: `error` less the base's. Below 0 where errors cancel
    double saving = 0;          ///< of cost
    std::size_t position = 0;   ///< of the layer, among those searched, in network order
    double standard_error = 0;  ///< of an estimated `error`; 0 where it was measured
    bool measured = true;       ///< false: estimated from gradients (estimated.hpp)
};
struct sensitivity_result {
    std::string metric_name, cost_unit;
    double base_metric = 0;  ///< all wide (narrowing) or all at the first narrow option (widening)
    double base_error = 0;   ///< mean squared error of the output, likewise
    bool widened = false;
    std::vector<sensitivity_row> rows;  ///< least harm first
    double seconds = 0;
    session_statistics statistics;
    std::vector<std::string> remarks;
};

struct search_options : mix_options {
    std::string strategy = "greedy";
    std::string direction = "narrow";    ///< greedy: narrow or widen
    std::string ranking = "auto";        ///< of single moves from the wide model: measured, gradient, or auto: the cheaper of the two
    std::optional<double> target;        ///< of the metric
    std::optional<double> target_drop;   ///< of an accuracy: the largest drop from the baseline's, as a fraction
    std::optional<double> budget;        ///< largest cost, in the cost's unit
    std::optional<double> budget_ratio;  ///< largest cost, as a share of the wide model's
    std::optional<double> wide_share;    ///< share of searched layers that stay wide, exactly (rounded)
    search_limits limits;
    std::uint64_t seed = 0;
    std::filesystem::path cache;
    std::function<void(std::size_t trials, const trial& best)> on_trial;
};

struct search_result {
    std::string status;
    bool target_met = false;
    std::string strategy, metric_name, cost_unit;
    double metric = 0;             ///< of the chosen mix
    double baseline_metric = 0;    ///< of the model with every searched layer wide
    double float_metric = 0;       ///< of the reference outputs themselves
    std::optional<double> target;  ///< as a value of the metric
    double cost = 0, wide_cost = 0, float_cost = 0;
    double seconds = 0;
    std::size_t evaluations = 0, layer_evaluations = 0, naive_layer_evaluations = 0, cached = 0, peak_bytes = 0, samples = 0;
    search_space space;
    assignment choice;
    precision_plan plan;
    std::map<std::string, tensor>
        weights;  ///< that go with the plan, by name: those of layers whose choice is a rounding other than to nearest
    std::vector<trial> history, front;
    std::vector<std::string> remarks;
    double sampling_error = 0;  ///< one standard error of an accuracy over this many samples; 0 for other metrics
};

struct option_list;  // options.hpp

/// Everything that both need, prepared: plans for each option, a scorer, costs.
class mix_problem {
  public:
    /// Compensated rounding needs samples: `inputs`, or options.rounding_samples.
    mix_problem(const model& m, const named_tensors& inputs, const calibration& seen, const mix_options& options);

    const search_space& space() const { return space_; }
    const mixture& mix() const { return *mix_; }
    scorer& score() { return *scorer_; }
    const std::string& cost_unit() const { return cost_unit_; }
    double float_cost() const { return float_cost_; }
    const std::string& op_type(std::size_t layer) const { return op_types_[layer]; }
    const std::vector<std::string>& remarks() const { return remarks_; }
    const rounded_weights& rounded() const { return *rounded_; }
    std::vector<qk::graph::score> evaluate(std::span<const assignment> candidates);
    /// Identifies model, data, formats, scales and metric: what a cache is keyed with.
    std::string key(const named_tensors& inputs) const;

  private:
    quantize_result plan_for(const format_pair& pair, const option_list& all, const mix_options& options, const quantize_options& how);
    void settle_method(const option_list& all, const mix_options& options, quantize_options& how);
    void round_weights(precision_plan& plan, weight_rounding how, const named_tensors& inputs, const mix_options& options);
    bool weights_differ() const;
    void measure_costs(const layer_view& layers, const calibration& seen, const mix_options& options);
    void remember_fixed(const std::vector<request>& fixed, const quantize_report& report);
    const model* model_;
    planner plans_;
    std::vector<std::string> searched_;
    std::shared_ptr<rounded_weights> rounded_;
    std::optional<mixture> mix_;
    std::optional<scorer> scorer_;
    search_space space_;
    std::vector<std::string> op_types_;  // by searched layer
    std::vector<std::string> remarks_;
    std::string cost_unit_;
    double float_cost_ = 0;
};

/// Each layer (and its weights alone, its activations alone) narrowed alone from the wide model; with `widen` each widened alone from the
/// model that is narrow everywhere.
sensitivity_result measure_sensitivity(const model& m, const named_tensors& inputs, const calibration& seen, const mix_options& options,
                                       bool widen = false);

/// The whole search. Never returns less than the wide model; status says how it ended.
search_result search(const model& m, const named_tensors& inputs, const calibration& seen, const search_options& options);

}  // namespace qk::graph
