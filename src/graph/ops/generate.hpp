// SPDX-License-Identifier: Apache-2.0
// Implements operators that make tensors: Constant, ConstantOfShape, Range, EyeLike, OneHot, Trilu.
#pragma once

#include <algorithm>
#include <cmath>

#include "graph/ops/dispatch.hpp"
#include "graph/ops/types.hpp"
#include "graph/ops/walk/rules.hpp"

namespace qk::graph::ops {

inline tensor constant_value(const node_view& node) {
    if (node.has("value")) return node.get_tensor("value");
    if (node.has("value_float")) return make_tensor<float>({}, std::array{node.get_float("value_float", 0)});
    if (node.has("value_int")) return make_tensor<std::int64_t>({}, std::array{node.get_int("value_int", 0)});
    if (node.has("value_floats")) {
        const auto v = node.get_floats("value_floats");
        return make_tensor<float>({static_cast<std::int64_t>(v.size())}, v);
    }
    if (!node.has("value_ints")) node.fail("there is no value of a kind that is supported (strings and sparse tensors are not)");
    const auto v = node.get_ints("value_ints");
    return make_tensor<std::int64_t>({static_cast<std::int64_t>(v.size())}, v);
}

inline void constant(op_context& call) { call.set_output(0, constant_value(call.node())); }

/// Sets all elements of y to the one at `element`.
inline void fill_with(const op_context& call, tensor& y, const std::byte* element) {
    dispatch_width(call, y.type(), [&]<class T>(type_tag<T>) {
        T value;
        std::memcpy(&value, element, sizeof value);
        std::fill_n(y.as<T>().data(), y.size(), value);
    });
}

inline void constant_of_shape(op_context& call) {
    const tensor value = call.node().has("value") ? call.node().get_tensor("value") : make_tensor<float>({1}, std::array{0.0f});
    if (value.size() != 1) call.fail("value must hold one element");
    fill_with(call, call.output(0, value.type(), int_values(call, call.input(0))), value.bytes());
}

/// Computes start + i * delta. float16 and bfloat16 are computed in float32.
inline void range(op_context& call) {
    const tensor &start = call.input(0), &limit = call.input(1), &delta = call.input(2);
    if (limit.type() != start.type() || delta.type() != start.type()) call.fail("start, limit and delta differ in type");
    dispatch(call, start.type(), number_types, [&]<class T>(type_tag<T>) {
        const T from = scalar_value<T>(call, start), to = scalar_value<T>(call, limit), step = scalar_value<T>(call, delta);
        if (step == T{0}) call.fail("delta is zero");
        double n = 0;
        if constexpr (std::is_integral_v<T>) {
            if (step > T{0} ? to > from : to < from) {  // unsigned, because the distance may exceed T
                const auto distance = step > T{0} ? static_cast<std::uint64_t>(to) - static_cast<std::uint64_t>(from)
                                                  : static_cast<std::uint64_t>(from) - static_cast<std::uint64_t>(to);
                const auto size = step > T{0} ? static_cast<std::uint64_t>(step) : std::uint64_t{0} - static_cast<std::uint64_t>(step);
                const std::uint64_t whole_steps = (distance - 1) / size;
                n = static_cast<double>(whole_steps + 1);
            }
        } else n = std::ceil((static_cast<double>(to) - static_cast<double>(from)) / static_cast<double>(step));
        if (!(n < 0x1p40)) call.fail("the range has no sensible length");
        const auto count = static_cast<std::int64_t>(n > 0 ? n : 0);
        tensor& y = call.output(0, type_of<T>, {count});
        for (std::int64_t i = 0; i < count; ++i) {
            if constexpr (std::is_integral_v<T>)
                y.as<T>()[static_cast<std::size_t>(i)] =
                    static_cast<T>(static_cast<std::uint64_t>(from) + static_cast<std::uint64_t>(i) * static_cast<std::uint64_t>(step));
            else y.as<T>()[static_cast<std::size_t>(i)] = from + static_cast<T>(i) * step;
        }
    });
}

inline void eye_like(op_context& call) {
    const tensor& x = call.input(0);
    if (x.rank() != 2) call.fail("the input is not a matrix");
    const auto type = static_cast<data_type>(call.node().get_int("dtype", static_cast<std::int64_t>(x.type())));
    const std::int64_t k = std::clamp(call.node().get_int("k", 0), -x.dim(0), x.dim(1));  // so that nothing overflows below
    // For float16 and bfloat16 the diagonal is set by the code of 1, for other types by value.
    const tensor one = type == data_type::float16    ? make_tensor<half>({}, std::array{to_half(1.0f)})
                       : type == data_type::bfloat16 ? make_tensor<brain>({}, std::array{to_brain(1.0f)})
                                                     : tensor();
    tensor& y = call.output(0, type, x.shape());
    if (y.size() != 0) std::memset(y.bytes(), 0, y.size_bytes());
    const auto diagonal = [&](auto* to, auto value) {
        for (std::int64_t i = 0; i < x.dim(0); ++i)
            if (i + k >= 0 && i + k < x.dim(1)) to[i * x.dim(1) + i + k] = value;
    };
    if (!one.empty()) diagonal(y.as<std::uint16_t>().data(), one.as<std::uint16_t>()[0]);
    else dispatch(call, type, element_types, [&]<class T>(type_tag<T>) { diagonal(y.as<T>().data(), static_cast<T>(1)); });
}

/// Writes values[1] at the index and values[0] elsewhere. An index outside [-depth, depth) sets nothing.
inline void one_hot(op_context& call) {
    const tensor& values = call.input(2);
    const tensor indices = widened(call, call.input(0));
    const std::int64_t depth = scalar_value<std::int64_t>(call, call.input(1));
    if (values.size() != 2) call.fail("values must hold the off value and the on value");
    const std::size_t axis = normal_axis(call, call.node().get_int("axis", -1), indices.rank() + 1);
    dims shape = indices.shape();
    shape.insert(shape.begin() + static_cast<std::ptrdiff_t>(axis), depth);
    tensor& y = call.output(0, values.type(), shape);
    const axis_split s = split_at(shape, axis);
    std::vector<std::int64_t> at(indices.size());
    dispatch(call, indices.type(), number_types, [&]<class T>(type_tag<T>) {
        for (std::size_t i = 0; i < at.size(); ++i) at[i] = number_as<std::int64_t>(indices.as<T>()[i]);
    });
    dispatch_width(call, values.type(), [&]<class T>(type_tag<T>) {
        const T off = values.as<T>()[0], on = values.as<T>()[1];
        std::fill_n(y.as<T>().data(), y.size(), off);
        for (std::size_t i = 0; i < at.size(); ++i) {
            if (at[i] < -depth || at[i] >= depth) continue;
            const auto d = static_cast<std::size_t>(at[i] < 0 ? at[i] + depth : at[i]);
            y.as<T>()[(i / s.inner * s.length + d) * s.inner + i % s.inner] = on;
        }
    });
}

/// Copies the upper (or lower) triangle of each matrix from diagonal k on, and sets the rest to zero.
inline void trilu(op_context& call) {
    const tensor& x = call.input(0);
    if (x.rank() < 2) call.fail("the input has no matrix dimensions");
    const bool upper = call.node().get_int("upper", 1) != 0;
    const std::int64_t k = call.has_input(1) ? scalar_value<std::int64_t>(call, call.input(1)) : 0;
    const std::int64_t rows = x.dim(x.rank() - 2), columns = x.dim(x.rank() - 1);
    tensor& y = call.output(0, x.type(), x.shape());
    if (x.size() == 0) return;
    const std::int64_t bounded = std::clamp(k, -rows, columns);  // so that nothing overflows below
    dispatch_width(call, x.type(), [&]<class T>(type_tag<T>) {
        const T* from = x.as<T>().data();
        T* to = y.as<T>().data();
        for (std::size_t row = 0; row < x.size() / static_cast<std::size_t>(columns); ++row) {
            const std::int64_t first = static_cast<std::int64_t>(row % static_cast<std::size_t>(rows)) + bounded;
            for (std::int64_t j = 0; j < columns; ++j, ++from, ++to) *to = (upper ? j >= first : j <= first) ? *from : T{};
        }
    });
}

inline type_source constant_types(const onnx::NodeProto& n, int) {
    if (const onnx::AttributeProto* value = graph::detail::find_attribute(n, "value"))
        return {-1, static_cast<data_type>(value->t().data_type())};
    const auto has = [&](const char* attribute) { return graph::detail::find_attribute(n, attribute) != nullptr; };
    return {-1, has("value_float") || has("value_floats") ? data_type::float32
                : has("value_int") || has("value_ints")   ? data_type::int64
                                                          : data_type::undefined};
}
inline type_source filled_types(const onnx::NodeProto& n, int) {
    const onnx::AttributeProto* value = graph::detail::find_attribute(n, "value");
    return {-1, value == nullptr ? data_type::float32 : static_cast<data_type>(value->t().data_type())};
}

// clang-format off
inline constexpr op_entry generate_ops[] = {
    {"", "Constant", 1, constant, nullptr, {}, {.traits = exact, .types = constant_types, .inputs = 0}},
    {"", "ConstantOfShape", 9, constant_of_shape, nullptr,
     {follow_constant_of_shape, 1}, {.traits = exact, .places = all_inputs, .types = filled_types}},
    {"", "Range", 11, through_float32<range>, nullptr, {follow_range, 7}, {exact, all_inputs}},
    {"", "EyeLike", 9, eye_like, nullptr, {follow_triangle}, {.types = dtype_or_like}},
    {"", "OneHot", 9, one_hot, nullptr, {follow_one_hot}, {.places = 1u << 1, .types = like<2>, .inputs = 3}},
    {"", "Trilu", 14, trilu, nullptr, {follow_triangle}, {.places = all_but_first, .values = first_input}},
};
// clang-format on

}  // namespace qk::graph::ops
