// SPDX-License-Identifier: Apache-2.0
// Tells by operator which nodes quantize and dequantize.
#pragma once

#include <onnx/onnx_pb.h>

#include <string>

namespace qk::graph::detail {

inline bool is_amd(const onnx::NodeProto& n) { return n.domain() == "com.amd.quark" || n.domain() == "com.vai.quantize"; }
inline bool quantizes(const onnx::NodeProto& n) {
    const std::string& op = n.op_type();
    return is_amd(n) ? op == "ExtendedQuantizeLinear" || op == "VitisQuantizeLinear"
                     : op == "QuantizeLinear" && (n.domain().empty() || n.domain() == "com.microsoft");
}
inline bool dequantizes(const onnx::NodeProto& n) {
    const std::string& op = n.op_type();
    return is_amd(n) ? op == "ExtendedDequantizeLinear" || op == "VitisDequantizeLinear"
                     : op == "DequantizeLinear" && (n.domain().empty() || n.domain() == "com.microsoft");
}

}  // namespace qk::graph::detail
