// SPDX-License-Identifier: Apache-2.0
// What an operator can do with channels-last inputs; everything else gets them converted back.
#pragma once

#include <onnx/onnx_pb.h>

#include <string_view>

#include "qk/graph/ops/op.hpp"

namespace qk::graph::execute {

enum class layout_rule {
    plain,       ///< needs N,C,H,W
    unary,       ///< element by element of input 0: any order of elements will do
    scaled,      ///< unary if input 1 (a scale) is one value
    block_axis,  ///< blocks along attribute `axis`; along axis 1 a channels-last value is a matrix whose rows are cut into blocks
    by_channel,  ///< a channels-last value is a matrix with a column for each channel
    binary,      ///< element by element of two inputs of one shape, or of one and a scalar
    concat,      ///< along axis 1
    max_pool,
    average_pool,
    global_average,
    slice,  ///< starts, ends, axes, steps as inputs: the same with the axes renumbered
    pad,    ///< pads as an input: the same with the pads in another order
};

inline layout_rule layout_rule_of(const node_view& n) {
    using enum layout_rule;
    const std::string_view op = n.op_type();
    for (const std::string_view name : {"QuantizeLinear", "DequantizeLinear", "ExtendedQuantizeLinear", "ExtendedDequantizeLinear",
                                        "VitisQuantizeLinear", "VitisDequantizeLinear"})
        if (op == name) return n.get_int("block_size", 0) == 0 ? scaled : plain;
    for (const std::string_view name : {"BFPQuantizeDequantize", "MXQuantizeDequantize", "BFPFixNeuron", "MXFixNeuron"})
        if (op == name) return n.get_int("axis", 1) == 1 ? block_axis : plain;
    if (!n.proto().domain().empty() && n.proto().domain() != "ai.onnx") return plain;
    for (const std::string_view name :
         {"Relu", "LeakyRelu", "Clip",     "Sigmoid", "Tanh", "Elu", "Selu", "HardSigmoid", "HardSwish",       "Softplus", "Softsign",
          "Erf",  "Gelu",      "Identity", "Abs",     "Neg",  "Exp", "Sqrt", "Mish",        "ThresholdedRelu", "Celu",     "Swish"})
        if (op == name) return unary;
    for (const std::string_view name : {"Add", "Sub", "Mul", "Div"})
        if (op == name) return n.version() >= 7 ? binary : plain;
    if (op == "Concat") return n.get_int("axis", 1) == 1 || n.get_int("axis", 1) == -3 ? concat : plain;
    if (op == "MaxPool") return n.proto().output_size() == 1 ? max_pool : plain;
    if (op == "AveragePool") return average_pool;
    if (op == "GlobalAveragePool") return global_average;
    if (op == "BatchNormalization")
        return n.version() >= 7 && n.get_int("training_mode", 0) == 0 && n.proto().output_size() == 1 ? by_channel : plain;
    if (op == "Slice") return n.version() >= 10 ? slice : plain;
    if (op == "Pad") return n.version() >= 11 ? pad : plain;
    return plain;
}

}  // namespace qk::graph::execute
