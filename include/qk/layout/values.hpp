// SPDX-License-Identifier: Apache-2.0
// Where the systems keep a quantized matrix, as values: which bits hold code (row, column), which scale belongs to it, what the two mean
// together. docs/guide/checkpoints.md says whose they are. Nothing here allocates or throws.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "qk/inline.hpp"
#include "qk/isa.hpp"

// g++ 12 takes enumerators of scoped enumerations for shadows of the formats of the same names.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
#endif

namespace qk {

/// Types of ggml's blocks, with ggml's own numbers (enum ggml_type of ggml.h).
enum class ggml_type : std::uint32_t {
    f32 = 0,
    f16 = 1,
    q4_0 = 2,
    q4_1 = 3,
    q5_0 = 6,
    q5_1 = 7,
    q8_0 = 8,
    q8_1 = 9,
    q2_k = 10,
    q3_k = 11,
    q4_k = 12,
    q5_k = 13,
    q6_k = 14,
    q8_k = 15,
    iq2_xxs = 16,
    iq2_xs = 17,
    iq3_xxs = 18,
    iq1_s = 19,
    iq4_nl = 20,
    iq3_s = 21,
    iq2_s = 22,
    iq4_xs = 23,
    i8 = 24,
    i16 = 25,
    i32 = 26,
    i64 = 27,
    f64 = 28,
    iq1_m = 29,
    bf16 = 30,
    tq1_0 = 34,
    tq2_0 = 35,
    mxfp4 = 39,
    nvfp4 = 40,
    q1_0 = 41,
    q2_0 = 42
};

/// What a code is before its scale.
enum class element : std::uint8_t { e2m1, e2m3, e3m2, e4m3, e5m2, unsigned_integer, signed_integer, ggml };

/// Where code (row, column) of a matrix of R rows and K columns is. Bits are counted from the lowest bit of the first byte.
enum class code_order : std::uint8_t {
    rows,         ///< a stream of bits along each row; the next row begins at a multiple of `row_bits`
    columns,      ///< GPTQ: int32 words [K * bits / 32, R]; a stream down each column of words
    awq,          ///< int32 words [K, R / 8]: the nibbles of a word hold rows 0 2 4 6 1 3 5 7
    row_pairs,    ///< bytes [R / 2, K]: row 2 i in the low nibble, row 2 i + 1 in the high one
    high_first,   ///< nibbles along each row, the first of a pair in the high one
    ggml_blocks,  ///< ggml's blocks, one after the other along each row
    ggml_rows     ///< ggml's blocks of `interleaved` rows together, as its CPU backend repacks them
};

/// What one scale is, and how it is stored.
enum class scale_type : std::uint8_t { none, e8m0, e4m3, ue4m3, f16, bf16, f32 };

/// Where the scale of row r and group g is, of R rows and G groups.
enum class scale_order : std::uint8_t {
    rows,      ///< [R, G]
    columns,   ///< [G, R]
    swizzled,  ///< cuBLAS's tiles of 128 x 4: scale (r, g) of a tile at byte (r % 32) * 16 + (r / 32) * 4 + g
    in_blocks  ///< inside ggml's blocks
};

/// What is subtracted from a code.
enum class zero_type : std::uint8_t {
    none,
    packed_rows,      ///< codes of the same width, a stream of bits down each column of groups: compressed-tensors' [R * bits / 32, G]
    packed_words,     ///< codes of the same width along the rows: GPTQ's and AWQ's [G, R * bits / 32]
    packed_words_m1,  ///< the same, stored minus one (GPTQ's first version)
    packed_groups,    ///< along the groups of each row, whole bytes for a row: ONNX's MatMulNBits
    int8,             ///< one int8 each
    bias              ///< a float that is added after scaling, in the scale's type: MLX's affine
};

/// A float32 for the whole matrix.
enum class global_type : std::uint8_t { none, multiplies, divides };

/// In which numbers a system's own reader multiplies; the result has that type.
enum class arithmetic : std::uint8_t {
    float32,
    bfloat16,     ///< the product of float32 values, rounded to bfloat16 once
    scale,        ///< every step is rounded to the type of the scales
    power_of_two  ///< ldexp: a scale beyond float32's range does not become Inf by itself
};

}  // namespace qk

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif

namespace qk {

/// How a matrix of R rows and K columns is stored. Two equal layouts store the same numbers in the same bytes.
struct layout {
    element codes = element::e2m1;
    int bits = 4;  ///< of a code
    code_order order = code_order::rows;
    int row_bits = 8;       ///< a row is padded to a multiple of it (code_order::rows)
    int group_rows = 1;     ///< values that share a scale; 0: all rows
    int group_columns = 0;  ///< 0: all columns
    scale_type scale = scale_type::none;
    scale_order scales = scale_order::rows;
    zero_type zero = zero_type::none;
    int offset = 0;  ///< subtracted from every code, where `zero` is none: 8 for int4 stored as 0..15
    global_type global = global_type::none;
    arithmetic product = arithmetic::float32;
    bool positive_zero = false;  ///< the code of -0 means +0
    ggml_type block = ggml_type::f32;
    int interleaved = 1;        ///< rows of code_order::ggml_rows
    int interleaved_bytes = 0;  ///< bytes that are taken from each row in turn

    friend QK_INLINE constexpr bool operator==(const layout&, const layout&) = default;
};

/// The layouts by name. Widths and groups that a system leaves open are arguments.
namespace layouts {

inline constexpr layout gpt_oss{.group_columns = 32, .scale = scale_type::e8m0, .product = arithmetic::power_of_two};
inline constexpr layout modelopt_nvfp4{
    .group_columns = 16, .scale = scale_type::e4m3, .global = global_type::multiplies, .positive_zero = true};
inline constexpr layout modelopt_mxfp4{.group_columns = 32, .scale = scale_type::e8m0};
inline constexpr layout modelopt_mxfp8{.codes = element::e4m3, .bits = 8, .group_columns = 32, .scale = scale_type::e8m0};

inline namespace QK_ISA {

constexpr layout modelopt_int4(int group) {
    return {.codes = element::signed_integer, .order = code_order::row_pairs, .group_columns = group, .scale = scale_type::f32};
}
inline constexpr layout compressed_tensors_nvfp4{
    .group_columns = 16, .scale = scale_type::e4m3, .global = global_type::divides, .product = arithmetic::bfloat16};
inline constexpr layout compressed_tensors_mxfp4{.group_columns = 32, .scale = scale_type::e8m0, .product = arithmetic::bfloat16};
inline constexpr layout compressed_tensors_mxfp6{
    .codes = element::e2m3, .bits = 6, .group_columns = 32, .scale = scale_type::e8m0, .product = arithmetic::bfloat16};
inline constexpr layout compressed_tensors_mxfp8{
    .codes = element::e4m3, .bits = 8, .group_columns = 32, .scale = scale_type::e8m0, .product = arithmetic::bfloat16};
/// `group` 0: a scale for each row.
constexpr layout compressed_tensors_int(int bits, int group, scale_type scale, bool zeros) {
    return {.codes = element::unsigned_integer,
            .bits = bits,
            .row_bits = 32,
            .group_columns = group,
            .scale = scale,
            .zero = zeros ? zero_type::packed_rows : zero_type::none,
            .offset = 1 << (bits - 1),
            .product = arithmetic::scale};
}
/// DeepSeek's FP8: a scale for 128 x 128 values, which multiplies.
constexpr layout deepseek_fp8(scale_type scale = scale_type::f32, int rows = 128, int columns = 128) {
    return {.codes = element::e4m3, .bits = 8, .group_rows = rows, .group_columns = columns, .scale = scale};
}
constexpr layout mlx_affine(int bits, int group, scale_type scale) {
    return {.codes = element::unsigned_integer,
            .bits = bits,
            .row_bits = 32,
            .group_columns = group,
            .scale = scale,
            .zero = zero_type::bias,
            .product = arithmetic::scale};
}
inline constexpr layout mlx_mxfp4{.row_bits = 32, .group_columns = 32, .scale = scale_type::e8m0, .product = arithmetic::bfloat16};
inline constexpr layout mlx_nvfp4{.row_bits = 32, .group_columns = 16, .scale = scale_type::e4m3, .product = arithmetic::bfloat16};
inline constexpr layout mlx_mxfp8{
    .codes = element::e4m3, .bits = 8, .row_bits = 32, .group_columns = 32, .scale = scale_type::e8m0, .product = arithmetic::bfloat16};
/// `first_version`: zero points are stored minus one.
constexpr layout gptq(int bits, int group, bool first_version, scale_type scale = scale_type::f16) {
    return {.codes = element::unsigned_integer,
            .bits = bits,
            .order = code_order::columns,
            .group_columns = group,
            .scale = scale,
            .scales = scale_order::columns,
            .zero = first_version ? zero_type::packed_words_m1 : zero_type::packed_words};
}
constexpr layout awq(int group, scale_type scale = scale_type::f16) {
    return {.codes = element::unsigned_integer,
            .order = code_order::awq,
            .group_columns = group,
            .scale = scale,
            .scales = scale_order::columns,
            .zero = zero_type::packed_words,
            .product = arithmetic::scale};
}
/// ONNX's MatMulNBits: `B` [R, groups, group * bits / 8], `scales` [R, groups], `zero_points` [R, ceil(groups * bits / 8)] or none.
constexpr layout matmul_nbits(int bits, int group, scale_type scale, bool zeros) {
    return {.codes = element::unsigned_integer,
            .bits = bits,
            .row_bits = group * bits,
            .group_columns = group,
            .scale = scale,
            .zero = zeros ? zero_type::packed_groups : zero_type::none,
            .offset = 1 << (bits - 1)};
}
/// ONNX's QMoE: an expert's weights [R, K * bits / 8], symmetric; `group` 0: a scale for each row.
constexpr layout qmoe(int bits, int group, scale_type scale) {
    return {.codes = element::unsigned_integer, .bits = bits, .group_columns = group, .scale = scale, .offset = 1 << (bits - 1)};
}
/// One code of 8 bits for a value, as FP8 and int8 checkpoints of several systems have it.
constexpr layout bytes(element codes, int group_rows, int group_columns, scale_type scale, arithmetic product) {
    return {.codes = codes, .bits = 8, .group_rows = group_rows, .group_columns = group_columns, .scale = scale, .product = product};
}
constexpr layout ggml(ggml_type type) {
    return {.codes = element::ggml, .order = code_order::ggml_blocks, .scales = scale_order::in_blocks, .block = type};
}
/// ggml's repacked rows: q4_0 4x4, 4x8 and 8x8, iq4_nl 4x4 and 8x8, q8_0 4x4 and 4x8, mxfp4 4x4 and 8x8 (rows x bytes taken in turn).
constexpr layout ggml_rows(ggml_type type, int rows, int bytes_in_turn) {
    layout l = ggml(type);
    l.order = code_order::ggml_rows, l.interleaved = rows, l.interleaved_bytes = bytes_in_turn;
    return l;
}
/// Any layout with its scales in cuBLAS's order.
constexpr layout swizzled(layout l) {
    l.scales = scale_order::swizzled;
    return l;
}

}  // namespace QK_ISA

}  // namespace layouts

/// What a type of ggml's blocks holds. `values` is 0 for a number that names no type.
struct ggml_facts {
    std::string_view name;
    std::uint32_t values = 0, bytes = 0;
    bool readable = false;  ///< decode_ggml knows it
};

inline namespace QK_ISA {

constexpr ggml_facts facts_of(ggml_type t) {
    using enum ggml_type;
    switch (t) {
        case f32: return {"f32", 1, 4, true};
        case f16: return {"f16", 1, 2, true};
        case bf16: return {"bf16", 1, 2, true};
        case f64: return {"f64", 1, 8, true};
        case i8: return {"i8", 1, 1, false};
        case i16: return {"i16", 1, 2, false};
        case i32: return {"i32", 1, 4, false};
        case i64: return {"i64", 1, 8, false};
        case q4_0: return {"q4_0", 32, 18, true};
        case q4_1: return {"q4_1", 32, 20, true};
        case q5_0: return {"q5_0", 32, 22, true};
        case q5_1: return {"q5_1", 32, 24, true};
        case q8_0: return {"q8_0", 32, 34, true};
        case q8_1: return {"q8_1", 32, 36, true};
        case q2_k: return {"q2_k", 256, 84, true};
        case q3_k: return {"q3_k", 256, 110, true};
        case q4_k: return {"q4_k", 256, 144, true};
        case q5_k: return {"q5_k", 256, 176, true};
        case q6_k: return {"q6_k", 256, 210, true};
        case q8_k: return {"q8_k", 256, 292, true};
        case iq4_nl: return {"iq4_nl", 32, 18, true};
        case iq4_xs: return {"iq4_xs", 256, 136, true};
        case tq1_0: return {"tq1_0", 256, 54, true};
        case tq2_0: return {"tq2_0", 256, 66, true};
        case mxfp4: return {"mxfp4", 32, 17, true};
        case nvfp4: return {"nvfp4", 64, 36, true};
        case q1_0: return {"q1_0", 128, 18, true};
        case q2_0: return {"q2_0", 64, 18, true};
        case iq2_xxs: return {"iq2_xxs", 256, 66, false};
        case iq2_xs: return {"iq2_xs", 256, 74, false};
        case iq3_xxs: return {"iq3_xxs", 256, 98, false};
        case iq1_s: return {"iq1_s", 256, 50, false};
        case iq3_s: return {"iq3_s", 256, 110, false};
        case iq2_s: return {"iq2_s", 256, 82, false};
        case iq1_m: return {"iq1_m", 256, 56, false};
    }
    return {};
}

}  // namespace QK_ISA

}  // namespace qk
