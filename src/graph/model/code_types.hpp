// SPDX-License-Identifier: Apache-2.0
// Maps ONNX's element types, where they hold codes, to formats and numbers.
#pragma once

#include <cstdint>
#include <optional>

#include "qk/formats/format.hpp"
#include "qk/graph/base/tensor.hpp"

namespace qk::graph::detail {

/// Returns the format of codes stored in an ONNX type; nullopt for a type that Q/DQ pairs do not use.
inline std::optional<qk::format> format_of_codes(data_type t) {
    switch (t) {
        case data_type::int2: return int2;
        case data_type::int4: return int4;
        case data_type::int8: return int8;
        case data_type::int16: return int16;
        case data_type::int32: return int32;
        case data_type::uint2: return uint2;
        case data_type::uint4: return uint4;
        case data_type::uint8: return uint8;
        case data_type::uint16: return uint16;
        case data_type::uint32: return uint32;
        case data_type::float8e4m3fn: return fp8_e4m3fn;
        case data_type::float8e4m3fnuz: return fp8_e4m3fnuz;
        case data_type::float8e5m2: return fp8_e5m2;
        case data_type::float8e5m2fnuz: return fp8_e5m2fnuz;
        case data_type::float4e2m1: return fp4_e2m1;
        case data_type::float16: return fp16;
        case data_type::bfloat16: return bf16;
        default: return std::nullopt;
    }
}

/// Returns whether every code of `narrow` is one of `wide`: both are integers, signed alike.
inline bool holds_codes(const qk::format& wide, const qk::format& narrow) {
    const integer *w = std::get_if<integer>(&wide), *n = std::get_if<integer>(&narrow);
    return w && n && w->is_signed == n->is_signed && qmin(*w) <= qmin(*n) && qmax(*n) <= qmax(*w);
}

/// Returns whether every code of the signed `narrow`, plus half the range of the unsigned `wide`, is one of `wide`: int8 stored as uint8.
inline bool holds_moved_codes(const qk::format& wide, const qk::format& narrow) {
    const integer *w = std::get_if<integer>(&wide), *n = std::get_if<integer>(&narrow);
    if (w == nullptr || n == nullptr || w->is_signed || !n->is_signed) return false;
    const std::int64_t half = std::int64_t{1} << (w->bits - 1);
    return qmin(*w) <= qmin(*n) + half && qmax(*n) + half <= qmax(*w);
}

/// Returns one code of an integer tensor.
inline std::int64_t code_at(const tensor& t, std::size_t i) {
    switch (t.type()) {
        case data_type::int8:
        case data_type::int4:
        case data_type::int2: return t.as<std::int8_t>()[i];
        case data_type::int16: return t.as<std::int16_t>()[i];
        case data_type::uint16: return t.as<std::uint16_t>()[i];
        case data_type::int32: return t.as<std::int32_t>()[i];
        case data_type::uint32: return t.as<std::uint32_t>()[i];
        default: return t.as<std::uint8_t>()[i];
    }
}

}  // namespace qk::graph::detail
