// SPDX-License-Identifier: Apache-2.0
// What the component learn brings to the graph module: learned rounding of weights, corrected biases, and rotations of residual streams.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "qk/graph/base/component.hpp"
#include "qk/graph/evaluate/evaluator.hpp"
#include "qk/graph/quantize/planner.hpp"

namespace qk::graph {

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
/// same bits for any number of threads. Throws error without the component learn.
std::vector<learned_weight> learn_rounding(model& m, precision_plan& plan, const named_tensors& samples,
                                           const std::function<weight_rounding(const std::string&)>& how, const learn_options& options = {},
                                           const progress& report = {});

/// Adds to a report the error of each weight, and notes for weights and biases that were left.
void add_to(quantize_report& report, const std::vector<learned_weight>& done);

struct rotated_stream {
    std::string tensor;                         ///< the input of the stream's first normalization
    std::size_t channels = 0;                   ///< 0: unknown, for the stream was refused early
    std::vector<std::string> readers, writers;  ///< nodes whose weights changed
    std::string refused;                        ///< why it stays as it is; empty: it was rotated
};

/// Rotates every stream that a normalization reads and that can be rotated (src/learn/rotate.hpp). Needs no samples. Throws error without
/// the component learn.
std::vector<rotated_stream> rotate_streams(model& m, std::uint64_t seed = 0);

/// Adds a note for each stream: `rotated`, or `unrealised` with the reason. A model without any stream gets one `unrealised` note.
void add_to(quantize_report& report, const std::vector<rotated_stream>& done);

struct learn_functions {
    std::vector<learned_weight> (*learn_rounding)(model& m, precision_plan& plan, const named_tensors& samples,
                                                  const std::function<weight_rounding(const std::string&)>& how,
                                                  const learn_options& options, const progress& report);
    std::vector<rotated_stream> (*rotate_streams)(model& m, std::uint64_t seed);
};

inline constinit component<learn_functions> learn_component("learn", "QK_BUILD_LEARN");

}  // namespace qk::graph
