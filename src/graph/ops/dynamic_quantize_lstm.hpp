// SPDX-License-Identifier: Apache-2.0
// Implements com.microsoft's DynamicQuantizeLSTM, which onnxruntime's quantize_dynamic writes: weights are int8 or uint8, and their other
// factors, the input and the state, are quantized to uint8 when it runs.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "graph/ops/lstm.hpp"
#include "graph/ops/quantize_linear.hpp"
#include "graph/ops/walk/rules.hpp"

namespace qk::graph::ops {

namespace detail {

/// Input W or R: codes [directions, inputs, 4 * hidden], with one scale and zero point for each direction or each column.
struct coded_gates {
    const tensor &codes, &scale, &zero;

    static coded_gates of(std::span<const tensor> in, std::size_t codes_at, std::size_t scale_at) {
        static const tensor none;
        const auto at = [&](std::size_t i) -> const tensor& { return i < in.size() ? in[i] : none; };
        return {at(codes_at), at(scale_at), at(scale_at + 1)};
    }
    bool complete() const { return !codes.empty() && !scale.empty() && !zero.empty(); }
};

inline std::vector<float> floats_of(const node_view& node, const tensor& t) {
    std::vector<float> values(t.size());
    if (!read_elements<float>(t.type(), t.bytes(), std::span<float>(values)))
        node.fail(std::string("type ") + name_of(t.type()) + " has no numbers to compute with");
    return values;
}

/// Returns the dequantized weights as [directions, 4 * hidden, inputs].
inline tensor dequantized(const node_view& node, const coded_gates& g) {
    if (!g.complete()) node.fail("W, R, their scales and zero points are needed");
    if (g.codes.rank() != 3) node.fail("W and R must have rank 3");
    const std::vector<float> values = floats_of(node, g.codes), scale = floats_of(node, g.scale), zero = floats_of(node, g.zero);
    const auto d = static_cast<std::size_t>(g.codes.dim(0)), inputs = static_cast<std::size_t>(g.codes.dim(1)),
               columns = static_cast<std::size_t>(g.codes.dim(2));
    for (const auto* t : {&scale, &zero})
        if (t->size() != d && t->size() != d * columns)
            node.fail("the scales and zero points of W and R need one value a direction, or one a column");
    const auto of = [&](const std::vector<float>& t, std::size_t k, std::size_t j) { return t[t.size() == d ? k : k * columns + j]; };
    tensor y(data_type::float32, {g.codes.dim(0), g.codes.dim(2), g.codes.dim(1)});
    for (std::size_t k = 0; k < d; ++k)
        for (std::size_t i = 0; i < inputs; ++i)
            for (std::size_t j = 0; j < columns; ++j)
                y.as<float>()[(k * columns + j) * inputs + i] = (values[(k * inputs + i) * columns + j] - of(zero, k, j)) * of(scale, k, j);
    return y;
}

/// Sets y to what DynamicQuantizeLinear and DequantizeLinear make of x. `codes` is working memory of the same length.
inline void through_uint8(std::span<const float> x, std::span<std::uint8_t> codes, std::span<float> y) {
    const dynamic_scale s = dynamic_scale_of(x);
    quantize_run(x.data(), x.size(), s.scale, s.zero, 0, 255, codes.data());
    for (std::size_t i = 0; i < x.size(); ++i) y[i] = static_cast<float>(static_cast<int>(codes[i]) - int{s.zero}) * s.scale;
}

/// Inputs: those of LSTM, then W_scale, W_zero_point, R_scale, R_zero_point. X is quantized as a whole, the state of a sample at each step.
inline void run_dynamic_quantize_lstm_with(op_context& call, const tensor& weights, const tensor& recurrence) {
    const tensor x = input_as<float>(call, 0);
    tensor rounded = call.scratch(data_type::float32, x.shape()), codes = call.scratch(data_type::uint8, x.shape());
    through_uint8(x.as<float>(), codes.as<std::uint8_t>(), rounded.as<float>());
    recurrent_call<float> c(call, 4, 5, std::move(rounded), weights, recurrence);
    std::vector<float> seen(c.hidden);
    std::vector<std::uint8_t> state_codes(c.hidden);
    run_lstm_cells(c, [&](const float* state) {
        through_uint8(std::span(state, c.hidden), state_codes, seen);
        return seen.data();
    });
}

class prepared_dynamic_quantize_lstm : public prepared_op {
  public:
    prepared_dynamic_quantize_lstm(tensor weights, tensor recurrence) : weights_(std::move(weights)), recurrence_(std::move(recurrence)) {}
    void run(op_context& call) const override { run_dynamic_quantize_lstm_with(call, weights_, recurrence_); }

  private:
    tensor weights_, recurrence_;
};

}  // namespace detail

inline void run_dynamic_quantize_lstm(op_context& call) {
    std::vector<tensor> in(12);
    for (std::size_t i = 0; i < in.size(); ++i)
        if (call.has_input(i)) in[i] = call.input(i);
    detail::run_dynamic_quantize_lstm_with(call, detail::dequantized(call.node(), detail::coded_gates::of(in, 1, 8)),
                                           detail::dequantized(call.node(), detail::coded_gates::of(in, 2, 10)));
}

/// Dequantizes constant weights once for all runs.
inline std::unique_ptr<prepared_op> prepare_dynamic_quantize_lstm(const prepare_context& context) {
    const auto w = detail::coded_gates::of(context.constants, 1, 8), r = detail::coded_gates::of(context.constants, 2, 10);
    if (!w.complete() || !r.complete()) return nullptr;
    return std::make_unique<detail::prepared_dynamic_quantize_lstm>(detail::dequantized(context.node, w),
                                                                    detail::dequantized(context.node, r));
}

inline constexpr op_entry dynamic_quantize_lstm_ops[] = {{"com.microsoft",
                                                          "DynamicQuantizeLSTM",
                                                          1,
                                                          run_dynamic_quantize_lstm,
                                                          prepare_dynamic_quantize_lstm,
                                                          {follow_all_samples},
                                                          {on_codes}}};

}  // namespace qk::graph::ops
