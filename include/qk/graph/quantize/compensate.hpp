// SPDX-License-Identifier: Apache-2.0
// Compensated rounding of weights: each is rounded in turn, and those of the same output that are not yet rounded move so that the layer's
// output stays. Optimal brain quantization (Frantar, Alistarh 2022) in the order and form of GPTQ (Frantar et al. 2022):
//
//   (1) H = sum of x x^T over everything that the layer reads in the calibration samples (float32 model), plus 1 % of its mean diagonal;
//   (2) U^T U = H^-1, U upper triangular, columns in descending order of H's diagonal;
//   (3) a block b of columns is rounded by the plan's own quantizer, with error E = W_b - Q_b; the columns r behind it become W_r - E
//   U_bb^-1 U_br.
//
// A block is one column, or a block of a block format. The plan does not change: scales are those of the float weights.
// No learning, no random numbers: linear algebra, the same bits for any number of threads.
#pragma once

#include <string>
#include <vector>

#include "qk/graph/evaluate/evaluator.hpp"
#include "qk/graph/quantize/planner.hpp"

namespace qk::graph {

struct compensate_options {
    int threads = 0;                              ///< 0: one per core
    std::size_t memory = std::size_t{512} << 20;  ///< for matrices (1); more layers than fit take more passes over the samples
    std::size_t columns = 2048;                   ///< longest run that is compensated together; longer rows are cut into runs
    run_limits limits{};
};

struct compensated_weight {
    std::string layer, weight;
    std::string left;                     ///< not empty: rounded to nearest, and why
    double nearest = 0, compensated = 0;  ///< decibels of the layer's output over the samples, by H, its inputs in float32
    double weight_sqnr = 0;               ///< decibels of the weights themselves: less than to nearest
};

/// Replaces the weights of Conv, Gemm and MatMul that `plan` narrows below 16 bits with values that it keeps. Where (3) is no better than
/// rounding to nearest by H, nothing is changed. In the order of the nodes.
std::vector<compensated_weight> compensate_rounding(model& m, const precision_plan& plan, const named_tensors& samples,
                                                    const compensate_options& options = {}, const progress& report = {});

/// Says so in a report: the error of each weight, and what was left.
void add_to(quantize_report& report, const std::vector<compensated_weight>& done);

}  // namespace qk::graph
