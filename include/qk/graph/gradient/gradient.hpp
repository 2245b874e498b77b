// SPDX-License-Identifier: Apache-2.0
// Gradients of a model's output by its inputs and weights, in one call. docs/guide/gradients.md.
#pragma once

#include <cstdint>
#include <span>

#include "qk/graph/evaluate/accuracy.hpp"
#include "qk/graph/evaluate/evaluator.hpp"
#include "qk/graph/model/model.hpp"

namespace qk::graph {

struct gradient_options {
    int threads = 0;                   ///< 0: one per core; the result does not depend on it
    int output_index = 0;              ///< which output, counted from 0
    int ignore_label = ignored_label;  ///< samples and positions with this label have no loss
    /// Bytes that the forward passes of all threads may hold at once; 0: half of the available memory. If they would hold more, stretches
    /// of them are forgotten and run again. The result does not depend on it.
    std::size_t memory = 0;
};

struct gradient_result {
    /// Gradients by the names of the file: by every float input, in the data's shape, and by every float initializer, in its own, those
    /// within the bodies of If, Loop and Scan included. They are summed over all uses and samples, zeros if no path leads there. float64
    /// for double, float32 for all others.
    named_tensors gradients;
    tensor output;    ///< the output that was chosen, samples joined on axis 0
    double loss = 0;  ///< the mean cross-entropy; only loss_gradient sets it
    std::size_t samples = 0;
    double seconds = 0;
    double forward_seconds = 0, backward_seconds = 0;  ///< of all threads together
};

/// Returns the gradient of the sum of v * y, where y is the output and v a tensor of y's shape. `m` must be as it was loaded: folding
/// removes names. Relu has slope 0 at 0, MaxPool's gradient goes to the first of equal values, and quantizers are straight-through with
/// clipping. Throws error for data that does not fit, for v of another shape and, naming node and operator, if a gradient has to flow
/// through an operator without a vector-Jacobian product.
gradient_result vector_gradient(const model& m, const named_tensors& inputs, const tensor& v, const gradient_options& options = {});

/// Returns the gradient of the mean over samples of the cross-entropy between the softmax of a sample's output and its label; of an output
/// [N,S,C] over its positions, with labels [N,S]. An output that already is a distribution is taken as probabilities, as the metric `loss`
/// takes it. Throws error for a label that is no class, and where none counts.
gradient_result loss_gradient(const model& m, const named_tensors& inputs, std::span<const std::int64_t> labels,
                              const gradient_options& options = {});

}  // namespace qk::graph
