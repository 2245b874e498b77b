// SPDX-License-Identifier: Apache-2.0
// Precision as a person asks for it: formats in words, a plan file, how ranges and scales are chosen.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "qk/graph/model/model.hpp"
#include "qk/graph/plan/accumulators.hpp"
#include "qk/graph/quantize/choices.hpp"
#include "qk/graph/quantize/planner.hpp"

namespace qk::graph::pipeline {

/// Requests of the plan file, then of `activation` and `weight` as the default.
struct asked_precision {
    std::vector<request> requests;
    quantize_options options;
    std::optional<precision_plan> saved;    ///< the plan itself, when the plan file is one
    std::string file{};                     ///< the plan file's name
    std::vector<plan_note> notes{};         ///< of a saved plan: names that led elsewhere
    std::vector<choice_request> choices{};  ///< what a search may choose from; other calls refuse it
    layer_accumulators accumulators{};      ///< what multiplies the layers that the requests file says it of
    int iterations = 0;                     ///< of weights that learn their rounding, for each layer; 0: learn_options' own
    std::uint64_t seed = 0;                 ///< likewise

    /// Whether a model with the plan has other weights or biases than it had: they are not rounded to nearest, or biases are corrected.
    bool changes_weights() const;
};

/// Each member is an option of the command of the same name; empty: not given.
struct precision_settings {
    std::string activation, weight, bias;
    std::string plan;    ///< requests file, saved plan or AIMET encodings
    std::string target;  ///< profile, or the name of a built-in one
    std::string method;  ///< --calibration-method
    std::string placement, approach, semantics, rounding, pow2, weight_rounding, kv_cache;
    std::string smooth_quant, awq;  ///< "search", or alpha from 0 to 1
    std::string rotation;           ///< none or hadamard
    double percentile = 0;
    int weight_block = 0;
    int iterations = 0;      ///< of adaround and adaquant, for each layer; 0: as many as they take by themselves
    std::uint64_t seed = 0;  ///< of adaround and adaquant
    bool bias_correction = false;
    bool per_channel = false, symmetric = false, asymmetric_weights = false, reduce_range = false, dual = false, strict = false;

    /// Whether anything asks for a precision at all.
    bool any() const { return !activation.empty() || !weight.empty() || !bias.empty() || !plan.empty() || !kv_cache.empty(); }

    /// Throws for names that mean nothing.
    asked_precision read(const model& m) const;
};

/// The words of `pow2`.
std::vector<std::string> pow2_rule_names();

}  // namespace qk::graph::pipeline
