// SPDX-License-Identifier: Apache-2.0
// Implements Sum, Mean, Max and Min of any number of operands with broadcasting, folded from the left, and Clip.
#pragma once

#include <limits>

#include "graph/ops/binary.hpp"
#include "graph/ops/walk/rules.hpp"

namespace qk::graph::ops {

namespace functions {
// NaN wins, as in numpy's maximum and minimum.
struct larger {
    template <class T>
    T operator()(T a, T b) const {
        return b > a || b != b ? b : a;
    }
};
struct smaller {
    template <class T>
    T operator()(T a, T b) const {
        return b < a || b != b ? b : a;
    }
};
}  // namespace functions

/// Folds all inputs with f from the left into output 0.
template <class F>
tensor& fold_inputs(op_context& call, F f) {
    std::vector<const tensor*> operands;
    for (std::size_t i = 0; i < call.input_count(); ++i) operands.push_back(&call.input(i));
    if (operands.empty()) call.fail("there is no input");
    const dims shape = broadcast_shape(call, operands);
    tensor& y = call.output(0, operands[0]->type(), shape);
    if (!names_type(y.type(), number_types)) call.fail(std::string("element type ") + name_of(y.type()) + " is not supported here");
    for (const tensor* t : operands)
        if (t->type() != y.type()) call.fail("the inputs differ in type");
    if (operands.size() == 1) std::copy_n(operands[0]->bytes(), y.size_bytes(), y.bytes());
    else map_numbers<number_types>(call, shape, *operands[0], *operands[1], y, f);
    // Element i of y is read before it is written, so y may be an operand too.
    for (std::size_t k = 2; k < operands.size(); ++k) map_numbers<number_types>(call, shape, y, *operands[k], y, f);
    return y;
}

inline void sum(op_context& call) { fold_inputs(call, functions::add{}); }
inline void mean(op_context& call) {
    tensor& y = fold_inputs(call, functions::add{});
    const std::size_t n = call.input_count();
    dispatch(call, y.type(), number_types, [&]<class T>(type_tag<T>) {
        for (T& v : y.as<T>()) v = divide_by_count(v, n);
    });
}
inline void max(op_context& call) { fold_inputs(call, functions::larger{}); }
inline void min(op_context& call) { fold_inputs(call, functions::smaller{}); }

/// Computes min(max(x, low), high); high wins if low > high. The bounds are attributes before opset 11, optional inputs since then.
inline void clip(op_context& call) {
    const tensor& x = call.input(0);
    tensor& y = call.output(0, x.type(), x.shape());
    dispatch(call, x.type(), number_types, [&]<class T>(type_tag<T>) {
        T low = std::numeric_limits<T>::lowest(), high = std::numeric_limits<T>::max();
        if constexpr (std::numeric_limits<T>::has_infinity) low = -std::numeric_limits<T>::infinity(), high = -low;
        if (call.node().version() < 11) {
            const auto bound = [&](const char* name, T otherwise) -> T {
                if (!call.node().has(name)) return otherwise;
                const float v = call.node().get_float(name, 0);
                if constexpr (std::is_floating_point_v<T>) return static_cast<T>(v);
                else
                    return v >= static_cast<float>(high) ? high
                           : v > static_cast<float>(low) ? static_cast<T>(v)
                                                         : low;  // low and high are still T's own here
            };
            const T least = bound("min", std::is_floating_point_v<T> ? static_cast<T>(std::numeric_limits<float>::lowest()) : low);
            high = bound("max", std::is_floating_point_v<T> ? static_cast<T>(std::numeric_limits<float>::max()) : high);
            low = least;
        }
        if (call.has_input(1)) low = scalar_value<T>(call, call.input(1));
        if (call.has_input(2)) high = scalar_value<T>(call, call.input(2));
        const auto from = x.as<T>();
        const auto to = y.as<T>();
        for (std::size_t i = 0; i < from.size(); ++i) {
            const T raised = from[i] < low ? low : from[i];
            to[i] = raised > high ? high : raised;
        }
    });
}

// clang-format off
inline constexpr op_entry variadic_ops[] = {
    {"", "Sum", 1, through_float32<sum>, nullptr, {follow_elements}},
    {"", "Mean", 1, through_float32<mean>, nullptr, {follow_elements}},
    {"", "Max", 1, through_float32<max>, nullptr, {follow_elements}, {.traits = exact | reckons | chooses, .values = all_inputs}},
    {"", "Min", 1, through_float32<min>, nullptr, {follow_elements}, {.traits = exact | reckons | chooses, .values = all_inputs}},
    {"", "Clip", 1, through_float32<clip>, nullptr,
     {follow_unary}, {.traits = clamps | exact | reckons | one_by_one, .places = all_but_first, .values = first_input}},
};
// clang-format on

}  // namespace qk::graph::ops
