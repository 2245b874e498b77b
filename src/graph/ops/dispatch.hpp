// SPDX-License-Identifier: Apache-2.0
// Dispatches from a tensor's run-time type to a C++ type, and holds helpers of all operators: axes, strides, scalars, half precision.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "graph/ops/elements.hpp"
#include "graph/ops/half.hpp"
#include "graph/ops/op.hpp"

namespace qk::graph::ops {

template <class T>
struct type_tag {
    using type = T;
};
template <class... Ts>
struct type_list {};
template <class... As, class... Bs>
constexpr type_list<As..., Bs...> operator+(type_list<As...>, type_list<Bs...>) {
    return {};
}

inline constexpr type_list<float, double> float_types;
inline constexpr type_list<std::int8_t, std::int16_t, std::int32_t, std::int64_t> signed_types;
inline constexpr type_list<std::uint8_t, std::uint16_t, std::uint32_t, std::uint64_t> unsigned_types;
inline constexpr auto integer_types = signed_types + unsigned_types;
inline constexpr auto number_types = float_types + integer_types;
inline constexpr auto element_types = number_types + type_list<bool>{};
inline constexpr auto product_types = float_types + type_list<std::int32_t, std::uint32_t, std::int64_t, std::uint64_t>{};
inline constexpr type_list<std::int32_t, std::int64_t> index_types;

[[noreturn]] void fail_for_type(const op_context& call, data_type type);

/// Calls f(type_tag<T>{}) for the T of the list that `type` names. Fails with the node's name when there is none.
template <class... Ts, class F>
void dispatch(const op_context& call, data_type type, type_list<Ts...>, F&& f) {
    const bool found = ((type == type_of<Ts> && (f(type_tag<Ts>{}), true)) || ...);
    if (!found) fail_for_type(call, type);
}

/// An element of 16 bytes (complex128), for operators that only move elements.
struct sixteen_bytes {
    std::uint64_t low, high;
};

/// Calls f(type_tag<U>{}) with an unsigned type as wide as an element of `type`, for operators that only move elements.
template <class F>
void dispatch_width(const op_context& call, data_type type, F&& f) {
    switch (size_of(type)) {
        case 1: return f(type_tag<std::uint8_t>{});
        case 2: return f(type_tag<std::uint16_t>{});
        case 4: return f(type_tag<std::uint32_t>{});
        case 8: return f(type_tag<std::uint64_t>{});
        case 16: return f(type_tag<sixteen_bytes>{});
        default: fail_for_type(call, type);
    }
}

/// Returns input i, or an empty tensor if it is absent.
inline tensor optional_input(const op_context& call, std::size_t i) { return call.has_input(i) ? call.input(i) : tensor{}; }

/// Fails where the call's allocator refuses a tensor of this shape, before a std::vector of as many elements takes the memory.
inline void expect_room(op_context& call, const dims& shape, data_type type = data_type::float64) {
    static_cast<void>(call.scratch(type, shape));
}

constexpr bool is_narrow_float(data_type t) { return t == data_type::float16 || t == data_type::bfloat16; }

/// Widens a float16 or bfloat16 tensor to float32; returns others as they are.
tensor widened(op_context& call, const tensor& x);

/// Rounds a float32 tensor to float16 or bfloat16.
tensor narrowed(op_context& call, const tensor& x, data_type type);

/// Calls `run` with float16 and bfloat16 inputs widened to float32, and rounds float32 outputs back to the type of the first such input.
void run_through_float32(op_context& call, void (*run)(op_context&));

/// run_through_float32 as a function of the table: {"", "Exp", 1, through_float32<exp>}.
template <void (*Run)(op_context&)>
void through_float32(op_context& call) {
    run_through_float32(call, Run);
}

/// Calls f(type_tag<T>{}, call) for the T of the list that is input 0's type; half precision runs through float32. For another type it
/// fails, with the type's name between `before` and `after`.
template <class... Ts, class F>
void run_by_type(op_context& call, type_list<Ts...>, const char* before, const char* after, F f) {
    const data_type type = call.input(0).type();
    if (is_narrow_float(type)) return run_through_float32(call, [](op_context& wide) { F{}(type_tag<float>{}, wide); });
    const bool found = ((type == type_of<Ts> && (f(type_tag<Ts>{}, call), true)) || ...);
    if (!found) call.fail(std::string(before) + name_of(type) + after);
}

/// Returns the elements of an integer tensor (shapes, axes, indices) as int64.
std::vector<std::int64_t> int_values(const op_context& call, const tensor& t);

/// Converts a number to T. A float becomes an integer as in Cast (elements.hpp); bool means "not zero".
template <class T, class U>
constexpr T number_as(U v) {
    if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool> && std::is_floating_point_v<U>)
        return static_cast<T>(detail::to_int64(static_cast<double>(v)));
    else return static_cast<T>(v);
}

/// Returns the one element of a tensor as T (double, std::int64_t, bool...).
template <class T>
T scalar_value(op_context& call, const tensor& given) {
    if (given.size() != 1) call.fail("an input that must hold one element has shape " + to_string(given.shape()));
    const tensor t = widened(call, given);
    T value{};
    dispatch(call, t.type(), element_types, [&]<class U>(type_tag<U>) { value = number_as<T>(t.as<U>()[0]); });
    return value;
}

/// Maps an axis in [-rank, rank) to [0, rank).
inline std::size_t normal_axis(const op_context& call, std::int64_t axis, std::size_t rank) {
    const auto r = static_cast<std::int64_t>(rank);
    if (axis < -r || axis >= r) call.fail("axis " + std::to_string(axis) + " is outside a rank of " + std::to_string(rank));
    return static_cast<std::size_t>(axis < 0 ? axis + r : axis);
}

/// The numbers of elements before, along and after an axis: a row-major tensor is outer x length x inner.
struct axis_split {
    std::size_t outer = 1, length = 1, inner = 1;
};
inline axis_split split_at(std::span<const std::int64_t> shape, std::size_t axis) {
    axis_split s;
    for (std::size_t i = 0; i < shape.size(); ++i)
        (i < axis ? s.outer : i == axis ? s.length : s.inner) *= static_cast<std::size_t>(shape[i]);
    return s;
}

/// Returns the product of shape[first, last).
inline std::size_t product(std::span<const std::int64_t> shape, std::size_t first, std::size_t last) {
    std::size_t n = 1;
    for (std::size_t i = first; i < last; ++i) n *= static_cast<std::size_t>(shape[i]);
    return n;
}

/// Returns the distance in elements between neighbours along each axis of a row-major tensor.
inline std::vector<std::size_t> row_major_strides(std::span<const std::int64_t> shape) {
    std::vector<std::size_t> strides(shape.size());
    std::size_t step = 1;
    for (std::size_t i = shape.size(); i-- > 0; step *= static_cast<std::size_t>(shape[i])) strides[i] = step;
    return strides;
}

}  // namespace qk::graph::ops
