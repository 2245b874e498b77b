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

#include "qk/graph/quantize/learning.hpp"

namespace qk::learn {

/// What qk::graph::learn_rounding() (qk/graph/quantize/learning.hpp) says.
std::vector<graph::learned_weight> learn_rounding(graph::model& m, graph::precision_plan& plan, const graph::named_tensors& samples,
                                                  const std::function<graph::weight_rounding(const std::string&)>& how,
                                                  const graph::learn_options& options, const graph::progress& report);

}  // namespace qk::learn
