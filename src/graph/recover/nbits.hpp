// SPDX-License-Identifier: Apache-2.0
// Reads back MatMulNBits and GatherBlockQuantized: the float weights behind the codes, and the quantizer that made them.
#pragma once

#include <onnx/onnx_pb.h>

#include <optional>
#include <string>

#include "qk/graph/model/model.hpp"
#include "qk/graph/plan/plan.hpp"

namespace qk::graph::detail {

struct unpacked_weights {
    std::string op_type;  ///< of the plain node: MatMul or Gather
    int input = 1;        ///< the plain node's input for the weights
    std::string codes;    ///< the initializer's name
    tensor value;         ///< [K, N] of a product, [rows, values] of a table
    quantizer how;
    bool integers = false;  ///< multiplied with activations rounded to int8 in each block, which no quantizer of a plan does
};

/// Returns nullopt for another operator, inputs that are no constants, and what a plain node lacks: group indices, a bias.
std::optional<unpacked_weights> unpack_nbits(const model& m, const onnx::NodeProto& n);

/// Turns node `n` of the plain model into a product or a Gather of the floats named `weights`.
void make_plain(onnx::NodeProto& n, const unpacked_weights& w, const std::string& weights);

}  // namespace qk::graph::detail
