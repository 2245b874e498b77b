// SPDX-License-Identifier: Apache-2.0
// The element types of what operators make: rules that rows name. A row without one makes what its first input has.
#pragma once

#include <onnx/onnx_pb.h>

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>

#include "graph/ops/op.hpp"
#include "qk/graph/model/attribute.hpp"

namespace qk::graph::ops {

/// Every output has this type.
template <data_type T>
type_source gives(const onnx::NodeProto&, int) {
    return {-1, T};
}
inline constexpr type_rule gives_booleans = gives<data_type::boolean>, gives_int64 = gives<data_type::int64>,
                           gives_int32 = gives<data_type::int32>, gives_uint8 = gives<data_type::uint8>;

/// The first output has the type of the first input, those behind it have this one.
template <data_type T>
type_source gives_beside(const onnx::NodeProto&, int output) {
    return output == 0 ? type_source{} : type_source{-1, T};
}

/// Every output has the type of this input.
template <int Input>
type_source like(const onnx::NodeProto&, int) {
    return {Input};
}

inline bool has_input(const onnx::NodeProto& n, int i) { return i < n.input_size() && !n.input(i).empty(); }

/// Codes have the type of their zero point, which is this input; without one that of the first input.
template <int ZeroPoint>
type_source like_zero_point(const onnx::NodeProto& n, int) {
    return {has_input(n, ZeroPoint) ? ZeroPoint : 0};
}

/// Attribute `dtype` names the type; without it the result has this one.
template <data_type Otherwise>
type_source dtype_or(const onnx::NodeProto& n, int) {
    return {-1, static_cast<data_type>(graph::detail::int_attribute(n, "dtype", static_cast<std::int64_t>(Otherwise)))};
}
inline type_source dtype_or_like(const onnx::NodeProto& n, int output) {
    return graph::detail::find_attribute(n, "dtype") == nullptr ? type_source{} : dtype_or<data_type::float32>(n, output);
}

/// Returns the type that a Cast before opset 6 names by a word; undefined for another word.
inline data_type type_called(std::string_view word) {
    static constexpr std::pair<std::string_view, data_type> names[] = {
        {"FLOAT", data_type::float32}, {"DOUBLE", data_type::float64}, {"FLOAT16", data_type::float16}, {"INT8", data_type::int8},
        {"INT16", data_type::int16},   {"INT32", data_type::int32},    {"INT64", data_type::int64},     {"UINT8", data_type::uint8},
        {"UINT16", data_type::uint16}, {"UINT32", data_type::uint32},  {"UINT64", data_type::uint64},   {"BOOL", data_type::boolean}};
    const auto* const found = std::ranges::find(names, word, &std::pair<std::string_view, data_type>::first);
    return found == std::end(names) ? data_type::undefined : found->second;
}
/// Attribute `to` names the type.
inline type_source cast_types(const onnx::NodeProto& n, int) {
    const onnx::AttributeProto* to = graph::detail::find_attribute(n, "to");
    if (to == nullptr) return {-1, data_type::undefined};
    return {-1, to->s().empty() ? static_cast<data_type>(to->i()) : type_called(to->s())};
}

/// A statistic is kept in float32 where the data are narrower.
inline data_type at_least_float32(data_type t) { return t == data_type::float16 || t == data_type::bfloat16 ? data_type::float32 : t; }
inline type_source gives_statistics_beside(const onnx::NodeProto&, int output) {
    return {0, data_type::undefined, output == 0 ? nullptr : at_least_float32};
}

}  // namespace qk::graph::ops
