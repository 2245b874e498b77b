// SPDX-License-Identifier: Apache-2.0
// MatMulInteger and ConvInteger of dynamically quantized operands read back: the product of floats behind them, and both quantizers.
#pragma once

#include <onnx/onnx_pb.h>

#include <optional>
#include <string>
#include <vector>

#include "qk/graph/model/model.hpp"
#include "qk/graph/plan/plan.hpp"

namespace qk::graph::detail {

/// DynamicQuantizeLinear -> MatMulInteger | ConvInteger -> Cast -> Mul of both scales, as style qinteger and onnxruntime's quantize_dynamic
/// write them.
struct integer_product {
    std::string op_type;      ///< of the plain node: MatMul or Conv
    std::string operands[2];  ///< what was quantized dynamically; the second is empty where weights are constant
    std::string codes;        ///< of constant weights: the initializer's name
    tensor value;             ///< their floats
    quantizer how;
    std::vector<int> nodes;  ///< Cast, Mul and DynamicQuantizeLinear
    int last = -1;           ///< the Mul that gives the layer's result
};

/// nullopt: another operator, or anything else around it.
std::optional<integer_product> integer_product_of(const model& m, int node);

/// Makes `node` of the plain model a product of floats that gives what the last Mul gave; `second` is its second operand.
void make_plain(onnx::GraphProto& g, int node, const integer_product& p, const std::string& second);

}  // namespace qk::graph::detail
