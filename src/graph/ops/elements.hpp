// SPDX-License-Identifier: Apache-2.0
// Converts elements of every ONNX type to float, double or 64-bit integers and back, for Cast, the quantizers and half-precision operators.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <span>

#include "graph/ops/half.hpp"
#include "graph/ops/op.hpp"
#include "qk/formats/floating.hpp"

namespace qk::graph::ops {

/// Cast's attributes: what becomes of values that the target type can't represent.
struct cast_rules {
    bool saturate = true;
    enum class e8m0_rounding : std::uint8_t { up, down, nearest } round_mode = e8m0_rounding::up;
};

constexpr bool is_small_float(data_type t) {
    return (t >= data_type::float8e4m3fn && t <= data_type::float8e5m2fnuz) || t == data_type::float4e2m1 || t == data_type::float8e8m0 ||
           t == data_type::float6e2m3 || t == data_type::float6e3m2;
}
constexpr bool is_float_type(data_type t) {
    return t == data_type::float32 || t == data_type::float64 || t == data_type::float16 || t == data_type::bfloat16 || is_small_float(t);
}
constexpr bool is_integer_type(data_type t) {
    switch (t) {
        case data_type::int2:
        case data_type::int4:
        case data_type::int8:
        case data_type::int16:
        case data_type::int32:
        case data_type::int64:
        case data_type::uint2:
        case data_type::uint4:
        case data_type::uint8:
        case data_type::uint16:
        case data_type::uint32:
        case data_type::uint64: return true;
        default: return false;
    }
}

/// Returns the width in bits of a type's codes; booleans count as 8.
constexpr int bits_of(data_type t) {
    switch (t) {
        case data_type::int2:
        case data_type::uint2: return 2;
        case data_type::int4:
        case data_type::uint4:
        case data_type::float4e2m1: return 4;
        case data_type::float6e2m3:
        case data_type::float6e3m2: return 6;
        default: return static_cast<int>(size_of(t)) * 8;
    }
}
constexpr bool is_signed_integer(data_type t) {
    return t == data_type::int2 || t == data_type::int4 || t == data_type::int8 || t == data_type::int16 || t == data_type::int32 ||
           t == data_type::int64;
}
constexpr std::int64_t lowest_code(data_type t) {
    return is_signed_integer(t) ? std::numeric_limits<std::int64_t>::min() >> (64 - bits_of(t)) : 0;
}
/// Returns the highest code of an integer type; int64's for uint64.
constexpr std::int64_t highest_code(data_type t) {
    if (bits_of(t) == 64) return std::numeric_limits<std::int64_t>::max();
    return (std::int64_t{1} << (bits_of(t) - int{is_signed_integer(t)})) - 1;
}

/// Returns qk's format of a floating ONNX type.
constexpr floating format_of(data_type t) {
    switch (t) {
        case data_type::float16: return fp16;
        case data_type::bfloat16: return bf16;
        case data_type::float8e4m3fn: return fp8_e4m3fn;
        case data_type::float8e4m3fnuz: return fp8_e4m3fnuz;
        case data_type::float8e5m2: return fp8_e5m2;
        case data_type::float8e5m2fnuz: return fp8_e5m2fnuz;
        case data_type::float6e2m3: return fp6_e2m3;
        case data_type::float6e3m2: return fp6_e3m2;
        case data_type::float4e2m1: return fp4_e2m1;
        case data_type::float8e8m0: return e8m0;
        default: return fp32;
    }
}

/// Rounds float64 to float32 with a last bit that means "inexact" (round to odd): rounding again to at most 22 bits then equals rounding x.
float round_to_odd(double x);

/// Returns the value of a code in a format of at most 8 bits.
float small_float_value(floating f, std::uint32_t code);

/// Returns the code of a float in a format of at most 8 bits: nearest, ties to even; overflow saturates or becomes the special code.
std::uint8_t small_float_code(floating f, float x, bool saturate);

/// Returns the float8e8m0 code of x by Cast's rules; the sign is ignored.
std::uint8_t e8m0_code(float x, cast_rules rules);

/// Returns the values of all codes of a small floating type.
const std::array<float, 256>& small_float_table(data_type t);

/// Sign-extends the low bits of a code held in a byte, or zero-extends them if `t` is unsigned.
inline std::int64_t narrow_integer(data_type t, std::int64_t v) {
    const int unused = 64 - bits_of(t);
    if (is_signed_integer(t)) return static_cast<std::int64_t>(static_cast<std::uint64_t>(v) << unused) >> unused;
    return static_cast<std::int64_t>((static_cast<std::uint64_t>(v) << unused) >> unused);
}

namespace detail {

/// Truncates toward zero where int64 or uint64 holds the result (the bits of a uint64 are returned), and saturates to int64 elsewhere; NaN
/// gives the lowest int64. The caller wraps the result to its type.
constexpr std::int64_t to_int64(double x) {
    if (!(x > -0x1p63)) return std::numeric_limits<std::int64_t>::min();
    if (x >= 0x1p63)
        return x < 0x1p64 ? static_cast<std::int64_t>(static_cast<std::uint64_t>(x)) : std::numeric_limits<std::int64_t>::max();
    return static_cast<std::int64_t>(x);
}

}  // namespace detail

/// Reads to.size() elements of type `t` as numbers. Out is float, double or int64 (a uint64 keeps its 64 bits). Returns false if `t` has no
/// numeric value (string, complex).
template <class Out>
bool read_elements(data_type t, const std::byte* from, std::span<Out> to);

/// Writes numbers as elements of type `t`. Integers wrap; floats truncate toward zero into integers and round to nearest even into floats.
/// In is float, double or int64 (with `unsigned_source` its 64 bits are a uint64). Returns false if `t` has no numeric value.
template <class In>
bool write_elements(std::span<const In> from, data_type t, std::byte* to, cast_rules rules = {}, bool unsigned_source = false);

}  // namespace qk::graph::ops
