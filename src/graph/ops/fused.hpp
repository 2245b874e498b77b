// SPDX-License-Identifier: Apache-2.0
// Implements com.microsoft's fused float operators, which onnxruntime's optimizer writes: FusedConv, FusedGemm, FusedMatMul, Gelu variants.
#pragma once

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "graph/ops/activation.hpp"
#include "graph/ops/body.hpp"
#include "graph/ops/conv.hpp"
#include "graph/ops/gemm.hpp"
#include "graph/ops/matmul_integer.hpp"
#include "graph/ops/op.hpp"
#include "graph/ops/recurrent.hpp"
#include "graph/ops/transpose.hpp"
#include "graph/ops/walk/rules.hpp"

namespace qk::graph::ops {

namespace detail {

/// Applies the activation called `name` in place. Clip, LeakyRelu and HardSigmoid take their parameters from `first` and `second`.
inline void apply_fused_activation(const op_context& call, const std::string& name, float first, float second, std::span<float> y) {
    using kind = recurrent_activation::kind;
    if (name.empty()) return;
    if (name == "Clip") {
        for (float& v : y) v = std::min(std::max(v, first), second);
        return;
    }
    static constexpr std::pair<std::string_view, kind> known[] = {{"Relu", kind::relu},
                                                                  {"Tanh", kind::tanh},
                                                                  {"Sigmoid", kind::sigmoid},
                                                                  {"LeakyRelu", kind::leaky_relu},
                                                                  {"HardSigmoid", kind::hard_sigmoid}};
    for (const auto& [activation, function] : known) {
        if (activation != name) continue;
        const recurrent_activation f{function, first, second};
        for (float& v : y) v = f(v);
        return;
    }
    call.fail("activation '" + name + "' is none of Relu, Tanh, Sigmoid, LeakyRelu, HardSigmoid, Clip");
}

/// Returns the result of the standard's operator `run` on the first `count` inputs. Fails unless it is float32.
inline tensor before_activation(op_context& call, std::size_t count, void (*run)(op_context&)) {
    std::vector<tensor> inputs;
    for (std::size_t i = 0; i < count; ++i) inputs.push_back(optional_input(call, i));
    tensor y;
    op_context inner = call.with(inputs, std::span(&y, 1));
    run(inner);
    if (y.type() != data_type::float32) call.fail("only float32 is supported");
    return y;
}

}  // namespace detail

/// Computes Conv(X, W, B) + Z, then the activation.
inline void run_fused_conv(op_context& call) {
    tensor y = detail::before_activation(call, 3, conv);
    if (call.has_input(3)) {
        const tensor& z = call.input(3);
        if (z.shape() != y.shape() || z.type() != y.type())
            call.fail("Z of shape " + to_string(z.shape()) + " does not fit " + to_string(y.shape()));
        for (std::size_t i = 0; i < y.size(); ++i) y.as<float>()[i] += z.as<float>()[i];
    }
    const auto p = call.node().get_floats("activation_params");
    detail::apply_fused_activation(call, call.node().get_string("activation", ""), p.empty() ? 0.01f : p[0], p.size() < 2 ? 0.5f : p[1],
                                   y.as<float>());
    call.set_output(0, y);
}

inline void run_fused_gemm(op_context& call) {
    tensor y = detail::before_activation(call, call.input_count(), gemm);
    const node_view& node = call.node();
    detail::apply_fused_activation(call, node.get_string("activation", ""), node.get_float("activation_alpha", 0.01f),
                                   node.get_float("activation_beta", 0.5f), y.as<float>());
    call.set_output(0, y);
}

namespace detail {

/// Returns the order of axes for the product: `batch` turns [M, batch..., K] into [batch..., M, K], `swap` transposes. A vector is kept.
inline std::vector<std::size_t> fused_order(std::size_t rank, bool swap, bool batch) {
    std::vector<std::size_t> order(rank);
    std::iota(order.begin(), order.end(), std::size_t{0});
    if (rank < 2) return order;
    if (batch) std::rotate(order.begin(), order.begin() + 1, order.end() - 1);
    if (swap) std::swap(order[rank - 1], order[rank - 2]);
    return order;
}

inline tensor transposed_matrices(op_context& call, const tensor& x, bool swap, bool batch) {
    return (swap || batch) && x.rank() >= 2 ? transposed(call, x, fused_order(x.rank(), swap, batch)) : x;
}

}  // namespace detail

inline void run_fused_matmul(op_context& call) {
    const node_view& node = call.node();
    const tensor a =
        detail::transposed_matrices(call, input_as<float>(call, 0), node.get_int("transA", 0) != 0, node.get_int("transBatchA", 0) != 0);
    const tensor b =
        detail::transposed_matrices(call, input_as<float>(call, 1), node.get_int("transB", 0) != 0, node.get_int("transBatchB", 0) != 0);
    const matmul_shapes s(call, a.shape(), b.shape());
    working_output<float> y(call, 0, call.input(0).type(), s.output);
    s.each([&](std::size_t ia, std::size_t ib, std::size_t i) {
        const auto at = [](std::size_t which, std::int64_t size) { return which * static_cast<std::size_t>(size); };
        multiply(a.as<float>().data() + at(ia, s.m * s.k), false, b.as<float>().data() + at(ib, s.k * s.n), false,
                 y.data() + at(i, s.m * s.n), s.m, s.n, s.k);
    });
    const float alpha = node.get_float("alpha", 1);
    if (alpha != 1)
        for (float& v : y.values()) v *= alpha;
    y.store();
}

namespace detail {

/// Computes f(x + bias) with an optional bias over the last axis.
template <class F>
void biased_activation(op_context& call, F f) {
    const tensor x = input_as<float>(call, 0), bias = optional_as<float>(call, 1);
    if (!bias.empty() && (x.rank() == 0 || bias.size() != static_cast<std::size_t>(x.shape().back())))
        call.fail("the bias does not fit the last axis of " + to_string(x.shape()));
    working_output<float> y(call, 0, call.input(0).type(), x.shape());
    for (std::size_t i = 0; i < x.size(); ++i)
        y.values()[i] = f(x.as<float>()[i] + (bias.empty() ? 0.0f : bias.as<float>()[i % bias.size()]));
    y.store();
}

}  // namespace detail

inline void run_fast_gelu(op_context& call) {
    detail::biased_activation(
        call, [](float x) { return 0.5f * x * (1 + std::tanh(x * (0.035677408136300125f * x * x + 0.7978845608028654f))); });
}
inline void run_bias_gelu(op_context& call) {
    detail::biased_activation(call, [](float x) { return 0.5f * x * (1 + std::erf(x * 0.70710678118654752f)); });
}
inline void run_quick_gelu(op_context& call) {
    const float alpha = call.node().get_float("alpha", 1.702f);
    detail::biased_activation(call, [alpha](float x) { return x / (1 + std::exp(-alpha * x)); });
}

namespace detail {

/// Returns x + bias, or x where there is none.
inline op_body::value biased(op_body& b) { return b.input(1) < 0 ? b.input(0) : b.add("Add", {b.input(0), b.input(1)}); }

}  // namespace detail

inline void bias_gelu_body(op_body& b) { b.give(0, b.add("Gelu", {detail::biased(b)})); }
inline void fast_gelu_body(op_body& b) { b.give(0, b.add("Gelu", {detail::biased(b)}, std::pair("approximate", std::string("tanh")))); }
inline void quick_gelu_body(op_body& b) {
    b.give(0, b.add("Swish", {detail::biased(b)}, std::pair("alpha", b.call().get_float("alpha", 1.702f))));
}

inline constexpr op_entry fused_ops[] = {
    {"com.microsoft", "FusedConv", 1, run_fused_conv, nullptr, {follow_fused_conv}},
    {"com.microsoft", "FusedGemm", 1, run_fused_gemm, nullptr, {follow_gemm}},
    {"com.microsoft", "FusedMatMul", 1, run_fused_matmul, nullptr, {follow_fused_matmul}},
    {"com.microsoft", "TransposeMatMul", 1, run_fused_matmul, nullptr, {follow_fused_matmul}},
    {"com.microsoft", "Gelu", 1, run_bias_gelu, nullptr, {}, {}, bias_gelu_body},
    {"com.microsoft", "FastGelu", 1, run_fast_gelu, nullptr, {}, {}, fast_gelu_body},
    {"com.microsoft", "BiasGelu", 1, run_bias_gelu, nullptr, {}, {}, bias_gelu_body},
    {"com.microsoft", "QuickGelu", 1, run_quick_gelu, nullptr, {}, {}, quick_gelu_body},
};

}  // namespace qk::graph::ops
