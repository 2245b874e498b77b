// SPDX-License-Identifier: Apache-2.0
// Vector-Jacobian products of arithmetic with broadcasting: Add, Sub, Mul, Div, Pow, Mod, PRelu, and Sum, Mean, Max, Min of any number of
// operands.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <vector>

#include "graph/gradient/backward.hpp"
#include "graph/gradient/ops/unary.hpp"
#include "graph/gradient/reduce_to.hpp"
#include "graph/model/operator_name.hpp"
#include "graph/ops/activation.hpp"
#include "graph/ops/binary.hpp"
#include "graph/ops/unary.hpp"

namespace qk::graph::gradient {

/// Writes f(g, a, b), with a and b broadcast to g's shape, to `all`, which may be g itself. Each combination of moving and constant
/// operands has a loop of its own, so that each vectorises.
template <class T, class F>
tensor map_operands(const tensor& g, const tensor& a, const tensor& b, F f, tensor all) {
    const ops::broadcast_walk<2> walk(g.shape(), {&a.shape(), &b.shape()});
    const T *pg = g.as<T>().data(), *pa = a.as<T>().data(), *pb = b.as<T>().data();
    T* py = all.as<T>().data();
    const std::size_t n = walk.run;
    walk.each_run([&](std::size_t out, const std::array<std::size_t, 2>& at) {
        const T *d = pg + out, *x = pa + at[0], *w = pb + at[1];
        T* to = py + out;
        if (walk.step[0] && walk.step[1]) write_over(n, to, [=](std::size_t i) { return f(d[i], x[i], w[i]); });
        else if (walk.step[0]) write_over(n, to, [=, one = *w](std::size_t i) { return f(d[i], x[i], one); });
        else if (walk.step[1]) write_over(n, to, [=, one = *x](std::size_t i) { return f(d[i], one, w[i]); });
        else write_over(n, to, [=, one = *x, other = *w](std::size_t i) { return f(d[i], one, other); });
    });
    return all;
}

template <class T>
double sum_in_double(std::span<const T> x) {
    return ops::lane_sum<double>(x.size(), [x](std::size_t i) { return static_cast<double>(x[i]); });
}

/// Returns the sum of n terms in double. fill(from, terms) writes a block of them, from index `from` on.
template <class T, class F>
double sum_of_terms(std::size_t n, F fill) {
    std::array<T, 256> terms;
    double sum = 0;
    for (std::size_t from = 0; from < n; from += terms.size()) {
        const std::span<T> block = std::span(terms).first(std::min(terms.size(), n - from));
        fill(from, block);
        sum += sum_in_double<T>(block);
    }
    return sum;
}

/// Gives input i the sums of f(g, a, b), with both operands broadcast. `last`: nothing reads g afterwards, so it may be overwritten.
template <class T, class F>
void give_operand(backward_call& call, std::size_t i, const tensor& a, const tensor& b, F f, bool last = false) {
    if (!call.wants(i)) return;
    const tensor& g = call.gradient();
    const tensor &own = i == 0 ? a : b, &other = i == 0 ? b : a;
    if (own.size() == 1 && other.size() == g.size()) {  // a scalar: its sum needs no tensor of terms
        const T *d = g.as<T>().data(), *x = other.as<T>().data();
        const T number = own.as<T>()[0];
        const double sum = sum_of_terms<T>(g.size(), [=](std::size_t from, std::span<T> terms) {
            const T *of = d + from, *with = x + from;
            if (i == 0) write_over(terms.size(), terms.data(), [=](std::size_t k) { return f(of[k], number, with[k]); });
            else write_over(terms.size(), terms.data(), [=](std::size_t k) { return f(of[k], with[k], number); });
        });
        return call.give(i, make_tensor<T>(own.shape(), std::array{static_cast<T>(sum)}));
    }
    call.give(i, reduced_to<T>(map_operands<T>(g, a, b, f, last ? call.over_gradient() : tensor(g.type(), g.shape())), own.shape()));
}

/// Handles y = f(a, b): by_a and by_b return g times the slope by a and by b.
template <class A, class B>
void map_slopes(backward_call& call, A by_a, B by_b) {
    with_gradient_type(call, [&]<class T>(T) {
        const tensor a = call.real<T>(0), b = ops::aligned_operand(call.context(), a, call.real<T>(1));
        const bool number_first = a.size() == 1;  // the sum of a scalar reads g before the other gradient may overwrite it
        if (number_first) give_operand<T>(call, 0, a, b, by_a, !call.wants(1));
        give_operand<T>(call, 1, a, b, by_b, number_first || !call.wants(0));
        if (!number_first) give_operand<T>(call, 0, a, b, by_a, true);
    });
}

inline void add_backward(backward_call& call) {
    with_gradient_type(call, [&]<class T>(T) {
        const tensor b = ops::aligned_operand(call.context(), call.input(0), call.input(1));
        if (call.wants(0)) call.give(0, reduced_to<T>(call.gradient(), call.input(0).shape()));
        if (call.wants(1)) call.give(1, reduced_to<T>(call.gradient(), b.shape()));
    });
}
inline void subtract_backward(backward_call& call) {
    map_slopes(
        call, []<class T>(T g, T, T) { return g; }, []<class T>(T g, T, T) { return -g; });
}
inline void multiply_backward(backward_call& call) {
    map_slopes(
        call, []<class T>(T g, T, T b) { return g * b; }, []<class T>(T g, T a, T) { return g * a; });
}
inline void divide_backward(backward_call& call) {
    map_slopes(
        call, []<class T>(T g, T, T b) { return g / b; }, []<class T>(T g, T a, T b) { return -g * a / (b * b); });
}
inline void modulo_backward(backward_call& call) {
    const bool c_sign = call.node().get_int("fmod", 0) != 0;
    map_slopes(
        call, []<class T>(T g, T, T) { return g; },
        [c_sign]<class T>(T g, T a, T b) { return -g * (c_sign ? std::trunc(a / b) : std::floor(a / b)); });
}
/// Returns the sum of g * y * log x over the elements where x has a logarithm.
template <class T>
double sum_with_logarithm(std::span<const T> g, std::span<const T> y, std::span<const T> x) {
    return sum_of_terms<T>(x.size(), [&](std::size_t from, std::span<T> terms) {
        ops::map_unary<ops::functions::log>(x.data() + from, terms.data(), terms.size());
        for (std::size_t i = 0; i < terms.size(); ++i) terms[i] = x[from + i] > T{0} ? g[from + i] * y[from + i] * terms[i] : T{0};
    });
}

/// y = a^b. By a: b * a^(b-1), without pow for squares, cubes and roots; by b: y * log a where there is a logarithm.
inline void power_backward(backward_call& call) {
    with_gradient_type(call, [&]<class T>(T) {
        const tensor &g = call.gradient(), a = call.real<T>(0), b = ops::aligned_operand(call.context(), a, call.real<T>(1));
        const T alone = b.size() == 1 ? b.as<T>()[0] : T{0};
        if (alone == 2) give_operand<T>(call, 0, a, b, [](T d, T x, T) { return d * 2 * x; });
        else if (alone == static_cast<T>(0.5)) give_operand<T>(call, 0, a, b, [](T d, T x, T) { return d / (2 * std::sqrt(x)); });
        else if (alone == 3) give_operand<T>(call, 0, a, b, [](T d, T x, T) { return d * 3 * x * x; });
        else give_operand<T>(call, 0, a, b, [](T d, T x, T n) { return n == 0 ? T{0} : d * n * std::pow(x, n - 1); });
        if (!call.wants(1)) return;
        const tensor y = call.result<T>(0);
        if (b.size() == 1 && y.size() == a.size())
            return call.give(1, make_tensor<T>(b.shape(), std::array{static_cast<T>(sum_with_logarithm(g.as<T>(), y.as<T>(), a.as<T>()))}));
        const tensor all = map_operands<T>(
            g, a, y, [](T d, T x, T p) { return x > 0 ? d * p * std::log(x) : T{0}; }, tensor(g.type(), g.shape()));
        call.give(1, reduced_to<T>(all, b.shape()));
    });
}

inline void prelu_backward(backward_call& call) {
    with_gradient_type(call, [&]<class T>(T) {
        const tensor x = call.real<T>(0), slope = ops::aligned_slope(call.node(), x, call.real<T>(1));
        give_operand<T>(call, 0, x, slope, [](T g, T a, T s) { return a > 0 ? g : g * s; });
        give_operand<T>(call, 1, x, slope, [](T g, T a, T) { return a > 0 ? T{0} : g * a; });
    });
}

/// Handles Sum and Mean: each operand gets g, for Mean divided by the number of operands.
inline void sum_backward(backward_call& call) {
    const bool mean = operator_of(call.node()) == "Mean";
    with_gradient_type(call, [&]<class T>(T) {
        tensor g = call.gradient();
        if (mean) {
            g = tensor(type_of<T>, call.gradient().shape());
            for (std::size_t i = 0; i < g.size(); ++i) g.as<T>()[i] = call.gradient().as<T>()[i] / static_cast<T>(call.input_count());
        }
        for (std::size_t k = 0; k < call.input_count(); ++k)
            if (call.wants(k)) call.give(k, reduced_to<T>(g, call.input(k).shape()));
    });
}

/// Max, Min: the gradient goes to the operands that equal the result, in equal shares.
inline void extreme_backward(backward_call& call) {
    with_gradient_type(call, [&]<class T>(T) {
        const tensor &g = call.gradient(), y = call.result<T>(0);
        std::vector<std::uint32_t> equal(y.size(), 0);
        std::vector<tensor> x;
        for (std::size_t k = 0; k < call.input_count(); ++k) {
            x.push_back(call.real<T>(k));
            each_broadcast(y.shape(), x[k].shape(), [&](std::size_t i, std::size_t j) { equal[i] += x[k].as<T>()[j] == y.as<T>()[i]; });
        }
        for (std::size_t k = 0; k < call.input_count(); ++k) {
            if (!call.wants(k)) continue;
            tensor all(type_of<T>, y.shape());
            each_broadcast(y.shape(), x[k].shape(), [&](std::size_t i, std::size_t j) {
                all.as<T>()[i] = x[k].as<T>()[j] == y.as<T>()[i] ? g.as<T>()[i] / static_cast<T>(equal[i]) : T{0};
            });
            call.give(k, reduced_to<T>(all, x[k].shape()));
        }
    });
}

/// Handles SwiGLU: x * sigmoid(alpha * x) * value.
inline void swiglu_backward(backward_call& call) {
    const double alpha = static_cast<double>(call.node().get_float("alpha", 1.0f));
    map_slopes(
        call, [alpha]<class T>(T g, T x, T v) { return g * v * swish_slope(x, static_cast<T>(alpha)); },
        [alpha]<class T>(T g, T x, T) { return g * x * logistic(static_cast<T>(alpha) * x); });
}

inline constexpr backward_entry arithmetic_backward_rows[] = {
    {"", "Add", 1, add_backward},     {"", "Sub", 1, subtract_backward}, {"", "Mul", 1, multiply_backward},
    {"", "Div", 1, divide_backward},  {"", "Mod", 1, modulo_backward},   {"", "Pow", 1, power_backward},
    {"", "PRelu", 1, prelu_backward}, {"", "Sum", 1, sum_backward},      {"", "Mean", 1, sum_backward},
    {"", "Max", 1, extreme_backward}, {"", "Min", 1, extreme_backward},  {"", "SwiGLU", 1, swiglu_backward},
};

}  // namespace qk::graph::gradient
