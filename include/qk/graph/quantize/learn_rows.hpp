// SPDX-License-Identifier: Apache-2.0
// What AdaRound and AdaQuant learn in one layer, on plain matrices. Outputs do not see each other, so pieces of rows are learned side by
// side; how rows are cut depends on their number alone, and so do the bits.
#pragma once

#include <limits>
#include <vector>

#include "qk/graph/plan/plan.hpp"
#include "qk/graph/quantize/layer_samples.hpp"

namespace qk::graph::detail {

/// A layer with what it should make. What follows it clamps to [least, most] (Relu, Clip), and differences behind that do not count.
struct layer_problem {
    const weight_rows* rows = nullptr;
    const std::vector<layer_samples>* samples = nullptr;  ///< by group
    std::vector<float> bias;                              ///< by channel: as the quantized network adds it
    float least = -std::numeric_limits<float>::infinity(), most = std::numeric_limits<float>::infinity();
    int iterations = 0;
};

/// Squared error over all places with these weights and biases, summed over channels.
double output_error(const layer_problem& p, const tensor& weight, std::span<const float> bias, execute::workers& pool);
/// Sum of squares of what the layer should make, clamped.
double output_power(const layer_problem& p);

/// Each weight at `low` or at `high`, its neighbours on the grid (Nagel et al. 2020): a rectified sigmoid between the two, and a term that
/// draws it to one of them with growing force. Adam over batches of places. A tensor of the values that were chosen.
tensor learn_adaround(const layer_problem& p, const tensor& weight, const tensor& low, const tensor& high, execute::workers& pool);

/// Weights, scales and biases of a layer, by Adam through its quantizer, straight through (Hubara et al. 2020).
struct adaquant_state {
    tensor weight;  ///< before quantization
    quantizer how;
    std::vector<float> bias;
};
/// The best of what was there on the way, the start included. `unit`: a step of the grid at each weight. `learns_bias`: as it says.
adaquant_state learn_adaquant(const layer_problem& p, adaquant_state start, const tensor& unit, bool learns_bias, execute::workers& pool);

}  // namespace qk::graph::detail
