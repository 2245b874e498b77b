// SPDX-License-Identifier: Apache-2.0
// Makes int8 weights pair-safe: onnxruntime's products of uint8 by int8 then never saturate, on any processor, and keep their speed.
//
// On x86-64 without VNNI these kernels multiply neighbours k = 2i and 2i + 1 of a sum at a time (vpmaddubsw) and add the two products in 16
// bits. With codes a of 0 to 255, a[k] w[k] + a[k+1] w[k+1] stays within them for every a where
//
//   (1)  w[k] and w[k+1] have not the same sign, or |w[k]| + |w[k+1]| <= 128.
//
// Two of a thousand pairs of a trained layer do not meet (1) if its scale is largest / 127, none if it is largest / 64. So each scale is
// chosen between these two for the least
//
//   (2)  sum over k of var[x_k] d_k^2 + (sum over k of E[x_k] d_k)^2
//
// after the pairs that do not meet (1) were moved, where d is the change of the output's weights and x the layer's input as the plan
// quantizes it. Then weights are rounded to their other neighbour as long as (2) falls, which takes the second term to nearly 0: they take
// up the mean error of the moved pairs, as a correction of the bias would.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "graph/quantize/weight_rows.hpp"
#include "qk/graph/evaluate/evaluator.hpp"
#include "qk/graph/model/model.hpp"
#include "qk/graph/plan/plan.hpp"

namespace qk::graph {

struct quantize_report;

struct pair_safe_options {
    int threads = 0;       ///< 0: one per core; the result does not depend on it
    bool rescales = true;  ///< false: scales stay
    bool moves = true;     ///< false: weights stay, for another step that rounds them at the chosen scales
    run_limits limits{};
};

struct pair_safe_weight {
    std::string layer, weight;
    std::string left;           ///< why the weights cannot be made pair-safe; else empty
    std::size_t pairs = 0;      ///< of neighbours
    std::size_t offending = 0;  ///< pairs that did not meet (1) at the chosen scales
    std::size_t moved = 0;      ///< weights that are not at the nearest code
    std::size_t rescaled = 0;   ///< scales that changed
    double weight_sqnr = 0;     ///< of the weights themselves, in decibels
};

/// What layers read, by channel: means and variances of a tensor under the quantizer of the edge.
struct input_moments {
    std::vector<double> mean, variance;
};
using layer_moments = std::map<std::string, input_moments>;  ///< by layer

/// Returns the layers, by name, whose int8 weights have to be pair-safe: Conv, Gemm and MatMul whose input has 8 bits under the plan and
/// whose weights are int8 around 0. A depthwise Conv is none of them: its kernels multiply in 32 bits. Nor is a Conv with dynamic scales,
/// which stays in float32 or becomes a ConvInteger, whose kernel is exact.
std::vector<std::string> pairing_layers(const model& m, const precision_plan& plan);

/// So many samples say enough of the mean and the variance of a channel.
inline constexpr std::size_t moment_samples = 64;

/// Runs the samples and returns the moments of what those layers read.
layer_moments gather_moments(const model& m, const precision_plan& plan, const named_tensors& samples,
                             const pair_safe_options& options = {}, const progress& report = {});

/// Changes the weights of these layers in the model, and their scales in the plan (an int32 bias's with them), so that (1) holds. A scale
/// that is not largest / 127, which somebody chose, stays. Layers without moments have E[x] = 0, var[x] = 1. The results are in the order
/// of the nodes, with the same bits for any number of threads.
std::vector<pair_safe_weight> make_pair_safe(model& m, precision_plan& plan, const std::vector<std::string>& layers,
                                             const layer_moments& moments, const pair_safe_options& options = {});

/// Returns whether the codes of this weight meet (1) for a layer that reads it as input `input`, or its kernels do not pair. False where
/// the order of the kernel's sum is not known.
bool is_pair_safe(const onnx::NodeProto& layer, int input, const quantizer& how, const tensor& value);

/// Adds to a report the error of each weight, and notes for weights that were left.
void add_to(quantize_report& report, const std::vector<pair_safe_weight>& done);

}  // namespace qk::graph
