// SPDX-License-Identifier: Apache-2.0
// Implements operators that only change or report shapes: Reshape, Flatten, Squeeze, Unsqueeze, Identity, Shape, Size; and BitCast.
#pragma once

#include <algorithm>

#include "graph/ops/dispatch.hpp"
#include "graph/ops/types.hpp"
#include "graph/ops/walk/rules.hpp"

namespace qk::graph::ops {

inline void identity(op_context& call) { call.set_output(0, call.input(0)); }

/// A 0 copies the input's dimension (unless allowzero is set), -1 is inferred from the others. The shape is an attribute before opset 5.
inline void reshape(op_context& call) {
    const tensor& x = call.input(0);
    dims shape = call.node().version() < 5 ? call.node().get_ints("shape") : int_values(call, call.input(1));
    const bool allow_zero = call.node().get_int("allowzero", 0) != 0;
    std::ptrdiff_t open = -1;
    std::size_t known = 1;
    for (std::size_t i = 0; i < shape.size(); ++i) {
        if (shape[i] == 0 && !allow_zero) {
            if (i >= x.rank())
                call.fail("a 0 in the new shape " + to_string(shape) + " stands for no dimension of " + to_string(x.shape()));
            shape[i] = x.dim(i);
        }
        if (shape[i] == -1) {
            if (open >= 0) call.fail("the new shape has two -1");
            open = static_cast<std::ptrdiff_t>(i);
        } else if (shape[i] < 0) call.fail("the new shape has a dimension of " + std::to_string(shape[i]));
        else known *= static_cast<std::size_t>(shape[i]);
    }
    if (open >= 0) {
        if (known == 0 || x.size() % known != 0) call.fail("cannot reshape " + to_string(x.shape()) + " to " + to_string(shape));
        shape[static_cast<std::size_t>(open)] = static_cast<std::int64_t>(x.size() / known);
    }
    if (element_count(shape) != x.size()) call.fail("cannot reshape " + to_string(x.shape()) + " to " + to_string(shape));
    call.set_output(0, x.reshaped(shape));
}

inline void flatten(op_context& call) {
    const tensor& x = call.input(0);
    const std::int64_t axis = call.node().get_int("axis", 1);
    const std::size_t at = axis == static_cast<std::int64_t>(x.rank()) ? x.rank() : normal_axis(call, axis, x.rank());
    call.set_output(
        0, x.reshaped({static_cast<std::int64_t>(product(x.shape(), 0, at)), static_cast<std::int64_t>(product(x.shape(), at, x.rank()))}));
}

/// Returns the axes: an attribute before opset 13, an input since then. Sets `given` if the node has any.
inline std::vector<std::int64_t> axes_of(op_context& call, bool& given) {
    given = call.has_input(1) || call.node().has("axes");
    return call.has_input(1) ? int_values(call, call.input(1)) : call.node().get_ints("axes");
}

inline void squeeze(op_context& call) {
    const tensor& x = call.input(0);
    bool given = false;
    const auto axes = axes_of(call, given);
    std::vector<bool> drop(x.rank());
    for (std::size_t i = 0; !given && i < x.rank(); ++i) drop[i] = x.dim(i) == 1;
    for (const std::int64_t a : axes) {
        const std::size_t i = normal_axis(call, a, x.rank());
        if (x.dim(i) != 1) call.fail("axis " + std::to_string(a) + " of " + to_string(x.shape()) + " is not of length 1");
        drop[i] = true;
    }
    dims shape;
    for (std::size_t i = 0; i < x.rank(); ++i)
        if (!drop[i]) shape.push_back(x.dim(i));
    call.set_output(0, x.reshaped(shape));
}

inline void unsqueeze(op_context& call) {
    const tensor& x = call.input(0);
    bool given = false;
    const auto axes = axes_of(call, given);
    const std::size_t rank = x.rank() + axes.size();
    std::vector<bool> fresh(rank);
    for (const std::int64_t a : axes) {
        const std::size_t i = normal_axis(call, a, rank);
        if (fresh[i]) call.fail("axis " + std::to_string(a) + " is named twice");
        fresh[i] = true;
    }
    dims shape(rank, 1);
    for (std::size_t i = 0, from = 0; i < rank; ++i)
        if (!fresh[i]) shape[i] = x.dim(from++);
    call.set_output(0, x.reshaped(shape));
}

/// Returns the dimensions in [start, end), which exist since opset 15; both are clamped.
inline void shape_of(op_context& call) {
    const tensor& x = call.input(0);
    const auto rank = static_cast<std::int64_t>(x.rank());
    const auto clamp = [&](std::int64_t at) { return std::clamp<std::int64_t>(at < 0 ? at + rank : at, 0, rank); };
    const std::int64_t start = clamp(call.node().get_int("start", 0)), end = clamp(call.node().get_int("end", rank));
    const std::int64_t n = std::max<std::int64_t>(0, end - start);
    tensor& y = call.output(0, data_type::int64, {n});
    std::copy_n(x.shape().begin() + start, n, y.as<std::int64_t>().begin());
}

inline void size_of_tensor(op_context& call) {
    call.output(0, data_type::int64, {}).as<std::int64_t>()[0] = static_cast<std::int64_t>(call.input(0).size());
}

/// Returns the bits of an element of 4 or 2 bits, which is stored in a byte, else 0.
constexpr int narrow_bits(data_type t) {
    if (t == data_type::int4 || t == data_type::uint4 || t == data_type::float4e2m1) return 4;
    return t == data_type::int2 || t == data_type::uint2 ? 2 : 0;
}

/// Reads the same bits as another type of the same width. int4 and int2 are stored as int8 values, so their codes are sign-extended, those
/// of uint4 and uint2 masked.
inline void bit_cast(op_context& call) {
    const tensor& x = call.input(0);
    const auto to = static_cast<data_type>(call.node().get_int("to", 0));
    if (size_of(to) != size_of(x.type()) || size_of(to) == 0 || narrow_bits(to) != narrow_bits(x.type()))
        call.fail(std::string("cannot view ") + name_of(x.type()) + " as " + name_of(to));
    tensor& y = call.output(0, to, x.shape());
    if (x.size() != 0) std::memcpy(y.bytes(), x.bytes(), x.size_bytes());
    if (to == data_type::boolean)  // its only codes are 0 and 1
        for (std::uint8_t& v : y.as<std::uint8_t>()) v = v != 0;
    if (const int bits = narrow_bits(to); bits != 0) {
        const bool negative_codes = to == data_type::int4 || to == data_type::int2;
        for (std::uint8_t& v : y.as<std::uint8_t>()) {
            const auto code = static_cast<unsigned>(v & ((1u << bits) - 1));
            const bool negative = negative_codes && code >> (bits - 1);
            v = static_cast<std::uint8_t>(negative ? code | (0xffu << bits) : code);
        }
    }
}

// clang-format off
inline constexpr op_entry reshape_ops[] = {
    {"", "Identity", 1, identity, nullptr, {follow_cast, 0, 1}, {mover | exact | reckons | one_by_one | keeps_all | repeats}},
    {"", "Reshape", 1, reshape, nullptr,
     {follow_reshape, 2, 1}, {mover | exact | reckons | moves_channels | reshapes | keeps_all, all_but_first}},
    {"", "Flatten", 1, flatten, nullptr, {follow_flatten}, {mover | reckons | moves_channels | reshapes | keeps_all}},
    {"", "Squeeze", 1, squeeze, nullptr, {follow_squeeze, 0, 1}, {mover | reckons | moves_channels | reshapes | keeps_all, all_but_first}},
    {"", "Unsqueeze", 1, unsqueeze, nullptr,
     {follow_unsqueeze, 0, 1}, {mover | reckons | moves_channels | reshapes | keeps_all, all_but_first}},
    {"", "Shape", 1, shape_of, nullptr, {follow_shape, 1}, {.traits = exact | moves_channels | measures, .types = gives_int64}},
    {"", "Size", 1, size_of_tensor, nullptr, {follow_shape, 1}, {.traits = exact | measures, .types = gives_int64}},
    {"", "BitCast", 26, bit_cast, nullptr, {follow_bit_cast}, {.types = cast_types}},
};
// clang-format on

}  // namespace qk::graph::ops
