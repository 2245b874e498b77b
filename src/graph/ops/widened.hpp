// SPDX-License-Identifier: Apache-2.0
// Widens tensors of 16-bit floats to float32 and rounds them back: quantizers compute in float32 whatever the model's own type is.
#pragma once

#include "graph/ops/half.hpp"
#include "qk/graph/base/tensor.hpp"

namespace qk::graph::ops {

constexpr bool is_half(data_type t) { return t == data_type::float16 || t == data_type::bfloat16; }

/// Widens float16 and bfloat16 to float32, exactly; returns every other tensor as it is.
inline tensor widened(const tensor& t) {
    if (!is_half(t.type())) return t;
    tensor y(data_type::float32, t.shape());
    if (t.type() == data_type::float16) widen(t.as<half>(), y.as<float>());
    else widen(t.as<brain>(), y.as<float>());
    return y;
}

/// Rounds float32 to nearest even in `type`. Returns t as it is if `type` is not float16 or bfloat16, or t is not float32.
inline tensor narrowed(const tensor& t, data_type type) {
    if (!is_half(type) || t.type() != data_type::float32) return t;
    tensor y(type, t.shape());
    const std::span<const float> x = t.as<float>();
    if (type == data_type::float16) narrow(x, y.as<half>());
    else narrow(x, y.as<brain>());
    return y;
}

}  // namespace qk::graph::ops
