// SPDX-License-Identifier: Apache-2.0
// Weights that learn their rounding, layer by layer in the order of the network, and biases that take up what is left on average.
//
//   adaround  each weight goes to one of its two neighbours on the grid (Nagel et al. 2020);
//   adaquant  weights, scales and bias of a layer move by small steps through the quantizer (Hubara et al. 2020), after the scale of what
//             it reads was chosen by what the layer makes of it.
//
// Both make small, over places of the samples, the distance between what the layer makes of what it reads in the quantized network and what
// it makes in the float network, through a Relu or Clip behind it. The grid is the format's own at the scale of the weight's block, so
// every format learns; what comes out lies on the grid, and every style of export takes it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "qk/graph/evaluate/evaluator.hpp"
#include "qk/graph/quantize/planner.hpp"

namespace qk::graph {

struct learn_options {
    int threads = 0;                            ///< 0: one per core; the result does not depend on it
    int iterations = 1000;                      ///< steps for each layer
    std::uint64_t seed = 0;                     ///< of the places that are learned from
    std::size_t places = 8192;                  ///< of a layer's output, over all samples, at most
    std::size_t memory = std::size_t{2} << 30;  ///< bytes for what both networks make of the samples: fewer samples where it would not fit
    bool correct_bias = false;                  ///< moves the mean difference of each channel of a layer's output into its bias
};

struct learned_weight {
    std::string layer, weight;
    weight_rounding how = weight_rounding::nearest;
    std::string left;                 ///< not empty: rounded to nearest, and why
    double nearest = 0, learned = 0;  ///< decibels of the layer's output over the places, behind its Relu or Clip
    double weight_sqnr = 0;           ///< decibels of the weights themselves: less than to nearest
    std::string bias_left;            ///< not empty: the bias was to be corrected and is not, and why
    double bias_moved = 0;            ///< largest magnitude that a channel's bias was corrected by
};

/// Replaces the weights of Conv, ConvTranspose, Gemm and MatMul that `plan` narrows below 16 bits and for which `how` (by the layer's name)
/// says adaround or adaquant; with adaquant biases and the plan's scales of weights change, too, and
/// those of what a layer alone reads. Where learning is no better than rounding
/// to nearest, nothing is changed. In the order of the nodes. The same bits for any number of threads.
std::vector<learned_weight> learn_rounding(model& m, precision_plan& plan, const named_tensors& samples,
                                           const std::function<weight_rounding(const std::string&)>& how, const learn_options& options = {},
                                           const progress& report = {});

/// Gives every Conv, ConvTranspose and Gemm with constant weights a bias of zeros where it has none: what a correction of biases needs,
/// before a plan is made.
void add_missing_biases(model& m);

/// Says so in a report: the error of each weight, and what was left.
void add_to(quantize_report& report, const std::vector<learned_weight>& done);

}  // namespace qk::graph
