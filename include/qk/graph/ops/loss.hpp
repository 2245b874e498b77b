// SPDX-License-Identifier: Apache-2.0
// Implements NegativeLogLikelihoodLoss and SoftmaxCrossEntropyLoss: one class per position, one weight per class, one class value ignored.
#pragma once

#include <cmath>

#include "qk/graph/ops/dispatch.hpp"

namespace qk::graph::ops {

/// Computes the loss from log probabilities [N, C, ...] and classes [N, ...] and writes it to output 0.
template <class T>
void negative_log_likelihood(op_context& call, const tensor& log_probability, const tensor& classes, const tensor& weight) {
    const axis_split s = split_at(log_probability.shape(), 1);
    dims expected = log_probability.shape();
    expected.erase(expected.begin() + 1);
    if (classes.shape() != expected)
        call.fail("the target's shape " + to_string(classes.shape()) + " does not fit the input's " + to_string(log_probability.shape()));
    if (!weight.empty() && (weight.size() != s.length || weight.type() != log_probability.type()))
        call.fail("weight needs one element for each class, of the input's type");
    const std::string reduction = call.node().get_string("reduction", "mean");
    if (reduction != "none" && reduction != "sum" && reduction != "mean") call.fail("unknown reduction '" + reduction + "'");
    const bool ignoring = call.node().has("ignore_index");
    const std::int64_t ignored = call.node().get_int("ignore_index", 0);
    const auto target = int_values(call, classes);
    const bool each = reduction == "none";
    tensor& y = call.output(0, type_of<T>, each ? classes.shape() : dims{});
    T total{0}, weights{0};
    for (std::size_t i = 0; i < target.size(); ++i) {
        T loss{0}, w{0};
        if (!ignoring || target[i] != ignored) {
            if (target[i] < 0 || target[i] >= static_cast<std::int64_t>(s.length))
                call.fail("class " + std::to_string(target[i]) + " is outside the " + std::to_string(s.length) + " classes");
            const auto c = static_cast<std::size_t>(target[i]);
            w = weight.empty() ? T{1} : weight.as<T>()[c];
            loss = -log_probability.as<T>()[(i / s.inner * s.length + c) * s.inner + i % s.inner] * w;
        }
        if (each) y.as<T>()[i] = loss;
        total += loss;
        weights += w;
    }
    if (!each) y.as<T>()[0] = reduction == "sum" ? total : total / weights;
}

inline void nll_loss(op_context& call) {
    const tensor& x = call.input(0);
    if (x.rank() < 2) call.fail("the input has no class axis");
    dispatch(call, x.type(), float_types,
             [&]<class T>(type_tag<T>) { negative_log_likelihood<T>(call, x, call.input(1), optional_input(call, 2)); });
}

/// Computes the loss on the logarithm of the softmax along axis 1, which is output 1.
inline void softmax_cross_entropy_loss(op_context& call) {
    const tensor& x = call.input(0);
    if (x.rank() < 2) call.fail("the scores have no class axis");
    const axis_split s = split_at(x.shape(), 1);
    tensor logs = call.scratch(x.type(), x.shape());
    dispatch(call, x.type(), float_types, [&]<class T>(type_tag<T>) {
        for (std::size_t o = 0; o < s.outer; ++o)
            for (std::size_t j = 0; j < s.inner; ++j) {
                const T* from = x.as<T>().data() + o * s.length * s.inner + j;
                T* to = logs.as<T>().data() + o * s.length * s.inner + j;
                T top = s.length ? from[0] : T{0}, total{0};
                for (std::size_t i = 0; i < s.length; ++i) top = std::max(top, from[i * s.inner]);
                for (std::size_t i = 0; i < s.length; ++i) total += std::exp(from[i * s.inner] - top);
                const T shift = top + std::log(total);
                for (std::size_t i = 0; i < s.length; ++i) to[i * s.inner] = from[i * s.inner] - shift;
            }
        negative_log_likelihood<T>(call, logs, call.input(1), optional_input(call, 2));
    });
    if (call.wants(1)) call.set_output(1, logs);
}

inline constexpr op_entry loss_ops[] = {
    {"", "NegativeLogLikelihoodLoss", 12, through_float32<nll_loss>},
    {"", "SoftmaxCrossEntropyLoss", 12, through_float32<softmax_cross_entropy_loss>},
};

}  // namespace qk::graph::ops
