// SPDX-License-Identifier: Apache-2.0
// Implements activations with attributes, and PRelu. Each formula is written once, for one element and for a vector of float32.
#pragma once

#include <cmath>
#include <numbers>

#include "graph/ops/binary.hpp"
#include "graph/ops/broadcast.hpp"
#include "graph/ops/vector_math.hpp"
#include "graph/ops/walk/rules.hpp"

namespace qk::graph::ops {

// These overloads take one element or a vector, so that a formula is written only once.
template <class T>
T any_exp(T x) {
    return std::exp(x);
}
inline vfloat any_exp(vfloat x) { return vexp(x); }
template <class T>
T any_tanh(T x) {
    return std::tanh(x);
}
inline vfloat any_tanh(vfloat x) { return vtanh(x); }
template <class T>
T any_erf(T x) {
    return std::erf(x);
}
inline vfloat any_erf(vfloat x) { return verf(x); }
template <class T>
T any_sigmoid(T x) {
    return T{1} / (T{1} + std::exp(-x));
}
inline vfloat any_sigmoid(vfloat x) { return vsigmoid(x); }
/// Returns a constant in the formula's type.
template <class V>
V like(double c) {
    if constexpr (std::is_arithmetic_v<V>) return static_cast<V>(c);
    else return vector_fill(static_cast<float>(c));
}

/// Computes y = f(x). f is generic over vfloat and double.
template <class F>
tensor& map_activation(op_context& call, F f) {
    const tensor& x = call.input(0);
    tensor& y = call.output(0, x.type(), x.shape());
    dispatch(call, x.type(), float_types, [&]<class T>(type_tag<T>) {
        const T* from = x.as<T>().data();
        T* to = y.as<T>().data();
        if constexpr (std::is_same_v<T, float>)
            for_each_range(x.size(), 8, [&](std::size_t begin, std::size_t end) { map_vectors(from + begin, to + begin, end - begin, f); });
        else
            for (std::size_t i = 0; i < x.size(); ++i) to[i] = f(from[i]);
    });
    return y;
}

inline void leaky_relu(op_context& call) {
    const double alpha = call.node().get_float("alpha", 0.01f);
    map_activation(call, [=]<class V>(V x) -> V { return x < like<V>(0) ? x * like<V>(alpha) : x; });
}

inline void elu(op_context& call) {
    const double alpha = call.node().get_float("alpha", 1.0f);
    map_activation(call, [=]<class V>(V x) -> V { return x < like<V>(0) ? like<V>(alpha) * (any_exp(x) - like<V>(1)) : x; });
}

inline void selu(op_context& call) {
    const bool old = call.node().version() < 6;  // the constants had fewer digits
    const double alpha = call.node().get_float("alpha", old ? 1.6732f : 1.67326319217681884765625f);
    const double gamma = call.node().get_float("gamma", old ? 1.0507f : 1.05070102214813232421875f);
    map_activation(call,
                   [=]<class V>(V x) -> V { return like<V>(gamma) * (x > like<V>(0) ? x : like<V>(alpha) * (any_exp(x) - like<V>(1))); });
}

inline void celu(op_context& call) {
    const double alpha = call.node().get_float("alpha", 1.0f);
    map_activation(call,
                   [=]<class V>(V x) -> V { return x < like<V>(0) ? like<V>(alpha) * (any_exp(x / like<V>(alpha)) - like<V>(1)) : x; });
}

namespace functions {
struct gelu_by_tanh {
    template <class V>
    V operator()(V x) const {
        const V inner = like<V>(0.7978845608028654) * (x + like<V>(0.044715) * x * x * x);  // sqrt(2 / pi)
        return like<V>(0.5) * x * (like<V>(1) + any_tanh(inner));
    }
};
struct gelu_by_erf {
    template <class V>
    V operator()(V x) const {
        return like<V>(0.5) * x * (like<V>(1) + any_erf(x * like<V>(std::numbers::sqrt2 / 2)));
    }
};
}  // namespace functions

/// Returns Gelu's function of the node's `approximate` attribute, on float32 arrays.
inline auto gelu_of(const node_view& node) -> void (*)(const float* x, float* y, std::size_t n) {
    if (node.get_string("approximate", "none") == "tanh")
        return [](const float* x, float* y, std::size_t n) { map_vectors(x, y, n, functions::gelu_by_tanh{}); };
    return [](const float* x, float* y, std::size_t n) { map_vectors(x, y, n, functions::gelu_by_erf{}); };
}

inline void gelu(op_context& call) {
    if (call.node().get_string("approximate", "none") == "tanh") map_activation(call, functions::gelu_by_tanh{});
    else map_activation(call, functions::gelu_by_erf{});
}

inline void hard_sigmoid(op_context& call) {
    const double alpha = call.node().get_float("alpha", 0.2f), beta = call.node().get_float("beta", 0.5f);
    map_activation(call, [=]<class V>(V x) -> V {
        V y = x * like<V>(alpha) + like<V>(beta);
        y = y < like<V>(0) ? like<V>(0) : y;
        return y > like<V>(1) ? like<V>(1) : y;
    });
}

inline void thresholded_relu(op_context& call) {
    const double alpha = call.node().get_float("alpha", 1.0f);
    map_activation(call, [=]<class V>(V x) -> V { return x > like<V>(alpha) ? x : like<V>(0); });
}

inline void swish(op_context& call) {
    const double alpha = call.node().get_float("alpha", 1.0f);
    map_activation(call, [=]<class V>(V x) -> V { return x * any_sigmoid(x * like<V>(alpha)); });
}

/// Computes swish(input 0) * input 1.
inline void swiglu(op_context& call) {
    const double alpha = call.node().get_float("alpha", 1.0f);
    const tensor& value = call.input(1);
    if (value.shape() != call.input(0).shape() || value.type() != call.input(0).type()) call.fail("the inputs differ in shape or type");
    tensor& y = map_activation(call, [=]<class V>(V x) -> V { return x * any_sigmoid(x * like<V>(alpha)); });
    dispatch(call, value.type(), float_types, [&]<class T>(type_tag<T>) {
        for (std::size_t i = 0; i < value.size(); ++i) y.as<T>()[i] *= value.as<T>()[i];
    });
}

inline void shrink(op_context& call) {
    const double lambd = call.node().get_float("lambd", 0.5f), bias = call.node().get_float("bias", 0.0f);
    const tensor& x = call.input(0);
    tensor& y = call.output(0, x.type(), x.shape());
    dispatch(call, x.type(), number_types, [&]<class T>(type_tag<T>) {
        const auto from = x.as<T>();
        for (std::size_t i = 0; i < from.size(); ++i) {
            const double v = static_cast<double>(from[i]);
            y.as<T>()[i] = number_as<T>(v < -lambd ? v + bias : v > lambd ? v - bias : 0.0);
        }
    });
}

/// Returns PRelu's slope in a shape that broadcasts to x. Before opset 7 a slope of C elements belonged to axis 1 of x.
inline tensor aligned_slope(const node_view& node, const tensor& x, const tensor& slope) {
    if (node.version() >= 7 || slope.rank() != 1 || x.rank() <= 1 || slope.size() <= 1) return slope;
    dims shape(x.rank() - 1, 1);
    shape[0] = slope.dim(0);
    return slope.reshaped(shape);
}

inline void prelu(op_context& call) {
    const tensor& x = call.input(0);
    const tensor slope = aligned_slope(call.node(), x, call.input(1));
    const tensor* operands[] = {&x, &slope};
    const dims shape = broadcast_shape(call, operands);
    tensor& y = call.output(0, x.type(), shape);
    if (slope.type() != x.type()) call.fail("x and slope differ in type");
    map_numbers<number_types>(call, shape, x, slope, y, []<class T>(T a, T s) { return a < T{0} ? functions::multiply{}(a, s) : a; });
}

inline constexpr op_entry activation_ops[] = {
    {"", "LeakyRelu", 1, through_float32<leaky_relu>, nullptr, {follow_unary}, {one_by_one}},
    {"", "Elu", 1, through_float32<elu>, nullptr, {follow_unary}, {one_by_one}},
    {"", "Selu", 1, through_float32<selu>, nullptr, {follow_unary}, {one_by_one}},
    {"", "Celu", 12, through_float32<celu>, nullptr, {follow_unary}, {one_by_one}},
    {"", "Gelu", 20, through_float32<gelu>, nullptr, {follow_unary}, {one_by_one}},
    {"", "HardSigmoid", 1, through_float32<hard_sigmoid>, nullptr, {follow_unary}, {one_by_one}},
    {"", "ThresholdedRelu", 1, through_float32<thresholded_relu>, nullptr, {follow_unary}, {one_by_one}},
    {"", "Swish", 24, through_float32<swish>, nullptr, {follow_unary}, {one_by_one}},
    {"", "SwiGLU", 28, through_float32<swiglu>, nullptr, {follow_elements}},
    {"", "Shrink", 9, through_float32<shrink>, nullptr, {follow_unary}},
    {"", "PRelu", 1, through_float32<prelu>, nullptr, {follow_elements}, {.inputs = 2}},
};

}  // namespace qk::graph::ops
