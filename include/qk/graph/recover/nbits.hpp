// SPDX-License-Identifier: Apache-2.0
// MatMulNBits and GatherBlockQuantized read back: the float weights behind the codes, and the quantizer that made them.
#pragma once

#include <onnx/onnx_pb.h>

#include <optional>
#include <string>

#include "qk/graph/model/model.hpp"
#include "qk/graph/plan/plan.hpp"

namespace qk::graph::detail {

struct unpacked_weights {
    std::string op_type;  ///< of the plain node: MatMul or Gather
    int input = 1;        ///< of the plain node, where the weights go
    std::string codes;    ///< the initializer's name
    tensor value;         ///< [K, N] of a product, [rows, values] of a table
    quantizer how;
    bool integers = false;  ///< multiplied with activations rounded to int8 in each block, which no quantizer of a plan does
};

/// nullopt: another operator, inputs that are no constants, group indices or a bias, which a plain node does not have.
std::optional<unpacked_weights> unpack_nbits(const model& m, const onnx::NodeProto& n);

/// Makes node `n` of the plain model a product or a Gather of floats.
void make_plain(onnx::NodeProto& n, const unpacked_weights& w, const std::string& weights);

}  // namespace qk::graph::detail
