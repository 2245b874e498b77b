// SPDX-License-Identifier: Apache-2.0
// Implements unary functions without attributes. float32 runs by whole vectors if vector_math.hpp or the compiler vectorises it.
#pragma once

#include <cmath>
#include <type_traits>

#include "graph/base/inner_loop.hpp"
#include "graph/ops/dispatch.hpp"
#include "graph/ops/types.hpp"
#include "graph/ops/vector_math.hpp"
#include "graph/ops/walk/rules.hpp"

namespace qk::graph::ops {

// A function is a struct: `of` computes one element of every type that it supports, `vector` (if there is one) a vector of float32.
namespace functions {
struct acos {
    static auto of(auto x) { return std::acos(x); }
};
struct acosh {
    static auto of(auto x) { return std::acosh(x); }
};
struct asin {
    static auto of(auto x) { return std::asin(x); }
};
struct asinh {
    static auto of(auto x) { return std::asinh(x); }
};
struct atan {
    static auto of(auto x) { return std::atan(x); }
};
struct atanh {
    static auto of(auto x) { return std::atanh(x); }
};
struct cos {
    static auto of(auto x) { return std::cos(x); }
};
struct cosh {
    static auto of(auto x) { return std::cosh(x); }
};
struct sin {
    static auto of(auto x) { return std::sin(x); }
};
struct sinh {
    static auto of(auto x) { return std::sinh(x); }
};
struct tan {
    static auto of(auto x) { return std::tan(x); }
};
struct ceil {
    static auto of(auto x) { return std::ceil(x); }
};
struct floor {
    static auto of(auto x) { return std::floor(x); }
};
struct round {
    static auto of(auto x) { return std::nearbyint(x); }
};  // default rounding mode: ties to even
struct sqrt {
    static auto of(auto x) { return std::sqrt(x); }
};
struct reciprocal {
    template <class T>
    static T of(T x) {
        return T{1} / x;
    }
};
struct softsign {
    template <class T>
    static T of(T x) {
        return x / (T{1} + std::abs(x));
    }
};
struct hard_swish {
    template <class T>
    static T of(T x) {
        const T gate = x * (T{1} / T{6}) + T{0.5};
        return x * (gate < 0 ? T{0} : gate > 1 ? T{1} : gate);
    }
};
struct exp {
    static auto of(auto x) { return std::exp(x); }
    static vfloat vector(vfloat x) { return vexp(x); }
};
struct log {
    static auto of(auto x) { return std::log(x); }
    static vfloat vector(vfloat x) { return vlog(x); }
};
struct tanh {
    static auto of(auto x) { return std::tanh(x); }
    static vfloat vector(vfloat x) { return vtanh(x); }
};
struct sigmoid {
    template <class T>
    static T of(T x) {
        return T{1} / (T{1} + std::exp(-x));
    }
    static vfloat vector(vfloat x) { return vsigmoid(x); }
};
struct softplus {
    template <class T>
    static T of(T x) {
        return (x > 0 ? x : T{0}) + std::log1p(std::exp(-std::abs(x)));
    }
    static vfloat vector(vfloat x) { return vsoftplus(x); }
};
struct mish {
    static auto of(auto x) { return x * std::tanh(softplus::of(x)); }
    static vfloat vector(vfloat x) { return x * vtanh(vsoftplus(x)); }
};
struct erf {
    template <class T>
    static T of(T x) {
        if constexpr (std::is_integral_v<T>) return static_cast<T>(std::erf(static_cast<double>(x)));
        else return std::erf(x);
    }
    static vfloat vector(vfloat x) { return verf(x); }
};
struct absolute {
    template <class T>
    static T of(T x) {
        if constexpr (std::is_floating_point_v<T>) return std::abs(x);
        else if constexpr (std::is_signed_v<T>) return x < 0 ? static_cast<T>(-static_cast<std::make_unsigned_t<T>>(x)) : x;
        else return x;
    }
};
struct negate {
    template <class T>
    static T of(T x) {
        if constexpr (std::is_floating_point_v<T>) return -x;
        else return static_cast<T>(-static_cast<std::make_unsigned_t<T>>(x));  // the lowest integer stays the same
    }
};
struct sign {
    template <class T>
    static T of(T x) {
        if constexpr (std::is_floating_point_v<T>)
            if (x != x) return x;
        return static_cast<T>((x > T{0}) - (x < T{0}));
    }
};
struct relu {
    template <class T>
    static T of(T x) {
        return x < T{0} ? T{0} : x;
    }
};  // NaN stays NaN
struct bitwise_not {
    template <class T>
    static T of(T x) {
        return static_cast<T>(~x);
    }
};
struct logical_not {
    static auto of(auto x) { return !x; }
};
}  // namespace functions

/// Computes y = F(x) on contiguous elements; y may be x.
template <class F, class T>
void map_unary(const T* x, T* y, std::size_t n) {
    if constexpr (std::is_same_v<T, float> && requires { F::vector(vfloat{}); })
        map_vectors(x, y, n, [](vfloat v) { return F::vector(v); });
    else
        for (std::size_t i = 0; i < n; ++i) y[i] = F::of(x[i]);
}

template <class F, const auto& Types>
void unary(op_context& call) {
    const tensor& x = call.input(0);
    tensor& y = call.output(0, x.type(), x.shape());
    dispatch(call, x.type(), Types, [&]<class T>(type_tag<T>) {
        for_each_range(x.size(), 4, [&](std::size_t begin, std::size_t end) {
            map_unary<F>(x.as<T>().data() + begin, y.as<T>().data() + begin, end - begin);
        });
    });
}

template <class F>
inline constexpr auto unary_float = through_float32<unary<F, float_types>>;
template <class F>
inline constexpr auto unary_number = through_float32<unary<F, number_types>>;
inline constexpr auto signed_numbers = float_types + signed_types;
inline constexpr type_list<bool> only_bool;

inline void is_nan(op_context& call) {
    const tensor& x = call.input(0);
    tensor& y = call.output(0, data_type::boolean, x.shape());
    dispatch(call, x.type(), float_types, [&]<class T>(type_tag<T>) {
        const auto from = x.as<T>();
        for (std::size_t i = 0; i < from.size(); ++i) y.as<bool>()[i] = from[i] != from[i];
    });
}

inline void is_inf(op_context& call) {
    const tensor& x = call.input(0);
    const bool negative = call.node().get_int("detect_negative", 1) != 0;
    const bool positive = call.node().get_int("detect_positive", 1) != 0;
    tensor& y = call.output(0, data_type::boolean, x.shape());
    dispatch(call, x.type(), float_types, [&]<class T>(type_tag<T>) {
        const auto from = x.as<T>();
        for (std::size_t i = 0; i < from.size(); ++i) y.as<bool>()[i] = std::isinf(from[i]) && (from[i] > 0 ? positive : negative);
    });
}

// clang-format off
inline constexpr op_entry unary_ops[] = {
    {"", "Acos", 7, unary_float<functions::acos>, nullptr, {follow_unary}},
    {"", "Acosh", 9, unary_float<functions::acosh>, nullptr, {follow_unary}},
    {"", "Asin", 7, unary_float<functions::asin>, nullptr, {follow_unary}},
    {"", "Asinh", 9, unary_float<functions::asinh>, nullptr, {follow_unary}},
    {"", "Atan", 7, unary_float<functions::atan>, nullptr, {follow_unary}},
    {"", "Atanh", 9, unary_float<functions::atanh>, nullptr, {follow_unary}},
    {"", "Cos", 7, unary_float<functions::cos>, nullptr, {follow_unary}},
    {"", "Cosh", 9, unary_float<functions::cosh>, nullptr, {follow_unary}},
    {"", "Sin", 7, unary_float<functions::sin>, nullptr, {follow_unary}},
    {"", "Sinh", 9, unary_float<functions::sinh>, nullptr, {follow_unary}},
    {"", "Tan", 7, unary_float<functions::tan>, nullptr, {follow_unary}},
    {"", "Tanh", 1, unary_float<functions::tanh>, nullptr, {follow_unary}, {one_by_one}},
    {"", "Exp", 1, unary_float<functions::exp>, nullptr, {follow_unary}, {reckons | one_by_one}},
    {"", "Log", 1, unary_float<functions::log>, nullptr, {follow_unary}, {reckons}},
    {"", "Sqrt", 1, unary_float<functions::sqrt>, nullptr, {follow_unary}, {exact | reckons | one_by_one}},
    {"", "Reciprocal", 1, unary_float<functions::reciprocal>, nullptr, {follow_unary}, {reckons}},
    {"", "Ceil", 1, unary_float<functions::ceil>, nullptr, {follow_unary}, {exact | reckons}},
    {"", "Floor", 1, unary_float<functions::floor>, nullptr, {follow_unary}, {exact | reckons}},
    {"", "Round", 11, unary_float<functions::round>, nullptr, {follow_unary}, {exact | reckons}},
    {"", "Sigmoid", 1, unary_float<functions::sigmoid>, nullptr, {follow_unary}, {one_by_one}},
    {"", "Softplus", 1, unary_float<functions::softplus>, nullptr, {follow_unary}, {one_by_one}},
    {"", "Softsign", 1, unary_float<functions::softsign>, nullptr, {follow_unary}, {one_by_one}},
    {"", "HardSwish", 14, unary_float<functions::hard_swish>, nullptr, {follow_unary}, {one_by_one}},
    {"", "Mish", 18, unary_float<functions::mish>, nullptr, {follow_unary}, {one_by_one}},
    {"", "Erf", 9, unary_number<functions::erf>, nullptr, {follow_unary}, {one_by_one}},
    {"", "Abs", 1, unary_number<functions::absolute>, nullptr, {follow_unary}, {exact | reckons | one_by_one}},
    {"", "Sign", 9, unary_number<functions::sign>, nullptr, {follow_unary}, {exact}},
    {"", "Neg", 1, through_float32<unary<functions::negate, signed_numbers>>, nullptr,
     {follow_unary}, {.traits = exact | reckons | one_by_one, .values = first_input}},
    {"", "Relu", 1, through_float32<unary<functions::relu, signed_numbers>>, nullptr, {follow_unary}, {clamps | exact | one_by_one}},
    {"", "Not", 1, unary<functions::logical_not, only_bool>, nullptr, {follow_unary}, {.traits = exact, .types = gives_booleans}},
    {"", "BitwiseNot", 18, unary<functions::bitwise_not, integer_types>, nullptr, {follow_unary}},
    {"", "IsNaN", 9, through_float32<is_nan>, nullptr, {follow_unary}, {.traits = finds_nan, .types = gives_booleans}},
    {"", "IsInf", 10, through_float32<is_inf>, nullptr, {follow_unary}, {.types = gives_booleans}},
};
// clang-format on

}  // namespace qk::graph::ops
