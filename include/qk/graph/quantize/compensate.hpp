// SPDX-License-Identifier: Apache-2.0
// Compensated rounding of weights: they are rounded one after another, and the weights of the same output that are not yet rounded move so
// that the layer's output stays. Optimal brain quantization (Frantar, Alistarh 2022) in the order and form of GPTQ (Frantar et al. 2022):
//
//   (1) H = sum of x x^T over everything that the layer reads in the calibration samples (float32 model), plus 1 % of its mean diagonal;
//   (2) U^T U = H^-1, U upper triangular, columns in descending order of H's diagonal;
//   (3) a block b of columns is rounded by the plan's own quantizer, with error E = W_b - Q_b; the columns r behind it become W_r - E
//   U_bb^-1 U_br.
//
// A block is one column, or a block of a block format. The plan does not change: its scales are those of the float weights.
// Nothing is learned and no random numbers are used: it is linear algebra, with the same bits for any number of threads.
#pragma once

#include <string>
#include <vector>

#include "qk/graph/evaluate/evaluator.hpp"
#include "qk/graph/quantize/planner.hpp"

namespace qk::graph {

struct compensate_options {
    int threads = 0;                              ///< 0: one per core
    std::size_t memory = std::size_t{512} << 20;  ///< bytes for the matrices (1); if they do not fit, more passes are made over the samples
    std::size_t columns = 2048;                   ///< most columns that are compensated together; longer rows are cut into runs
    run_limits limits{};
};

struct compensated_weight {
    std::string layer, weight;
    std::string left;                     ///< why compensation is impossible and the weights are rounded to nearest; else empty
    double nearest = 0, compensated = 0;  ///< SQNR of the layer's output in decibels, by H: over the samples, with inputs in float32
    bool only_weighed = false;            ///< by weigh_scales: nothing is known of the layer's output
    double weight_sqnr = 0;               ///< SQNR of the weights themselves in decibels: lower than for rounding to nearest
};

/// Replaces the weights of Conv, Gemm and MatMul that `plan` narrows below 16 bits with values that its quantizers leave unchanged. Changes
/// nothing where (3) is no better than rounding to nearest, by H. The results are in the order of the nodes.
std::vector<compensated_weight> compensate_rounding(model& m, const precision_plan& plan, const named_tensors& samples,
                                                    const compensate_options& options = {}, const progress& report = {});

/// Does the plan search scales by scale_objective::weighted? weigh_scales replaces these layers' weights with what such a search rounds
/// them to, each column weighted by the sum of squares that it is multiplied with in the samples. The plan's quantizers leave the results
/// unchanged: a scale that costs nothing is found without weights, too.
bool weighs_scales(const model& m, const precision_plan& plan);
std::vector<compensated_weight> weigh_scales(model& m, const precision_plan& plan, const named_tensors& samples,
                                             const compensate_options& options = {}, const progress& report = {});

/// Adds to a report the error of each weight, and a note for each weight that was left.
void add_to(quantize_report& report, const std::vector<compensated_weight>& done);

}  // namespace qk::graph
