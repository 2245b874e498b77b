// SPDX-License-Identifier: Apache-2.0
// Vector-Jacobian products of operators that work on one element: dx = g * f'(x), with f' written in x and in y = f(x). At a kink the
// smaller slope counts (Relu at 0: 0).
#pragma once

#include <cmath>
#include <numbers>

#include "graph/gradient/backward.hpp"

namespace qk::graph::gradient {

/// Gives dx = g * slope(x, y).
template <class F>
void map_slope(backward_call& call, F slope) {
    with_gradient_type(call, [&]<class T>(T) {
        const tensor x = call.real<T>(0), y = call.result<T>(0);
        tensor dx = call.over_gradient();
        const T *px = x.as<T>().data(), *py = y.as<T>().data(), *g = call.gradient().as<T>().data();
        write_over(x.size(), dx.as<T>().data(), [=](std::size_t i) { return g[i] * static_cast<T>(slope(px[i], py[i])); });
        call.give(0, dx);
    });
}

/// Gives zeros: the slope of a step function is 0 wherever there is one.
inline void no_slope(backward_call& call) {
    map_slope(call, []<class T>(T, T) { return T{0}; });
}

template <class T>
T normal_density(T x) {
    return std::exp(-x * x / 2) * static_cast<T>(std::numbers::inv_sqrtpi / std::numbers::sqrt2);
}
template <class T>
T gelu_slope(T x) {
    return static_cast<T>(0.5) * (1 + std::erf(x * static_cast<T>(std::numbers::sqrt2 / 2))) + x * normal_density(x);
}
template <class T>
T tanh_gelu_slope(T x) {
    const T c = static_cast<T>(0.7978845608028654), k = static_cast<T>(0.044715);
    const T t = std::tanh(c * (x + k * x * x * x));
    return static_cast<T>(0.5) * (1 + t) + static_cast<T>(0.5) * x * (1 - t * t) * c * (1 + 3 * k * x * x);
}
template <class T>
T logistic(T x) {
    return 1 / (1 + std::exp(-x));
}
/// Returns the slope of x * sigmoid(a * x).
template <class T>
T swish_slope(T x, T a) {
    const T s = logistic(a * x);
    return s + a * x * s * (1 - s);
}

inline void leaky_relu_backward(backward_call& call) {
    const double a = static_cast<double>(call.node().get_float("alpha", 0.01f));
    map_slope(call, [a]<class T>(T x, T) { return x > 0 ? T{1} : static_cast<T>(a); });
}
inline void elu_backward(backward_call& call) {
    const double a = static_cast<double>(call.node().get_float("alpha", 1.0f));
    map_slope(call, [a]<class T>(T x, T) { return x > 0 ? T{1} : static_cast<T>(a) * std::exp(x); });
}
inline void selu_backward(backward_call& call) {
    const double a = static_cast<double>(call.node().get_float("alpha", 1.67326319217681884765625f)),
                 c = static_cast<double>(call.node().get_float("gamma", 1.05070102214813232421875f));
    map_slope(call, [a, c]<class T>(T x, T) { return x > 0 ? static_cast<T>(c) : static_cast<T>(c * a) * std::exp(x); });
}
inline void celu_backward(backward_call& call) {
    const double a = static_cast<double>(call.node().get_float("alpha", 1.0f));
    map_slope(call, [a]<class T>(T x, T) { return x > 0 ? T{1} : std::exp(x / static_cast<T>(a)); });
}
inline void gelu_backward(backward_call& call) {
    if (call.node().get_string("approximate", "none") == "tanh") return map_slope(call, []<class T>(T x, T) { return tanh_gelu_slope(x); });
    map_slope(call, []<class T>(T x, T) { return gelu_slope(x); });
}
inline void hard_sigmoid_backward(backward_call& call) {
    const double a = static_cast<double>(call.node().get_float("alpha", 0.2f));
    map_slope(call, [a]<class T>(T, T y) { return y > 0 && y < 1 ? static_cast<T>(a) : T{0}; });
}
inline void hard_swish_backward(backward_call& call) {
    map_slope(call, []<class T>(T x, T) { return x <= -3 ? T{0} : x >= 3 ? T{1} : (2 * x + 3) / 6; });
}
inline void thresholded_relu_backward(backward_call& call) {
    const double a = static_cast<double>(call.node().get_float("alpha", 1.0f));
    map_slope(call, [a]<class T>(T x, T) { return x > static_cast<T>(a) ? T{1} : T{0}; });
}
inline void swish_backward(backward_call& call) {
    const double a = static_cast<double>(call.node().get_float("alpha", 1.0f));
    map_slope(call, [a]<class T>(T x, T) { return swish_slope(x, static_cast<T>(a)); });
}
inline void shrink_backward(backward_call& call) {
    const double l = static_cast<double>(call.node().get_float("lambd", 0.5f));
    map_slope(call, [l]<class T>(T x, T) { return std::abs(x) > static_cast<T>(l) ? T{1} : T{0}; });
}
inline void mish_backward(backward_call& call) {
    map_slope(call, []<class T>(T x, T) {
        const T t = std::tanh(std::max(x, T{0}) + std::log1p(std::exp(-std::abs(x))));
        return t + x * (1 - t * t) * logistic(x);
    });
}
inline void clip_backward(backward_call& call) {
    // A value on a bound counts as clipped: its gradient goes to the bound.
    with_gradient_type(call, [&]<class T>(T) {
        op_context context = call.context();
        T low = -std::numeric_limits<T>::infinity(), high = -low;
        if (call.node().version() < 11) {
            low = static_cast<T>(call.node().get_float("min", std::numeric_limits<float>::lowest()));
            high = static_cast<T>(call.node().get_float("max", std::numeric_limits<float>::max()));
        }
        if (call.has_input(1)) low = ops::scalar_value<T>(context, call.input(1));
        if (call.has_input(2)) high = ops::scalar_value<T>(context, call.input(2));
        const tensor x = call.real<T>(0);
        tensor dx(type_of<T>, x.shape());
        const auto g = call.gradient().as<T>();
        double at_low = 0, at_high = 0;
        for (std::size_t i = 0; i < x.size(); ++i) {
            const T v = x.as<T>()[i];
            const bool above = v >= high, below = !above && v <= low;
            dx.as<T>()[i] = above || below ? T{0} : g[i];
            if (above) at_high += static_cast<double>(g[i]);
            if (below) at_low += static_cast<double>(g[i]);
        }
        call.give(0, dx);
        if (call.wants(1)) call.give(1, make_tensor<T>(call.input(1).shape(), std::array{static_cast<T>(at_low)}));
        if (call.wants(2)) call.give(2, make_tensor<T>(call.input(2).shape(), std::array{static_cast<T>(at_high)}));
    });
}

inline constexpr backward_entry unary_backward_rows[] = {
    {"", "Acos", 1, [](backward_call& c) { map_slope(c, []<class T>(T x, T) { return -1 / std::sqrt(1 - x * x); }); }},
    {"", "Acosh", 1, [](backward_call& c) { map_slope(c, []<class T>(T x, T) { return 1 / std::sqrt(x * x - 1); }); }},
    {"", "Asin", 1, [](backward_call& c) { map_slope(c, []<class T>(T x, T) { return 1 / std::sqrt(1 - x * x); }); }},
    {"", "Asinh", 1, [](backward_call& c) { map_slope(c, []<class T>(T x, T) { return 1 / std::sqrt(x * x + 1); }); }},
    {"", "Atan", 1, [](backward_call& c) { map_slope(c, []<class T>(T x, T) { return 1 / (x * x + 1); }); }},
    {"", "Atanh", 1, [](backward_call& c) { map_slope(c, []<class T>(T x, T) { return 1 / (1 - x * x); }); }},
    {"", "Cos", 1, [](backward_call& c) { map_slope(c, []<class T>(T x, T) { return -std::sin(x); }); }},
    {"", "Cosh", 1, [](backward_call& c) { map_slope(c, []<class T>(T x, T) { return std::sinh(x); }); }},
    {"", "Sin", 1, [](backward_call& c) { map_slope(c, []<class T>(T x, T) { return std::cos(x); }); }},
    {"", "Sinh", 1, [](backward_call& c) { map_slope(c, []<class T>(T x, T) { return std::cosh(x); }); }},
    {"", "Tan", 1, [](backward_call& c) { map_slope(c, []<class T>(T, T y) { return 1 + y * y; }); }},
    {"", "Tanh", 1, [](backward_call& c) { map_slope(c, []<class T>(T, T y) { return 1 - y * y; }); }},
    {"", "Exp", 1, [](backward_call& c) { map_slope(c, []<class T>(T, T y) { return y; }); }},
    {"", "Log", 1, [](backward_call& c) { map_slope(c, []<class T>(T x, T) { return 1 / x; }); }},
    {"", "Sqrt", 1, [](backward_call& c) { map_slope(c, []<class T>(T, T y) { return 1 / (2 * y); }); }},
    {"", "Reciprocal", 1, [](backward_call& c) { map_slope(c, []<class T>(T, T y) { return -y * y; }); }},
    {"", "Sigmoid", 1, [](backward_call& c) { map_slope(c, []<class T>(T, T y) { return y * (1 - y); }); }},
    {"", "Softplus", 1, [](backward_call& c) { map_slope(c, []<class T>(T x, T) { return logistic(x); }); }},
    {"", "Softsign", 1,
     [](backward_call& c) { map_slope(c, []<class T>(T x, T) { return 1 / ((1 + std::abs(x)) * (1 + std::abs(x))); }); }},
    {"", "Erf", 1,
     [](backward_call& c) {
         map_slope(c, []<class T>(T x, T) { return static_cast<T>(2 * std::numbers::inv_sqrtpi) * std::exp(-x * x); });
     }},
    {"", "Neg", 1, [](backward_call& c) { map_slope(c, []<class T>(T, T) { return T{-1}; }); }},
    {"", "Abs", 1, [](backward_call& c) { map_slope(c, []<class T>(T x, T) { return static_cast<T>((x > 0) - (x < 0)); }); }},
    {"", "Ceil", 1, no_slope},
    {"", "Floor", 1, no_slope},
    {"", "Round", 1, no_slope},
    {"", "Sign", 1, no_slope},
    {"", "Hardmax", 1, no_slope},
    {"", "Relu", 1, [](backward_call& c) { map_slope(c, []<class T>(T x, T) { return x > 0 ? T{1} : T{0}; }); }},
    {"", "LeakyRelu", 1, leaky_relu_backward},
    {"", "Elu", 1, elu_backward},
    {"", "Selu", 1, selu_backward},
    {"", "Celu", 1, celu_backward},
    {"", "Gelu", 1, gelu_backward},
    {"", "HardSigmoid", 1, hard_sigmoid_backward},
    {"", "HardSwish", 1, hard_swish_backward},
    {"", "ThresholdedRelu", 1, thresholded_relu_backward},
    {"", "Swish", 1, swish_backward},
    {"", "Shrink", 1, shrink_backward},
    {"", "Mish", 1, mish_backward},
    {"", "Clip", 1, clip_backward},
};

}  // namespace qk::graph::gradient
