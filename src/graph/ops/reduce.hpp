// SPDX-License-Identifier: Apache-2.0
// Implements ReduceSum, Mean, Max, Min, Prod, L1, L2, SumSquare, LogSum, LogSumExp. Axes are an attribute before opset 18 (ReduceSum: 13),
// an input since then. The reduced axes are contiguous or moved to the end, so that two loops suffice, each in a fixed order.
#pragma once

#include <cmath>
#include <limits>

#include "graph/ops/binary.hpp"
#include "graph/ops/transpose.hpp"
#include "graph/ops/unary.hpp"
#include "graph/ops/vector_math.hpp"
#include "graph/ops/walk/rules.hpp"

namespace qk::graph::ops {

// A reduction has start, map (of an element), fold (of two values) and finish. map and fold also take vectors of float32.
namespace reducers {
struct base {
    template <class T>
    static T start() {
        return T{0};
    }
    static auto map(auto x) { return x; }
    template <class V>
    static V fold(V a, V b) {
        if constexpr (std::is_integral_v<V>) return functions::add{}(a, b);
        else return a + b;
    }
    static auto finish(auto x, std::size_t) { return x; }
};
struct sum : base {};
struct mean : base {
    template <class T>
    static T finish(T x, std::size_t n) {
        return divide_by_count(x, n);
    }
};
struct sum_square : base {
    template <class V>
    static V map(V x) {
        if constexpr (std::is_integral_v<V>) return functions::multiply{}(x, x);
        else return x * x;
    }
};
struct l2 : sum_square {
    template <class T>
    static T finish(T x, std::size_t) {
        if constexpr (std::is_floating_point_v<T>) return std::sqrt(x);
        else return static_cast<T>(detail::to_int64(std::sqrt(static_cast<double>(x))));
    }
};
struct l1 : base {
    template <class V>
    static V map(V x) {
        if constexpr (std::is_arithmetic_v<V>) return functions::absolute::of(x);
        else return vector_abs(x);
    }
};
struct log_sum : base {
    template <class T>
    static T finish(T x, std::size_t) {
        if constexpr (std::is_floating_point_v<T>) return std::log(x);
        else return static_cast<T>(detail::to_int64(std::log(static_cast<double>(x))));
    }
};
struct prod : base {
    template <class T>
    static T start() {
        return T{1};
    }
    template <class V>
    static V fold(V a, V b) {
        if constexpr (std::is_integral_v<V>) return functions::multiply{}(a, b);
        else return a * b;
    }
};
struct max : base {
    template <class T>
    static T start() {
        return std::numeric_limits<T>::has_infinity ? -std::numeric_limits<T>::infinity() : std::numeric_limits<T>::lowest();
    }
    template <class V>
    static V fold(V a, V b) {
        return vector_larger{}(a, b);
    }
};
struct min : base {
    template <class T>
    static T start() {
        return std::numeric_limits<T>::has_infinity ? std::numeric_limits<T>::infinity() : std::numeric_limits<T>::max();
    }
    template <class V>
    static V fold(V a, V b) {
        return vector_smaller{}(a, b);
    }
};
}  // namespace reducers

/// The axes that a Reduce node reduces, and the shape of its result.
struct reduction {
    std::vector<bool> reduced;
    dims shape;
    bool nothing = false;  ///< noop_with_empty_axes and no axes: no axis is reduced
};

inline reduction find_reduction(op_context& call, const tensor& x) {
    reduction r;
    std::vector<std::int64_t> axes = call.node().get_ints("axes");
    if (call.has_input(1)) axes = int_values(call, call.input(1));
    r.nothing = axes.empty() && call.node().get_int("noop_with_empty_axes", 0) != 0;
    r.reduced.assign(x.rank(), axes.empty() && !r.nothing);
    for (const std::int64_t a : axes) r.reduced[normal_axis(call, a, x.rank())] = true;
    const bool keep = call.node().get_int("keepdims", 1) != 0;
    for (std::size_t i = 0; i < x.rank(); ++i)
        if (!r.reduced[i]) r.shape.push_back(x.dim(i));
        else if (keep) r.shape.push_back(1);
    return r;
}

/// x with contiguous reduced axes, as outer x length x inner; transposed so that inner = 1 if they are apart, or if `last` demands it.
struct reduction_view {
    tensor x;
    axis_split split;
};

inline reduction_view gather_reduced(op_context& call, const tensor& x, const std::vector<bool>& reduced, bool last) {
    axis_split s;
    std::size_t pieces = 0;
    bool inside = false;
    for (std::size_t i = 0; i < reduced.size(); ++i) {
        const auto n = static_cast<std::size_t>(x.dim(i));
        if (reduced[i]) {
            s.length *= n;
            if (n != 1 && !inside) {
                ++pieces;
                inside = true;
            }
        } else {
            (pieces == 0 ? s.outer : s.inner) *= n;
            if (n != 1) inside = false;
        }
    }
    if (pieces <= 1 && (s.inner == 1 || !last)) return {x, s};
    std::vector<std::size_t> order;
    for (const bool wanted : {false, true})
        for (std::size_t i = 0; i < reduced.size(); ++i)
            if (reduced[i] == wanted) order.push_back(i);
    return {transposed(call, x, order), {s.outer * s.inner, s.length, 1}};
}

template <class R, class T>
void reduce_rows(const T* x, T* y, const axis_split& s) {
    if (s.inner == 1) {
        for (std::size_t o = 0; o < s.outer; ++o, x += s.length) {
            T total;
            if constexpr (std::is_same_v<T, float>) {
                total = fold_row(
                    x, s.length, R::template start<float>(), [](auto v) { return R::map(v); },
                    [](auto a, auto b) { return R::fold(a, b); });
            } else {
                total = R::template start<T>();
                for (std::size_t i = 0; i < s.length; ++i) total = R::fold(total, R::map(x[i]));
            }
            y[o] = R::finish(total, s.length);
        }
        return;
    }
    for (std::size_t o = 0; o < s.outer; ++o, y += s.inner) {
        std::fill_n(y, s.inner, R::template start<T>());
        for (std::size_t i = 0; i < s.length; ++i, x += s.inner)
            for (std::size_t j = 0; j < s.inner; ++j) y[j] = R::fold(y[j], R::map(x[j]));
        for (std::size_t j = 0; j < s.inner; ++j) y[j] = R::finish(y[j], s.length);
    }
}

template <class R, const auto& Types>
void reduce(op_context& call) {
    const tensor& x = call.input(0);
    const reduction r = find_reduction(call, x);
    if (r.nothing && (std::is_same_v<R, reducers::sum> || std::is_same_v<R, reducers::mean> || std::is_same_v<R, reducers::max> ||
                      std::is_same_v<R, reducers::min> || std::is_same_v<R, reducers::prod>)) {
        call.set_output(0, x);
        return;
    }
    tensor& y = call.output(0, x.type(), r.shape);
    const reduction_view v = gather_reduced(call, x, r.reduced, false);
    dispatch(call, x.type(), Types, [&]<class T>(type_tag<T>) { reduce_rows<R>(v.x.as<T>().data(), y.as<T>().data(), v.split); });
}

/// Computes log(sum(e^x)) from exponentials shifted by the maximum, so that large elements do not overflow.
inline void reduce_log_sum_exp(op_context& call) {
    const tensor& x = call.input(0);
    const reduction r = find_reduction(call, x);
    tensor& y = call.output(0, x.type(), r.shape);
    const reduction_view v = gather_reduced(call, x, r.reduced, true);
    const std::size_t n = v.split.length;
    dispatch(call, x.type(), number_types, [&]<class T>(type_tag<T>) {
        using real = std::conditional_t<std::is_same_v<T, float>, float, double>;
        const T* from = v.x.as<T>().data();
        for (std::size_t o = 0; o < v.split.outer; ++o, from += n) {
            real top = -std::numeric_limits<real>::infinity(), total = 0;
            for (std::size_t i = 0; i < n; ++i) top = vector_larger{}(top, static_cast<real>(from[i]));
            if (std::isinf(top)) top = 0;
            for (std::size_t i = 0; i < n; ++i) total += std::exp(static_cast<real>(from[i]) - top);
            if constexpr (std::is_floating_point_v<T>) y.as<T>()[o] = static_cast<T>(std::log(total) + top);
            else y.as<T>()[o] = static_cast<T>(detail::to_int64(std::log(total) + top));
        }
    });
}

inline constexpr op_entry reduce_ops[] = {
    {"", "ReduceSum", 1, through_float32<reduce<reducers::sum, number_types>>, nullptr, {follow_reduce}, {reckons | reduces}},
    {"", "ReduceMean", 1, through_float32<reduce<reducers::mean, number_types>>, nullptr, {follow_reduce}, {reduces}},
    {"", "ReduceMax", 1, through_float32<reduce<reducers::max, element_types>>, nullptr, {follow_reduce}, {reckons | reduces}},
    {"", "ReduceMin", 1, through_float32<reduce<reducers::min, element_types>>, nullptr, {follow_reduce}, {reckons | reduces}},
    {"", "ReduceProd", 1, through_float32<reduce<reducers::prod, number_types>>, nullptr, {follow_reduce}, {reckons | reduces}},
    {"", "ReduceL1", 1, through_float32<reduce<reducers::l1, number_types>>, nullptr, {follow_reduce}, {reduces}},
    {"", "ReduceL2", 1, through_float32<reduce<reducers::l2, number_types>>, nullptr, {follow_reduce}, {reduces}},
    {"", "ReduceSumSquare", 1, through_float32<reduce<reducers::sum_square, number_types>>, nullptr, {follow_reduce}, {reduces}},
    {"", "ReduceLogSum", 1, through_float32<reduce<reducers::log_sum, number_types>>, nullptr, {follow_reduce}, {reduces}},
    {"", "ReduceLogSumExp", 1, through_float32<reduce_log_sum_exp>, nullptr, {follow_reduce}, {reduces}},
};

}  // namespace qk::graph::ops
