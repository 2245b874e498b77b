// SPDX-License-Identifier: Apache-2.0
// Training with a plan's quantizers in place: weights, biases and scales adapt to them. docs/guide/gradients.md, Fine-tuning.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "qk/graph/evaluate/accuracy.hpp"
#include "qk/graph/evaluate/evaluator.hpp"
#include "qk/graph/model/model.hpp"
#include "qk/graph/plan/plan.hpp"

namespace qk::graph {

struct finetune_options {
    int threads = 0;                   ///< 0: one per core; the result does not depend on it
    int output_index = 0;              ///< the output whose distance or loss is minimized
    int ignore_label = ignored_label;  ///< samples with this label are not learned from, nor are positions
    int epochs = 10;                   ///< passes over the samples that are learned from, at most this many
    int batch = 32;                    ///< samples per step
    double rate = 0.003;               ///< size of a step as a share of a tensor's root mean square; falls to 0 along a cosine
    double held_out = 0.1;             ///< share of the samples that are not learned from
    std::uint64_t seed = 0;
    std::size_t memory = 0;  ///< as in gradient_options
};

struct finetune_result {
    model learned;               ///< the model with the weights and biases that were best
    precision_plan plan;         ///< the plan with the scales that were best, which fit `learned`
    std::vector<double> losses;  ///< mean over the held-out samples under the plan: before, then after each epoch
    std::size_t best = 0;        ///< index into losses; 0: nothing was better than the start, which `learned` then is
    std::size_t learned_from = 0, held_out = 0;
    double seconds = 0;
};

/// Trains the constant float32 weights and biases of layers, and the scales that the plan gives, by Adam. Gradients go through the plan's
/// quantizers straight-through with clipping. The loss is the squared distance to the float model's own output over its power or, with
/// labels, their cross-entropy, of each position of an output [N,S,C] with labels [N,S]. Scales that are powers of two, dynamic or a
/// block's own do not change. Held-out samples decide when to stop and what is kept: on them the result is never worse than the start. The
/// bits are the same for any number of threads. Throws error for samples that do not run alone, for fewer than two of them, for labels that
/// do not fit, and for operators that no gradient flows through.
finetune_result finetune(const model& m, const precision_plan& plan, const named_tensors& inputs, std::span<const std::int64_t> labels = {},
                         const finetune_options& options = {}, const progress& report = {});

}  // namespace qk::graph
