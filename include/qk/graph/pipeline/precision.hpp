// SPDX-License-Identifier: Apache-2.0
// Precision as a user asks for it: formats as text, a plan file, how ranges and scales are chosen.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "qk/graph/model/model.hpp"
#include "qk/graph/pipeline/data.hpp"
#include "qk/graph/plan/accumulators.hpp"
#include "qk/graph/quantize/choices.hpp"
#include "qk/graph/quantize/plan_file.hpp"
#include "qk/graph/quantize/planner.hpp"

namespace qk::graph::pipeline {

/// The requests of the plan file, then those of `activation`, `weight`, `bias` and `kv_cache`.
struct asked_precision {
    std::vector<request> requests;
    quantize_options options;
    std::optional<precision_plan> saved;        ///< the plan itself, when the plan file is one
    std::string file{};                         ///< the plan file's name
    std::vector<plan_note> notes{};             ///< for a saved plan: names that stand for something else now
    std::vector<choice_request> choices{};      ///< what a search may choose from; an error in other calls
    std::optional<tolerable_loss> criterion{};  ///< goal of a search; an error in calls that search nothing
    layer_accumulators accumulators{};          ///< accumulators of the layers for which the requests file names one
    int iterations = 0;                         ///< per layer, for weights that learn their rounding; 0: learn_options' own
    std::uint64_t seed = 0;                     ///< for weights that learn their rounding
    bool pair_safe = true;                      ///< int8 weights become pair-safe unless the target says otherwise (quantize/pair_safe.hpp)
    bool keeps_changes = false;                 ///< the plan gets what else changes in the model, as one that is saved needs it
    std::vector<plan_note> unused{};            ///< options without effect, and that the model is quantized already

    /// What the user said, so that no recipe says otherwise (recipe.hpp).
    struct {
        bool method = false, rounding = false, bias = false, scaling = false;
    } by_hand{};
    // What a recipe adds. Layers for which a step of it is impossible are no remark.
    std::optional<weight_rounding> narrow_rounding{};  ///< of weights below 8 bits
    bool quiet_bias = false;                           ///< a recipe corrects biases
    step_limits limits{};
    const calibration* statistics = nullptr;  ///< what calibrate_for() would gather, or more: it was asked with other methods before

    /// Is true when the plan changes weights or biases: weights are not rounded to nearest, or biases are corrected.
    bool changes_weights() const;
};

/// Each member is the command's option of the same name; empty: not given.
struct precision_settings {
    std::string activation, weight, bias;
    plan_source plan;    ///< requests file, saved plan or AIMET encodings
    std::string target;  ///< profile file, or the name of a built-in profile
    std::string method;  ///< --calibration-method
    std::string placement, approach, semantics, rounding, scale_rule, scale_objective, pow2, weight_rounding, weight_method, kv_cache;
    std::string smooth_quant, awq;  ///< "search", or alpha from 0 to 1
    std::string rotation;           ///< none or hadamard
    double percentile = 0;
    int weight_block = 0;
    int iterations = 0;      ///< of adaround and adaquant, per layer; 0: their default
    std::uint64_t seed = 0;  ///< of adaround and adaquant
    bool bias_correction = false;
    bool floor_scales = false;  ///< MX rules that nobody names are floor: the operators that are written know no other
    bool per_channel = false, per_tensor = false, symmetric = false, asymmetric_weights = false, reduce_range = false, dual = false;
    std::string strict;  ///< requests, or all: requests that a later one overrides are errors, too
    std::string recipe;  ///< fast, balanced or best; of the verbs that have --recipe

    /// Is true when anything asks for a precision.
    bool any() const {
        return !activation.empty() || !weight.empty() || !bias.empty() || !plan.empty() || !kv_cache.empty() || !target.empty();
    }

    /// Reads the texts and the plan file. Throws for unknown names. A search (`searches`) has its formats from elsewhere.
    asked_precision read(const model& m, bool searches = false) const;
};

/// Returns the words that `pow2` may be.
std::vector<std::string> pow2_rule_names();

}  // namespace qk::graph::pipeline
