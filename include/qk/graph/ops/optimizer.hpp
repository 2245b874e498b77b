// SPDX-License-Identifier: Apache-2.0
// Implements one step of Adagrad, Adam or Momentum (ai.onnx.preview.training) for any number of parameter tensors.
// Inputs: rate, step count, then all parameters, all gradients, all states; outputs: new parameters, then new states.
#pragma once

#include <cmath>

#include "qk/graph/ops/dispatch.hpp"

namespace qk::graph::ops {

/// Calls step(values) for every element, where values is an array of the parameter, its gradient and its `States` states, in double.
template <std::size_t States, class F>
void optimizer_step(op_context& call, F step) {
    constexpr std::size_t each = 2 + States;
    if (call.input_count() < 2 + each || (call.input_count() - 2) % each != 0)
        call.fail("the inputs are not a rate, a count and groups of " + std::to_string(each));
    const std::size_t n = (call.input_count() - 2) / each;
    for (std::size_t k = 0; k < n; ++k) {
        const tensor& x = call.input(2 + k);
        std::array<const tensor*, each> in{};
        std::array<tensor, 1 + States> out;
        for (std::size_t s = 0; s < each; ++s) {
            in[s] = &call.input(2 + s * n + k);
            if (in[s]->shape() != x.shape() || in[s]->type() != x.type())
                call.fail("a parameter, its gradient and its state differ in shape or type");
        }
        for (tensor& t : out) t = call.scratch(x.type(), x.shape());
        dispatch(call, x.type(), float_types, [&]<class T>(type_tag<T>) {
            for (std::size_t i = 0; i < x.size(); ++i) {
                std::array<double, each> v{};
                for (std::size_t s = 0; s < each; ++s) v[s] = static_cast<double>(in[s]->template as<T>()[i]);
                step(v);  // v[0] and v[2..] become the new values
                out[0].template as<T>()[i] = static_cast<T>(v[0]);
                for (std::size_t s = 0; s < States; ++s) out[1 + s].template as<T>()[i] = static_cast<T>(v[2 + s]);
            }
        });
        for (std::size_t s = 0; s <= States; ++s) call.set_output(s * n + k, out[s]);
    }
}

inline void adagrad(op_context& call) {
    const double decay = call.node().get_float("decay_factor", 0), epsilon = call.node().get_float("epsilon", 1e-6f),
                 norm = call.node().get_float("norm_coefficient", 0);
    const double rate = scalar_value<double>(call, call.input(0)) / (1 + scalar_value<double>(call, call.input(1)) * decay);
    optimizer_step<1>(call, [=](auto& v) {
        auto& [x, g, h] = v;
        const double gradient = norm * x + g;
        h += gradient * gradient;
        x -= rate * gradient / (std::sqrt(h) + epsilon);
    });
}

inline void adam(op_context& call) {
    const double alpha = call.node().get_float("alpha", 0.9f), beta = call.node().get_float("beta", 0.999f),
                 epsilon = call.node().get_float("epsilon", 1e-6f);
    const double norm = call.node().get_float("norm_coefficient", 0), after = call.node().get_float("norm_coefficient_post", 0);
    const double t = scalar_value<double>(call, call.input(1));
    double rate = scalar_value<double>(call, call.input(0));
    if (t > 0) rate *= std::sqrt(1 - std::pow(beta, t)) / (1 - std::pow(alpha, t));
    optimizer_step<2>(call, [=](auto& s) {
        auto& [x, g, v, h] = s;
        const double gradient = norm * x + g;
        v = alpha * v + (1 - alpha) * gradient;
        h = beta * h + (1 - beta) * gradient * gradient;
        x = (1 - after) * (x - rate * (v / (std::sqrt(h) + epsilon)));
    });
}

inline void momentum(op_context& call) {
    const double alpha = call.node().get_float("alpha", 0), norm = call.node().get_float("norm_coefficient", 0);
    const double beta = scalar_value<double>(call, call.input(1)) > 0 ? static_cast<double>(call.node().get_float("beta", 0)) : 1.0;
    const double rate = scalar_value<double>(call, call.input(0));
    const std::string mode = call.node().get_string("mode", "standard");
    if (mode != "standard" && mode != "nesterov") call.fail("unknown mode '" + mode + "'");
    const bool nesterov = mode == "nesterov";
    optimizer_step<1>(call, [=](auto& s) {
        auto& [x, g, v] = s;
        const double gradient = norm * x + g;
        v = alpha * v + beta * gradient;
        x -= rate * (nesterov ? gradient + alpha * v : v);
    });
}

inline constexpr op_entry optimizer_ops[] = {
    {"ai.onnx.preview.training", "Adagrad", 1, adagrad},
    {"ai.onnx.preview.training", "Adam", 1, adam},
    {"ai.onnx.preview.training", "Momentum", 1, momentum},
};

}  // namespace qk::graph::ops
