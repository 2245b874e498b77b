// SPDX-License-Identifier: Apache-2.0
// Comparisons and logic of two operands, giving bool; and Where.
#pragma once

#include "qk/graph/ops/binary.hpp"

namespace qk::graph::ops {

inline constexpr type_list<bool> logical_types;

inline void equal(op_context& call) {
    map_binary<element_types, bool>(call, [](auto a, auto b) { return a == b; });
}
inline void greater(op_context& call) {
    map_binary<number_types, bool>(call, [](auto a, auto b) { return a > b; });
}
inline void greater_or_equal(op_context& call) {
    map_binary<number_types, bool>(call, [](auto a, auto b) { return a >= b; });
}
inline void less(op_context& call) {
    map_binary<number_types, bool>(call, [](auto a, auto b) { return a < b; });
}
inline void less_or_equal(op_context& call) {
    map_binary<number_types, bool>(call, [](auto a, auto b) { return a <= b; });
}
inline void logical_and(op_context& call) {
    map_binary<logical_types>(call, [](bool a, bool b) { return a && b; });
}
inline void logical_or(op_context& call) {
    map_binary<logical_types>(call, [](bool a, bool b) { return a || b; });
}
inline void logical_xor(op_context& call) {
    map_binary<logical_types>(call, [](bool a, bool b) { return a != b; });
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

inline constexpr op_entry comparison_ops[] = {
    {"", "Equal", 1, through_float32<equal>},
    {"", "Greater", 1, through_float32<greater>},
    {"", "GreaterOrEqual", 12, through_float32<greater_or_equal>},
    {"", "Less", 1, through_float32<less>},
    {"", "LessOrEqual", 12, through_float32<less_or_equal>},
    {"", "And", 1, logical_and},
    {"", "Or", 1, logical_or},
    {"", "Xor", 1, logical_xor},
    {"", "Where", 9, where},
};

}  // namespace qk::graph::ops
