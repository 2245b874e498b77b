// SPDX-License-Identifier: Apache-2.0
// Channels of what a layer reads are divided by factors that its weights are multiplied by: y = (x / s) (s W), so that both are easier to
// quantize. The model stays plain ONNX.
//
// Of the layers (MatMul, Gemm) that read one tensor x, with K input channels:
//   (1) smooth_quant: s_k = max|x_k|^alpha / max|W_k|^(1 - alpha)      Xiao et al. 2023, https://arxiv.org/abs/2211.10438, equation (4)
//   (2) awq:          s_k = mean|x_k|^alpha, over sqrt(max s * min s)    Lin et al. 2023, https://arxiv.org/abs/2306.00978, equation (5)
//   (3) alpha, where it is searched: of 0, 0.1, ..., 1 the one whose layers, quantized as asked, differ least from themselves in float32
//       (squared error, all layers of the group added up), on rows of every other sample under factors and ranges of the rest, and the
//       other way round. 0 of awq, and no scaling at all, are among the choices.
// 1 / s goes into what makes x where that is a LayerNormalization, RMSNormalization, a product with a constant, or a MatMul before a
// product of two activations, and nobody else reads x; else into a Mul of its own before the layers.
#pragma once

#include <string>
#include <vector>

#include "qk/graph/evaluate/evaluator.hpp"
#include "qk/graph/quantize/planner.hpp"

namespace qk::graph {

struct scaled_group {
    std::string tensor;               ///< x
    std::vector<std::string> layers;  ///< that read it
    std::string into;                 ///< the node that took 1 / s; empty: a Mul of its own
    double alpha = 0;
    bool left = false;             ///< no scaling was as good as any
    double before = 0, after = 0;  ///< squared error of the layers' outputs over their squares, on rows of the samples
};

/// Scales every group of layers whose weights the requests narrow. Same bits for any number of threads. Error without samples.
std::vector<scaled_group> scale_channels(model& m, const std::vector<request>& requests, const quantize_options& options,
                                         const named_tensors& samples, int threads = 0);

/// Remarks of kind `scaled`, one for each group.
void add_to(quantize_report& report, const std::vector<scaled_group>& done, channel_scaling::rule how);

}  // namespace qk::graph
