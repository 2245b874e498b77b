// SPDX-License-Identifier: Apache-2.0
// ai.onnx.preview.training: one step of Adagrad, Adam or Momentum for any number of tensors.
#pragma once

#include <cmath>
#include <vector>

#include "qk/graph/op.hpp"
#include "qk/graph/ops/working_type.hpp"

namespace qk::graph::ops {

namespace detail {

/// Calls step(x, gradient, state 0, state 1) for every element; inputs are R, T, then all X, all gradients, all states; outputs X and states.
template <class Step> void optimizer_step(op_context& call, std::size_t states, Step step) {
    if (call.input_count() < 2 + 2 + states || (call.input_count() - 2) % (2 + states) != 0) call.fail("the number of inputs does not fit");
    const std::size_t n = (call.input_count() - 2) / (2 + states);
    const double rate = input_as<double>(call, 0).template as<double>()[0];
    const std::int64_t time = integers(call, 1).at(0);
    for (std::size_t i = 0; i < n; ++i) {
        const dims& shape = call.input(2 + i).shape();
        std::vector<tensor> in;
        for (std::size_t k = 0; k < 2 + states; ++k) {
            in.push_back(input_as<double>(call, 2 + k * n + i));
            if (in.back().size() != in.front().size()) call.fail("tensors of one parameter differ in shape");
        }
        std::vector<working_output<double>> out;
        for (std::size_t k = 0; k < 1 + states; ++k) out.emplace_back(call, k * n + i, call.input(2 + i).type(), shape);
        for (std::size_t j = 0; j < in[0].size(); ++j) {
            double value[3];
            for (std::size_t k = 0; k < 1 + states; ++k) value[k] = in[k == 0 ? 0 : k + 1].as<double>()[j];
            step(rate, time, in[1].as<double>()[j], value);
            for (std::size_t k = 0; k < 1 + states; ++k) out[k].values()[j] = value[k];
        }
        for (auto& o : out) o.store();
    }
}

inline double double_attribute(const op_context& call, std::string_view name, float otherwise) { return static_cast<double>(call.node().get_float(name, otherwise)); }

}  // namespace detail

inline void run_adagrad(op_context& call) {
    const double norm = detail::double_attribute(call, "norm_coefficient", 0), epsilon = detail::double_attribute(call, "epsilon", 1e-6f), decay = detail::double_attribute(call, "decay_factor", 0);
    detail::optimizer_step(call, 1, [=](double rate, std::int64_t t, double gradient, double* v) {
        const double g = norm * v[0] + gradient;
        v[1] += g * g;
        v[0] -= rate / (1 + static_cast<double>(t) * decay) * g / (std::sqrt(v[1]) + epsilon);
    });
}

inline void run_adam(op_context& call) {
    const double alpha = detail::double_attribute(call, "alpha", 0.9f), beta = detail::double_attribute(call, "beta", 0.999f), epsilon = detail::double_attribute(call, "epsilon", 1e-6f);
    const double norm = detail::double_attribute(call, "norm_coefficient", 0), norm_post = detail::double_attribute(call, "norm_coefficient_post", 0);
    detail::optimizer_step(call, 2, [=](double rate, std::int64_t t, double gradient, double* v) {
        const double g = norm * v[0] + gradient, time = static_cast<double>(t);
        v[1] = alpha * v[1] + (1 - alpha) * g;
        v[2] = beta * v[2] + (1 - beta) * g * g;
        const double adjusted = t > 0 ? rate * std::sqrt(1 - std::pow(beta, time)) / (1 - std::pow(alpha, time)) : rate;
        v[0] = (1 - norm_post) * (v[0] - adjusted * v[1] / (std::sqrt(v[2]) + epsilon));
    });
}

inline void run_momentum(op_context& call) {
    const double alpha = detail::double_attribute(call, "alpha", 0), beta = detail::double_attribute(call, "beta", 0), norm = detail::double_attribute(call, "norm_coefficient", 0);
    const bool nesterov = call.node().get_string("mode", "standard") == "nesterov";
    detail::optimizer_step(call, 1, [=](double rate, std::int64_t t, double gradient, double* v) {
        const double g = norm * v[0] + gradient;
        v[1] = alpha * v[1] + (t > 0 ? beta : 1) * g;
        v[0] -= rate * (nesterov ? g + alpha * v[1] : v[1]);
    });
}

inline constexpr op_entry optimizers_ops[] = {
    {"ai.onnx.preview.training", "Adagrad", 1, run_adagrad},
    {"ai.onnx.preview.training", "Adam", 1, run_adam},
    {"ai.onnx.preview.training", "Momentum", 1, run_momentum},
};

}  // namespace qk::graph::ops
