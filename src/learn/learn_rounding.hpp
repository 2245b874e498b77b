// SPDX-License-Identifier: Apache-2.0
// Learns the rounding of weights, layer by layer in the order of the network, and corrects biases by the mean error that is left.
//
//   adaround  rounds each weight to one of its two neighbours on the grid (Nagel et al. 2020);
//   adaquant  moves weights, scales and bias of a layer by small steps through the quantizer (Hubara et al. 2020), after it has chosen the
//             scale of the layer's input by the error of the layer's output.
//
// Both minimize the squared error of a layer's output, behind its Relu or Clip, at a choice of places (output positions) of the samples.
// The layer's input is that of the quantized network; the wanted output is that of the float network. The grid is the format's own at the
// scale of the weight's block, so every format can learn. The learned weights lie on the grid, and every style of export takes them.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "qk/graph/evaluate/evaluator.hpp"
#include "qk/graph/quantize/planner.hpp"

namespace qk::graph {

/// Returns whether this build has the component learn. Without it every function of this header throws an error that says so.
bool has_learn();

struct learn_options {
    int threads = 0;                            ///< 0: one per core; the result does not depend on it
    int iterations = 1000;                      ///< steps for each layer
    std::uint64_t seed = 0;                     ///< chooses the places that are learned from
    std::size_t places = 8192;                  ///< most places of a layer's output that are learned from, over all samples
    std::size_t memory = std::size_t{2} << 30;  ///< bytes for the values of both networks; fewer samples are used if they do not fit
    bool correct_bias = false;                  ///< moves the mean difference of each channel of a layer's output into its bias
};

struct learned_weight {
    std::string layer, weight;
    weight_rounding how = weight_rounding::nearest;
    std::string left;                 ///< why the weights cannot learn and are rounded to nearest; else empty
    double nearest = 0, learned = 0;  ///< SQNR of the layer's output in decibels, over the places, behind its Relu or Clip
    double weight_sqnr = 0;           ///< SQNR of the weights themselves in decibels: lower than for rounding to nearest
    std::string bias_left;            ///< why the bias was not corrected although that was asked for; else empty
    double bias_moved = 0;            ///< largest magnitude of a correction of the bias
};

/// Replaces the weights of Conv, ConvTranspose, Gemm and MatMul that `plan` narrows below 16 bits and for which `how` (by the layer's name)
/// says adaround or adaquant. adaquant also changes biases, the plan's scales of weights, and the scale of an input that only this layer
/// reads. Keeps weights and bias where learning is no better than rounding to nearest. The results are in the order of the nodes, with the
/// same bits for any number of threads.
std::vector<learned_weight> learn_rounding(model& m, precision_plan& plan, const named_tensors& samples,
                                           const std::function<weight_rounding(const std::string&)>& how, const learn_options& options = {},
                                           const progress& report = {});

/// Adds to a report the error of each weight, and notes for weights and biases that were left.
void add_to(quantize_report& report, const std::vector<learned_weight>& done);

}  // namespace qk::graph
