// SPDX-License-Identifier: Apache-2.0
// float16 and bfloat16 tensors to float32 and back, for operators that compute in float32 whatever their storage is.
#pragma once

#include <bit>
#include <cmath>
#include <vector>

#include "qk/graph/op.hpp"

namespace qk::graph::ops {

inline float to_float(half h) {
    const std::uint32_t sign = static_cast<std::uint32_t>(h.bits & 0x8000u) << 16, exponent = (h.bits >> 10) & 31u, fraction = h.bits & 0x3ffu;
    if (exponent == 0) {  // subnormal: a multiple of 2^-24, exact
        const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
        return sign ? -magnitude : magnitude;
    }
    if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000u | (fraction << 13));
    return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (fraction << 13));
}
inline float to_float(brain b) { return std::bit_cast<float>(static_cast<std::uint32_t>(b.bits) << 16); }

/// Nearest, ties to even; overflow to Inf; NaN stays NaN.
inline half to_half(float x) {
    const std::uint32_t u = std::bit_cast<std::uint32_t>(x), sign = (u >> 16) & 0x8000u, magnitude = u & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return {static_cast<std::uint16_t>(sign | 0x7e00u)};
    if (magnitude >= 0x477ff000u) return {static_cast<std::uint16_t>(sign | 0x7c00u)};  // 65520, where rounding reaches Inf
    if (magnitude < 0x38800000u) {                                                       // below 2^-14: multiples of 2^-24
        const float q = std::nearbyint(std::bit_cast<float>(magnitude) * 0x1p24f);
        return {static_cast<std::uint16_t>(sign | static_cast<std::uint32_t>(q))};
    }
    const std::uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u) - (112u << 23);
    return {static_cast<std::uint16_t>(sign | (rounded >> 13))};
}
inline brain to_brain(float x) {
    const std::uint32_t u = std::bit_cast<std::uint32_t>(x);
    if ((u & 0x7fffffffu) > 0x7f800000u) return {static_cast<std::uint16_t>((u >> 16) | 0x40u)};
    return {static_cast<std::uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16)};
}

inline bool is_half(data_type t) { return t == data_type::float16 || t == data_type::bfloat16; }

inline tensor widened(op_context& c, const tensor& t) {
    tensor y = c.scratch(data_type::float32, t.shape());
    const auto out = y.as<float>();
    if (t.type() == data_type::float16) {
        const auto in = t.as<half>();
        for (std::size_t i = 0; i < in.size(); ++i) out[i] = to_float(in[i]);
    } else {
        const auto in = t.as<brain>();
        for (std::size_t i = 0; i < in.size(); ++i) out[i] = to_float(in[i]);
    }
    return y;
}

inline void narrow(const tensor& from, tensor& to) {
    const auto in = from.as<float>();
    if (to.type() == data_type::float16) {
        const auto out = to.as<half>();
        for (std::size_t i = 0; i < in.size(); ++i) out[i] = to_half(in[i]);
    } else {
        const auto out = to.as<brain>();
        for (std::size_t i = 0; i < in.size(); ++i) out[i] = to_brain(in[i]);
    }
}

/// Runs `body` on float32 copies of the half inputs and narrows its float32 outputs: one rounding at the end, as a fused kernel has.
inline void run_widened(op_context& c, data_type storage, void (*body)(op_context&)) {
    std::vector<tensor> inputs, outputs(c.output_count());
    for (std::size_t i = 0; i < c.input_count(); ++i)
        inputs.push_back(c.has_input(i) ? (is_half(c.input(i).type()) ? widened(c, c.input(i)) : c.input(i)) : tensor());
    c.call(body, inputs, outputs);
    for (std::size_t i = 0; i < outputs.size(); ++i) {
        if (outputs[i].empty()) continue;
        if (outputs[i].type() == data_type::float32) narrow(outputs[i], c.output(i, storage, outputs[i].shape()));
        else c.set_output(i, outputs[i]);
    }
}

}  // namespace qk::graph::ops
