// SPDX-License-Identifier: Apache-2.0
// Sensitivities from gradients: every layer under every option from a few backward passes, in place of an evaluation for each.
#pragma once

#include "qk/graph/gradient/estimate.hpp"
#include "qk/graph/search/search.hpp"

namespace qk::graph {

enum class sensitivity_method : std::uint8_t {
    measured,   ///< one evaluation for each row
    gradient,   ///< all rows estimated, but for those that lie behind an operator that no gradient flows through: they are measured
    automatic,  ///< estimated; rows whose errors are too large to be linear are measured
};

struct estimation_options {
    sensitivity_method method = sensitivity_method::automatic;
    int passes = 0;          ///< backward passes a sample; 0: chosen (estimate.hpp)
    std::uint64_t seed = 0;  ///< of the vectors
};

/// Why nothing can be estimated for these options, as the start of a sentence; empty: it can.
std::string why_not_estimated(const named_tensors& inputs, const mix_options& options);

/// As measure_sensitivity: the same rows, `error` and `metric` estimated. l2, mse, sqnr, psnr come from the squared error of the output;
/// kl and loss from the divergence that the Fisher form of the loss gives. For top1, top5, agreement and cosine `metric` is NaN where
/// nothing was measured, and `harm` is the divergence (of cosine: the squared error), which ranks. A user's metric cannot be estimated:
/// error, unless the method is automatic, which then measures.
sensitivity_result estimate_sensitivity(const model& m, const named_tensors& inputs, const calibration& seen, const mix_options& options,
                                        bool widen = false, const estimation_options& how = {});

/// What is estimated of each of `plans`, by plan; the members are those of a sensitivity_row.
struct estimated_harms {
    std::vector<double> added, standard_error, error, metric, harm;
    std::vector<char> unknown;  ///< nothing is known of the plan (change_estimates)
    double power = 0;           ///< mean square of the float output
};

/// `start`: the score of `base`, measured. `widen`: the plans take off what they change.
estimated_harms estimate_harms(const metric& measure, const model& m, const named_tensors& inputs, const precision_plan& base,
                               const plan_list& plans, const score& start, estimate_options options, bool widen = false);

}  // namespace qk::graph
