// SPDX-License-Identifier: Apache-2.0
// Vector-Jacobian products of NegativeLogLikelihoodLoss and SoftmaxCrossEntropyLoss, by scores and by the weights of classes.
#pragma once

#include <cmath>
#include <vector>

#include "qk/graph/gradient/product.hpp"
#include "qk/graph/ops/loss.hpp"

namespace qk::graph::gradient {

/// Returns the gradient by the log probabilities `logs` [N, C, ...]; also gives that of the weights of classes, input 2, if it is wanted.
template <class T>
tensor likelihood_gradient(product_call& call, const tensor& logs) {
    const ops::axis_split s = ops::split_at(logs.shape(), 1);
    const std::string reduction = call.node().get_string("reduction", "mean");
    const bool ignoring = call.node().has("ignore_index");
    const std::int64_t ignored = call.node().get_int("ignore_index", 0);
    const auto target = ops::int_values(call.context(), call.input(1));
    const tensor weight = call.optional_real<T>(2);
    tensor d = zeros<T>(logs.shape());
    if (!call.has_gradient()) return d;
    const T *g = call.gradient().as<T>().data(), *from = logs.as<T>().data();
    const auto class_of = [&](std::size_t i) { return static_cast<std::size_t>(target[i]); };
    const auto counts = [&](std::size_t i) { return !ignoring || target[i] != ignored; };
    const auto place = [&](std::size_t i) { return (i / s.inner * s.length + class_of(i)) * s.inner + i % s.inner; };
    double total = 0, weights = 0;
    for (std::size_t i = 0; i < target.size(); ++i) {
        if (!counts(i)) continue;
        const double w = weight.empty() ? 1.0 : static_cast<double>(weight.as<T>()[class_of(i)]);
        total -= w * static_cast<double>(from[place(i)]);
        weights += w;
    }
    const bool mean = reduction == "mean", each = reduction == "none";
    std::vector<double> by_class(s.length, 0.0);
    for (std::size_t i = 0; i < target.size(); ++i) {
        if (!counts(i)) continue;
        const double scale = static_cast<double>(g[each ? i : 0]) / (mean ? weights : 1.0);
        const double w = weight.empty() ? 1.0 : static_cast<double>(weight.as<T>()[class_of(i)]);
        d.as<T>()[place(i)] = static_cast<T>(-w * scale);
        by_class[class_of(i)] += scale * (-static_cast<double>(from[place(i)]) - (mean ? total / weights : 0.0));
    }
    if (!weight.empty() && call.wants(2)) call.give(2, rounded_sums<T>(by_class, weight.shape()));
    return d;
}

inline void likelihood_product(product_call& call) {
    with_gradient_type(call, [&]<class T>(T) { call.give(0, likelihood_gradient<T>(call, call.real<T>(0))); });
}

inline void cross_entropy_product(product_call& call) {
    with_gradient_type(call, [&]<class T>(T) {
        const tensor logs = as_real<T>(call.forward(call.inputs(), 2)[1]);
        tensor d = likelihood_gradient<T>(call, logs);
        const ops::axis_split s = ops::split_at(logs.shape(), 1);
        for (std::size_t o = 0; o < s.outer; ++o)
            for (std::size_t j = 0; j < s.inner; ++j) {
                const std::size_t first = o * s.length * s.inner + j;
                double sum = 0;
                for (std::size_t i = 0; i < s.length; ++i) {
                    T& v = d.as<T>()[first + i * s.inner];
                    if (call.has_gradient(1)) v += call.gradient(1).as<T>()[first + i * s.inner];
                    sum += static_cast<double>(v);
                }
                for (std::size_t i = 0; i < s.length; ++i)
                    d.as<T>()[first + i * s.inner] -= std::exp(logs.as<T>()[first + i * s.inner]) * static_cast<T>(sum);
            }
        call.give(0, d);
    });
}

inline constexpr product_entry loss_products[] = {
    {"", "NegativeLogLikelihoodLoss", 12, likelihood_product},
    {"", "SoftmaxCrossEntropyLoss", 12, cross_entropy_product},
};

}  // namespace qk::graph::gradient
