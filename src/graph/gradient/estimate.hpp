// SPDX-License-Identifier: Apache-2.0
// Estimates what changes of a plan do to an output, for many plans at once from a few backward passes. docs/guide/gradients.md, Estimates.
//
// Let e be the error that a quantizer puts into a value and g = J'v the gradient of the sum of v * y there: then <g, e> = <v, J e>. Over n
// orthonormal vectors v, as many as the output has values, the squares add up to |J e|^2, the squared error of the output, exactly; over K
// random ones n / K times their sum is an estimate of it.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "qk/graph/evaluate/evaluator.hpp"
#include "qk/graph/model/model.hpp"
#include "qk/graph/plan/plan.hpp"

namespace qk::graph {

/// Which error of an output is estimated.
enum class estimated_form : std::uint8_t {
    squared_error,  ///< mean square of what the change adds to the output's values
    divergence,     ///< half the squared error in the metric of Fisher, which is the Kullback-Leibler divergence for small errors
};

/// Returns the values that a constant has, before quantization, under this quantizer in place of the model's own; nullptr: its own.
using values_under = std::function<const tensor*(const std::string& constant, const quantizer& how)>;

struct estimate_options {
    int threads = 0;
    int output_index = 0;
    int passes = 0;  ///< vectors per sample, at most the number of output values; 0: as many as make 200 over all samples
    std::uint64_t seed = 0;
    estimated_form form = estimated_form::squared_error;
    std::size_t memory = 0;  ///< as in gradient_options
    values_under rounded{};  ///< weights that a plan rounds other than to nearest (rounded_weights); errors are those of these values
};

struct change_estimates {
    std::vector<double> added;  ///< by plan: the estimate, mean over samples
    std::vector<double>
        standard_error;  ///< of `added`, from the choice of vectors; 0 if all are used. It leaves out errors of linearization
    std::vector<char>
        unknown;       ///< by plan: it changes values that reach the output through an operator without a product; `added` says nothing
    double power = 0;  ///< mean square of the float output's values
    std::size_t samples = 0, values = 0;  ///< values of the output of one run: one sample, unless samples mix
    int passes = 0;
    double seconds = 0;
};

/// Estimates for each of `plans` how the output changes from what it is under `base`; errors are taken at the float model's values. The
/// work grows with the number of different quantizers, not of plans. The bits are the same for any number of threads. Throws error for data
/// that does not fit.
change_estimates estimate_changes(const model& m, const named_tensors& inputs, const precision_plan& base,
                                  std::span<const precision_plan> plans, const estimate_options& options = {});

/// Makes the plans one after the other, so that thousands of plans of a large model are never in memory at once.
struct plan_list {
    std::size_t count = 0;
    std::function<precision_plan(std::size_t)> plan;
};
change_estimates estimate_changes(const model& m, const named_tensors& inputs, const precision_plan& base, const plan_list& plans,
                                  const estimate_options& options = {});

}  // namespace qk::graph
