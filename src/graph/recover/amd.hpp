// SPDX-License-Identifier: Apache-2.0
// Reads the quantizers that com.amd.quark's block operators carry out. docs/guide/export.md, style amd.
#pragma once

#include <onnx/onnx_pb.h>

#include <optional>
#include <string>
#include <utility>

#include "qk/graph/model/attribute.hpp"
#include "qk/graph/plan/plan.hpp"

namespace qk::graph::detail {

inline int number(const onnx::NodeProto& n, const char* name, int otherwise) { return static_cast<int>(int_attribute(n, name, otherwise)); }

/// Returns the quantizer of BFPQuantizeDequantize or MXQuantizeDequantize, under their older names too; nullopt for other nodes.
inline std::optional<quantizer> amd_block_quantizer(const onnx::NodeProto& n) {
    quantizer q;
    q.axis = number(n, "axis", 1), q.semantics = semantics::quark;
    constexpr rounding modes[] = {rounding::half_away, rounding::half_up, rounding::half_even};
    const bool mx = n.op_type() == "MXQuantizeDequantize" || n.op_type() == "MXFixNeuron";
    const int mode = number(n, "rounding_mode", mx ? 2 : 0);
    if (mode < 0 || mode > 2) return std::nullopt;
    q.semantics.rounding = modes[mode];
    if (mx) {
        microscaling f = mxint8;
        f.block_size = number(n, "block_size", 32);
        const std::string element = text_attribute(n, "element_dtype", "int8");
        constexpr std::pair<const char*, floating> elements[] = {
            {"fp8_e4m3", fp8_e4m3fn}, {"fp8_e5m2", fp8_e5m2}, {"fp6_e3m2", fp6_e3m2}, {"fp6_e2m3", fp6_e2m3}, {"fp4_e2m1", fp4_e2m1}};
        for (const auto& [name, e] : elements)
            if (element == name) f.element = e, f.integer_bits = 0, q.semantics.rounding = rounding::half_even;
        q.format = f;
    } else if (n.op_type() == "BFPQuantizeDequantize" || n.op_type() == "BFPFixNeuron") {
        const int mantissa = number(n, "bit_width", 16) - 9, block = number(n, "block_size", 8);
        if (text_attribute(n, "bfp_method", "to_bfp") == "to_bfp")
            q.format = block_float{.block_size = block, .exponent_bits = 8, .mantissa_bits = mantissa};
        else
            q.format = microexponent{.block_size = block,
                                     .sub_block_size = number(n, "sub_block_size", 2),
                                     .exponent_bits = 8,
                                     .shift_bits = number(n, "sub_block_shift_bits", 1),
                                     .mantissa_bits = mantissa};
    } else {
        return std::nullopt;
    }
    return q;
}

}  // namespace qk::graph::detail
