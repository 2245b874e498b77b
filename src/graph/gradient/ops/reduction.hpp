// SPDX-License-Identifier: Apache-2.0
// Vector-Jacobian products of the Reduce operators, Softmax, LogSoftmax and CumSum. Equal extremes get equal shares.
#pragma once

#include <cmath>
#include <vector>

#include "graph/gradient/backward.hpp"
#include "graph/gradient/reduce_to.hpp"
#include "graph/model/operator_name.hpp"
#include "graph/ops/reduce.hpp"
#include "graph/ops/softmax.hpp"

namespace qk::graph::gradient {

/// Returns the shape of a reduction of x with reduced axes of length 1.
inline dims kept_shape(op_context& context, const tensor& x) {
    const ops::reduction r = ops::find_reduction(context, x);
    dims kept = x.shape();
    for (std::size_t a = 0; a < kept.size(); ++a)
        if (r.reduced[a]) kept[a] = 1;
    return kept;
}

/// Gives dx[i] = slope(g, x, y, n), with g and y of the result's element that x[i] goes into, as one of n elements.
template <class F>
void map_reduced(backward_call& call, F slope) {
    with_gradient_type(call, [&]<class T>(T) {
        op_context context = call.context();
        const tensor x = call.real<T>(0), y = call.result<T>(0);
        const dims kept = kept_shape(context, x);
        const std::size_t n = y.size() == 0 ? 1 : x.size() / y.size();
        tensor dx(type_of<T>, x.shape());
        const auto g = call.gradient().as<T>();
        each_broadcast(x.shape(), kept, [&](std::size_t i, std::size_t j) { dx.as<T>()[i] = slope(g[j], x.as<T>()[i], y.as<T>()[j], n); });
        call.give(0, dx);
    });
}

/// Max, Min: extremes get equal shares. Prod: the slope is the product of the other elements, also where one of them is 0.
inline void reduce_choice_backward(backward_call& call) {
    const bool product = operator_of(call.node()) == "ReduceProd";
    with_gradient_type(call, [&]<class T>(T) {
        op_context context = call.context();
        const tensor x = call.real<T>(0), y = call.result<T>(0);
        const dims kept = kept_shape(context, x);
        std::vector<double> others(y.size(), 1.0);        // of Prod: the product of the nonzero elements
        std::vector<std::uint32_t> special(y.size(), 0);  // Prod: number of zeros; else number of extremes
        each_broadcast(x.shape(), kept, [&](std::size_t i, std::size_t j) {
            const T v = x.as<T>()[i];
            special[j] += product ? v == 0 : v == y.as<T>()[j];
            if (v != 0) others[j] *= static_cast<double>(v);
        });
        tensor dx(type_of<T>, x.shape());
        each_broadcast(x.shape(), kept, [&](std::size_t i, std::size_t j) {
            const T v = x.as<T>()[i], g = call.gradient().as<T>()[j];
            if (!product) dx.as<T>()[i] = v == y.as<T>()[j] ? g / static_cast<T>(special[j]) : T{0};
            else if (v == 0) dx.as<T>()[i] = special[j] == 1 ? g * static_cast<T>(others[j]) : T{0};
            else dx.as<T>()[i] = special[j] == 0 ? static_cast<T>(static_cast<double>(g) * others[j] / static_cast<double>(v)) : T{0};
        });
        call.give(0, dx);
    });
}

/// Sums term(g, y) along the axis, and gives slope(g, y, sum).
template <class Term, class Slope>
void map_along_axis(backward_call& call, Term term, Slope slope) {
    with_gradient_type(call, [&]<class T>(T) {
        const ops::axis_split s = ops::softmax_axis(call.context(), call.input(0));
        const tensor y = call.result<T>(0);
        tensor dx(type_of<T>, y.shape());
        for (std::size_t o = 0; o < s.outer && y.size() != 0; ++o)
            for (std::size_t j = 0; j < s.inner; ++j) {
                const std::size_t base = o * s.length * s.inner + j;
                const T *g = call.gradient().as<T>().data() + base, *v = y.as<T>().data() + base;
                T* to = dx.as<T>().data() + base;
                double sum = 0;
                for (std::size_t i = 0; i < s.length * s.inner; i += s.inner) sum += static_cast<double>(term(g[i], v[i]));
                for (std::size_t i = 0; i < s.length * s.inner; i += s.inner) to[i] = slope(g[i], v[i], static_cast<T>(sum));
            }
        call.give(0, dx);
    });
}
inline void softmax_backward(backward_call& call) {
    map_along_axis(
        call, []<class T>(T g, T y) { return g * y; }, []<class T>(T g, T y, T sum) { return y * (g - sum); });
}
inline void log_softmax_backward(backward_call& call) {
    map_along_axis(
        call, []<class T>(T g, T) { return g; }, []<class T>(T g, T y, T sum) { return g - std::exp(y) * sum; });
}

/// The product of a sum over the elements before is a sum over those after.
inline void cumulative_sum_backward(backward_call& call) {
    const bool exclusive = call.node().get_int("exclusive", 0) != 0, reverse = call.node().get_int("reverse", 0) != 0;
    with_gradient_type(call, [&]<class T>(T) {
        op_context context = call.context();
        const auto axis = ops::normal_axis(context, ops::scalar_value<std::int64_t>(context, call.input(1)), call.input(0).rank());
        const ops::axis_split s = ops::split_at(call.input(0).shape(), axis);
        tensor dx(type_of<T>, call.input(0).shape());
        for (std::size_t o = 0; o < s.outer; ++o)
            for (std::size_t j = 0; j < s.inner; ++j) {
                double sum = 0;
                for (std::size_t k = 0; k < s.length; ++k) {
                    const std::size_t at = (o * s.length + (reverse ? k : s.length - 1 - k)) * s.inner + j;
                    const auto g = static_cast<double>(call.gradient().as<T>()[at]);
                    if (!exclusive) sum += g;
                    dx.as<T>()[at] = static_cast<T>(sum);
                    if (exclusive) sum += g;
                }
            }
        call.give(0, dx);
    });
}

inline constexpr backward_entry reduction_backward_rows[] = {
    {"", "ReduceSum", 1, [](backward_call& c) { map_reduced(c, []<class T>(T g, T, T, std::size_t) { return g; }); }},
    {"", "ReduceMean", 1,
     [](backward_call& c) { map_reduced(c, []<class T>(T g, T, T, std::size_t n) { return g / static_cast<T>(n); }); }},
    {"", "ReduceL1", 1,
     [](backward_call& c) { map_reduced(c, []<class T>(T g, T x, T, std::size_t) { return g * static_cast<T>((x > 0) - (x < 0)); }); }},
    {"", "ReduceL2", 1,
     [](backward_call& c) { map_reduced(c, []<class T>(T g, T x, T y, std::size_t) { return y == 0 ? T{0} : g * x / y; }); }},
    {"", "ReduceSumSquare", 1, [](backward_call& c) { map_reduced(c, []<class T>(T g, T x, T, std::size_t) { return 2 * g * x; }); }},
    {"", "ReduceLogSum", 1, [](backward_call& c) { map_reduced(c, []<class T>(T g, T, T y, std::size_t) { return g / std::exp(y); }); }},
    {"", "ReduceLogSumExp", 1,
     [](backward_call& c) { map_reduced(c, []<class T>(T g, T x, T y, std::size_t) { return g * std::exp(x - y); }); }},
    {"", "ReduceMax", 1, reduce_choice_backward},
    {"", "ReduceMin", 1, reduce_choice_backward},
    {"", "ReduceProd", 1, reduce_choice_backward},
    {"", "Softmax", 1, softmax_backward},
    {"", "LogSoftmax", 1, log_softmax_backward},
    {"", "CumSum", 1, cumulative_sum_backward},
};

}  // namespace qk::graph::gradient
