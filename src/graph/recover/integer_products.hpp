// SPDX-License-Identifier: Apache-2.0
// Reads back MatMulInteger and ConvInteger of dynamically quantized operands: the product of floats behind them, and both quantizers.
#pragma once

#include <onnx/onnx_pb.h>

#include <optional>
#include <string>
#include <vector>

#include "qk/graph/model/model.hpp"
#include "qk/graph/plan/plan.hpp"

namespace qk::graph::detail {

/// The pattern DynamicQuantizeLinear -> MatMulInteger | ConvInteger -> Cast -> Mul of both scales, as written by style qinteger and by
/// onnxruntime's quantize_dynamic.
struct integer_product {
    std::string op_type;      ///< of the plain node: MatMul or Conv
    std::string operands[2];  ///< what was quantized dynamically; the second is empty where weights are constant
    std::string codes;        ///< initializer with the codes of constant weights
    tensor value;             ///< the floats of constant weights
    quantizer how;
    std::vector<int> nodes;  ///< Cast, Mul and DynamicQuantizeLinear
    int last = -1;           ///< the Mul that computes the layer's result
};

/// Returns nullopt for another operator, or where its neighbours do not fit the pattern.
std::optional<integer_product> integer_product_of(const model& m, int node);

/// Turns `node` of the plain model into a product of floats that replaces the last Mul; `second` is its second operand.
void make_plain(onnx::GraphProto& g, int node, const integer_product& p, const std::string& second);

}  // namespace qk::graph::detail
