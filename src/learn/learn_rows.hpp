// SPDX-License-Identifier: Apache-2.0
// AdaRound and AdaQuant for one layer, on plain matrices. Outputs do not depend on each other, so pieces of rows run in parallel. The
// pieces depend on the number of rows alone, not on threads, and so do the bits.
#pragma once

#include <limits>
#include <vector>

#include "learn/layer_samples.hpp"
#include "qk/graph/plan/plan.hpp"

namespace qk::graph::detail {

/// A layer with its inputs and wanted outputs. Outputs are compared after a clamp to [least, most], which a Relu or Clip behind it does.
struct layer_problem {
    const weight_rows* rows = nullptr;
    const std::vector<layer_samples>* samples = nullptr;  ///< by group
    std::vector<float> bias;                              ///< by channel, as the quantized network adds it
    float least = -std::numeric_limits<float>::infinity(), most = std::numeric_limits<float>::infinity();
    int iterations = 0;
};

/// Returns the squared error with these weights and biases, summed over all places and channels.
double output_error(const layer_problem& p, const tensor& weight, std::span<const float> bias, execute::workers& pool);
/// Returns the sum of squares of the wanted outputs, clamped.
double output_power(const layer_problem& p);

/// Chooses for each weight `low` or `high`, its neighbours on the grid (Nagel et al. 2020), and returns the chosen values. Learns a
/// rectified sigmoid between the two, with a term that draws it to one of them with growing force, by Adam over batches of places.
tensor learn_adaround(const layer_problem& p, const tensor& weight, const tensor& low, const tensor& high, execute::workers& pool);

/// Weights, scales and biases of a layer while AdaQuant learns them (Hubara et al. 2020).
struct adaquant_state {
    tensor weight;  ///< before quantization
    quantizer how;
    std::vector<float> bias;
};
/// Learns by Adam with straight-through gradients of the quantizer. Returns the best state among the start and those that were measured on
/// the way. `unit` holds the grid's step at each weight.
adaquant_state learn_adaquant(const layer_problem& p, adaquant_state start, const tensor& unit, bool learns_bias, execute::workers& pool);

}  // namespace qk::graph::detail
