// SPDX-License-Identifier: Apache-2.0
// Estimates sensitivities from gradients: a few backward passes give every layer under every option, instead of an evaluation for each.
#pragma once

#include "graph/gradient/estimate.hpp"
#include "qk/graph/search/search.hpp"

namespace qk::graph {

enum class sensitivity_method : std::uint8_t {
    measured,   ///< one evaluation for each row
    gradient,   ///< all rows estimated; only rows behind an operator without a gradient are measured
    automatic,  ///< estimated; rows whose errors are too large to be linear are measured
};

struct estimation_options {
    sensitivity_method method = sensitivity_method::automatic;
    int passes = 0;          ///< backward passes per sample; 0: chosen (estimate.hpp)
    std::uint64_t seed = 0;  ///< seed of the random vectors
};

/// Returns why nothing can be estimated for these options, as the start of a sentence; empty if it can. An order of layers by the squared
/// error of the output (`only_order`) can be had for every metric.
std::string why_not_estimated(const named_tensors& inputs, const mix_options& options, bool only_order = false);

/// Returns the rows of measure_sensitivity with `error` and `metric` estimated. l2, mse, sqnr, psnr come from the squared error of the
/// output; kl and loss from the divergence that the Fisher form of the loss gives. For top1, top5, agreement and cosine `metric` is NaN
/// where nothing was measured, and `harm` is the divergence (for cosine the squared error), which ranks the rows. A user's metric cannot be
/// estimated: `gradient` throws, `automatic` measures.
sensitivity_result estimate_sensitivity(const model& m, const named_tensors& inputs, const calibration& seen, const mix_options& options,
                                        bool widen = false, const estimation_options& how = {});

/// Estimates for each of `plans`, by plan; the members mean what they mean in a sensitivity_row.
struct estimated_harms {
    std::vector<double> added, standard_error, error, metric, harm;
    std::vector<char> unknown;  ///< 1: no estimate for the plan (change_estimates)
    double power = 0;           ///< mean square of the float output
};

/// Estimates what `plans` do to `base`, whose measured score is `start`. With `widen` a plan's change removes error instead of adding it.
estimated_harms estimate_harms(const metric& measure, const model& m, const named_tensors& inputs, const precision_plan& base,
                               const plan_list& plans, const score& start, estimate_options options, bool widen = false);

}  // namespace qk::graph
