// SPDX-License-Identifier: Apache-2.0
// Implements comparisons and logic of two operands, which return bool, and Where.
#pragma once

#include <functional>

#include "graph/ops/binary.hpp"
#include "graph/ops/types.hpp"
#include "graph/ops/walk/rules.hpp"

namespace qk::graph::ops {

inline constexpr type_list<bool> logical_types;

template <class F, const auto& Types>
void compare(op_context& call) {
    map_binary<Types, bool>(call, F{});
}

inline void where(op_context& call) {
    const tensor &condition = call.input(0), &x = call.input(1), &y = call.input(2);
    if (condition.type() != data_type::boolean) call.fail("the condition is not of type bool");
    if (x.type() != y.type()) call.fail("x and y differ in type");
    const tensor* operands[] = {&condition, &x, &y};
    const dims shape = broadcast_shape(call, operands);
    tensor& out = call.output(0, x.type(), shape);
    dispatch_width(call, x.type(), [&]<class T>(type_tag<T>) {
        map_broadcast<bool, T, T, T>(shape, condition, x, y, out, [](bool c, T a, T b) { return c ? a : b; });
    });
}

// clang-format off
inline constexpr op_entry comparison_ops[] = {
    {"", "Equal", 1, through_float32<compare<std::equal_to<>, element_types>>, nullptr,
     {follow_elements}, {.traits = exact, .types = gives_booleans, .inputs = 2}},
    {"", "Greater", 1, through_float32<compare<std::greater<>, number_types>>, nullptr,
     {follow_elements}, {.traits = exact, .types = gives_booleans, .inputs = 2}},
    {"", "GreaterOrEqual", 12, through_float32<compare<std::greater_equal<>, number_types>>, nullptr,
     {follow_elements}, {.types = gives_booleans}},
    {"", "Less", 1, through_float32<compare<std::less<>, number_types>>, nullptr,
     {follow_elements}, {.traits = exact, .types = gives_booleans, .inputs = 2}},
    {"", "LessOrEqual", 12, through_float32<compare<std::less_equal<>, number_types>>, nullptr,
     {follow_elements}, {.types = gives_booleans}},
    {"", "And", 1, compare<std::logical_and<>, logical_types>, nullptr,
     {follow_elements}, {.traits = exact, .types = gives_booleans, .inputs = 2}},
    {"", "Or", 1, compare<std::logical_or<>, logical_types>, nullptr,
     {follow_elements}, {.traits = exact, .types = gives_booleans, .inputs = 2}},
    {"", "Xor", 1, compare<std::not_equal_to<>, logical_types>, nullptr, {follow_elements}, {.types = gives_booleans, .inputs = 2}},
    {"", "Where", 9, where, nullptr,
     {follow_elements}, {.traits = exact | reckons, .values = all_but_first, .types = like<1>, .inputs = 3}},
};
// clang-format on

}  // namespace qk::graph::ops
