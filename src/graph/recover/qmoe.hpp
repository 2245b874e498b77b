// SPDX-License-Identifier: Apache-2.0
// Reads back QMoE: the float weights behind its experts' codes, and the quantizers that made them.
#pragma once

#include <onnx/onnx_pb.h>

#include <optional>
#include <string>
#include <vector>

#include "qk/graph/model/model.hpp"
#include "qk/graph/plan/plan.hpp"

namespace qk::graph::detail {

struct unpacked_experts {
    struct layer {
        int input;          ///< the plain node's input for the weights
        std::string codes;  ///< the initializer's name
        tensor value;       ///< [experts, outputs, inputs]
        quantizer how;
        bool exact = true;  ///< the quantizer has the scales of all experts; otherwise the weights stay as their rounded values
    };
    std::vector<layer> layers;
    bool integers = false;  ///< multiplied with activations rounded to int8, which no quantizer of a plan does
};

/// Returns nullopt for another operator, inputs that are no constants, and what a plain node lacks: weights of routes, scales of
/// activations.
std::optional<unpacked_experts> unpack_experts(const model& m, const onnx::NodeProto& n);

/// Turns node `n` of the plain model into a MoE of the floats named `weights`, one name a layer.
void make_plain(onnx::NodeProto& n, const unpacked_experts& e, const std::vector<std::string>& weights);

}  // namespace qk::graph::detail
