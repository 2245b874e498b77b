// SPDX-License-Identifier: Apache-2.0
// com.microsoft DynamicQuantizeLSTM, which onnxruntime's quantize_dynamic writes: int8 or uint8 weights; what they are multiplied by becomes uint8 on the way.
#pragma once

#include <vector>

#include "qk/graph/ops/lstm.hpp"
#include "qk/graph/ops/quantize_linear.hpp"

namespace qk::graph::ops {

namespace detail {

/// Codes [directions, inputs, 4 * hidden] as values [directions, 4 * hidden, inputs]; a scale and zero point for each direction or column.
inline tensor dequantized_gates(op_context& call, std::size_t codes_at, std::size_t scale_at) {
    const tensor& codes = call.input(codes_at);
    if (codes.rank() != 3) call.fail("W and R must have rank 3");
    const tensor values = input_as<float>(call, codes_at), scale = input_as<float>(call, scale_at), zero = input_as<float>(call, scale_at + 1);
    const auto d = static_cast<std::size_t>(codes.dim(0)), inputs = static_cast<std::size_t>(codes.dim(1)), columns = static_cast<std::size_t>(codes.dim(2));
    for (const tensor* t : {&scale, &zero})
        if (t->size() != d && t->size() != d * columns) call.fail("the scales and zero points of W and R need one value a direction, or one a column");
    const auto of = [&](const tensor& t, std::size_t k, std::size_t j) { return t.as<float>()[t.size() == d ? k : k * columns + j]; };
    tensor y = call.scratch(data_type::float32, {codes.dim(0), codes.dim(2), codes.dim(1)});
    for (std::size_t k = 0; k < d; ++k)
        for (std::size_t i = 0; i < inputs; ++i)
            for (std::size_t j = 0; j < columns; ++j)
                y.as<float>()[(k * columns + j) * inputs + i] = (values.as<float>()[(k * inputs + i) * columns + j] - of(zero, k, j)) * of(scale, k, j);
    return y;
}

/// DynamicQuantizeLinear and back.
inline tensor through_uint8(op_context& call, const tensor& x) {
    tensor quantized[3];
    op_context inner = call.with(std::span(&x, 1), quantized);
    run_dynamic_quantize_linear(inner);
    const float scale = quantized[1].as<float>()[0];
    const int zero = quantized[2].as<std::uint8_t>()[0];
    tensor y = call.scratch(data_type::float32, x.shape());
    for (std::size_t i = 0; i < x.size(); ++i) y.as<float>()[i] = static_cast<float>(quantized[0].as<std::uint8_t>()[i] - zero) * scale;
    return y;
}

}  // namespace detail

/// Inputs of LSTM, then W_scale, W_zero_point, R_scale, R_zero_point. X is quantized as a whole, the state of a sample at each step.
inline void run_dynamic_quantize_lstm(op_context& call) {
    recurrent_call<float> c(call, 4, 5, detail::through_uint8(call, input_as<float>(call, 0)), detail::dequantized_gates(call, 1, 8), detail::dequantized_gates(call, 2, 10));
    tensor seen;
    run_lstm_cells(c, [&](const float* state) {
        seen = detail::through_uint8(call, make_tensor<float>({static_cast<std::int64_t>(c.hidden)}, std::span(state, c.hidden)));
        return seen.as<float>().data();
    });
}

inline constexpr op_entry dynamic_quantize_lstm_ops[] = {{"com.microsoft", "DynamicQuantizeLSTM", 1, run_dynamic_quantize_lstm}};

}  // namespace qk::graph::ops
