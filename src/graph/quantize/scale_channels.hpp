// SPDX-License-Identifier: Apache-2.0
// Divides the channels of a layer's input by factors and multiplies its weights by the same factors: y = (x / s) (s W), so that both are
// easier to quantize. The model stays plain ONNX.
//
// For the layers (MatMul, Gemm) that read one tensor x, with K input channels:
//   (1) smooth_quant: s_k = max|x_k|^alpha / max|W_k|^(1 - alpha)      Xiao et al. 2023, https://arxiv.org/abs/2211.10438, equation (4)
//   (2) awq:          s_k = mean|x_k|^alpha, over sqrt(max s * min s)    Lin et al. 2023, https://arxiv.org/abs/2306.00978, equation (5)
//   (3) alpha, where it is searched: the one of 0, 0.1, ..., 1 with the least squared error between the layers quantized as asked and in
//       float32, summed over the group. Every other sample gives factors and ranges and the rest gives the rows that are compared, and then
//       the other way round. Alpha 0 for awq, and no scaling at all, are among the choices.
// 1 / s goes into the node that makes x where that is a LayerNormalization, an RMSNormalization, a product with a constant, or a MatMul
// before a product of two activations, and nobody else reads x; else into a Mul of its own before the layers.
#pragma once

#include <string>
#include <vector>

#include "qk/graph/evaluate/evaluator.hpp"
#include "qk/graph/quantize/planner.hpp"

namespace qk::graph {

struct scaled_group {
    std::string tensor;               ///< x
    std::vector<std::string> layers;  ///< the layers that read x
    std::string into;                 ///< the node that took 1 / s; empty: a Mul of its own
    double alpha = 0;
    bool left = false;             ///< not scaled: no alpha was better than that
    double before = 0, after = 0;  ///< squared error of the layers' outputs, divided by their squares, on rows of the samples
    scaled_channels how{};         ///< for the plan
};

/// Scales every group of layers whose weights the requests narrow below 16 bits; where alpha is searched, only if the squared error falls
/// below `worth` of what it was. The bits are the same for any number of threads. Throws an
/// error without samples.
std::vector<scaled_group> scale_channels(model& m, const std::vector<request>& requests, const quantize_options& options,
                                         const named_tensors& samples, int threads = 0, double worth = 1);

/// Divides the channels of a tensor and multiplies the layers' weights, as a saved plan says. Throws where the weights are not those that
/// the plan was made for.
void scale_again(model& m, const scaled_channels& how, const std::string& label);

/// Adds a note of kind `scaled` for each group.
void add_to(quantize_report& report, const std::vector<scaled_group>& done, channel_scaling::rule how);

}  // namespace qk::graph
