// SPDX-License-Identifier: Apache-2.0
// Layouts by name, for callers that have text: "gpt_oss", "modelopt.nvfp4", "gptq.int4_g128", "ggml.q4_0", "ggml.q4_0_8x8".
#pragma once

#include <string_view>

#include "qk/isa.hpp"
#include "qk/layout/repack.hpp"

namespace qk {

struct parsed_layout {
    layout value;
    bool known = false;
};

namespace layout_parts {
inline namespace QK_ISA {

/// Takes a whole number from the front; 0 if there is none or it is too large.
constexpr int take_whole(std::string_view& text) {
    int n = 0;
    while (!text.empty() && text.front() >= '0' && text.front() <= '9') {
        n = n > 100000 ? 0 : 10 * n + (text.front() - '0');
        text.remove_prefix(1);
    }
    return n;
}
constexpr bool take_word(std::string_view& text, std::string_view word) {
    if (!text.starts_with(word)) return false;
    text.remove_prefix(word.size());
    return true;
}
constexpr scale_type take_scale(std::string_view& text, scale_type usual) {
    if (take_word(text, "_bf16")) return scale_type::bf16;
    if (take_word(text, "_f16")) return scale_type::f16;
    if (take_word(text, "_f32")) return scale_type::f32;
    return usual;
}

/// "int4_g128", "int4_g32_asym_f16" or "affine4_g64" of a system.
constexpr parsed_layout parse_integers(std::string_view system, std::string_view text) {
    const bool affine = take_word(text, "affine");
    if (!affine && !take_word(text, "int")) return {};
    const int bits = take_whole(text), group = take_word(text, "_g") ? take_whole(text) : 0;
    if (bits < 1 || bits > 8) return {};
    const bool zeros = take_word(text, "_asym");
    const bool half = system == "gptq" || system == "gptq_v2" || system == "awq",
               plain = system == "modelopt" || system == "matmul_nbits" || system == "qmoe";
    const scale_type scale = take_scale(text, half ? scale_type::f16 : plain ? scale_type::f32 : scale_type::bf16);
    if (!text.empty() || affine != (system == "mlx")) return {};
    if (system == "mlx") return {layouts::mlx_affine(bits, group, scale), group != 0};
    if (system == "compressed_tensors") return {layouts::compressed_tensors_int(bits, group, scale, zeros), true};
    if (system == "gptq" || system == "gptq_v2") return {layouts::gptq(bits, group, system == "gptq", scale), true};
    if (system == "awq") return {layouts::awq(group, scale), bits == 4};
    if (system == "matmul_nbits")
        return {layouts::matmul_nbits(bits, group, scale, zeros), group != 0 && (bits == 2 || bits == 4 || bits == 8)};
    if (system == "qmoe") return {layouts::qmoe(bits, group, scale), bits == 2 || bits == 4 || bits == 8};
    layout pairs = layouts::modelopt_int4(group);
    pairs.scale = scale;
    return {pairs, system == "modelopt" && bits == 4 && group != 0};
}

/// A type of ggml's blocks, or its repacked rows: "q4_0", "q4_0_8x8".
constexpr parsed_layout parse_ggml(std::string_view text) {
    for (std::uint32_t t = 0; t < 64; ++t) {
        const auto type = static_cast<ggml_type>(t);
        const ggml_facts f = facts_of(type);
        if (f.values < 2 || !f.readable) continue;
        if (text == f.name) return {layouts::ggml(type), true};
        std::string_view rest = text;
        const bool rows = type == ggml_type::q4_0 || type == ggml_type::iq4_nl || type == ggml_type::q8_0 || type == ggml_type::mxfp4;
        if (!rows || !take_word(rest, f.name) || !take_word(rest, "_")) continue;
        if (rest == "4x4") return {layouts::ggml_rows(type, 4, 4), true};
        if (rest == "4x8") return {layouts::ggml_rows(type, 4, 8), true};
        if (rest == "8x8") return {layouts::ggml_rows(type, 8, 8), true};
    }
    return {};
}

}  // namespace QK_ISA
}  // namespace layout_parts

inline namespace QK_ISA {

/// Finds a layout: SYSTEM.FORMAT, and "+swizzled" behind it for scales in cuBLAS's tiles of 128 x 4 (of formats with scales of 8 bits).
constexpr parsed_layout parse_layout(std::string_view text) {
    constexpr std::string_view ending = "+swizzled";
    if (text.ends_with(ending)) {
        const parsed_layout linear = parse_layout(text.substr(0, text.size() - ending.size()));
        return {layouts::swizzled(linear.value),
                linear.known && bits_of(linear.value.scale) == 8 && linear.value.scales == scale_order::rows};
    }
    struct named {
        std::string_view name;
        layout value;
    };
    constexpr named all[] = {{"gpt_oss", layouts::gpt_oss},
                             {"gpt_oss.mxfp4", layouts::gpt_oss},
                             {"modelopt.nvfp4", layouts::modelopt_nvfp4},
                             {"modelopt.mxfp4", layouts::modelopt_mxfp4},
                             {"modelopt.mxfp8", layouts::modelopt_mxfp8},
                             {"compressed_tensors.nvfp4", layouts::compressed_tensors_nvfp4},
                             {"compressed_tensors.mxfp4", layouts::compressed_tensors_mxfp4},
                             {"compressed_tensors.mxfp6_e2m3", layouts::compressed_tensors_mxfp6},
                             {"compressed_tensors.mxfp8", layouts::compressed_tensors_mxfp8},
                             {"deepseek.fp8", layouts::deepseek_fp8()},
                             {"deepseek.fp8_ue8m0", layouts::deepseek_fp8(scale_type::e8m0)},
                             {"mlx.mxfp4", layouts::mlx_mxfp4},
                             {"mlx.mxfp8", layouts::mlx_mxfp8},
                             {"mlx.nvfp4", layouts::mlx_nvfp4}};
    for (const named& n : all)
        if (n.name == text) return {n.value, true};
    const std::size_t dot = text.find('.');
    if (dot == std::string_view::npos) return {};
    if (text.substr(0, dot) == "ggml") return layout_parts::parse_ggml(text.substr(dot + 1));
    return layout_parts::parse_integers(text.substr(0, dot), text.substr(dot + 1));
}

/// Why a matrix cannot be stored in a layout; empty if it can.
constexpr std::string_view check_shape(const layout& l, matrix_shape s) {
    constexpr std::uint64_t large = std::uint64_t{1} << 40;
    constexpr std::size_t most = large < SIZE_MAX ? static_cast<std::size_t>(large) : SIZE_MAX;
    if (s.rows == 0 || s.columns == 0) return "a matrix has rows and columns";
    if (s.rows > most || s.columns > most || s.rows > most / s.columns) return "the matrix has too many values";
    const ggml_facts f = facts_of(l.block);
    if (l.codes == element::ggml && s.columns % f.values != 0) return "its rows are no whole blocks";
    if (l.codes != element::ggml && l.group_columns != 0 && s.columns % static_cast<std::size_t>(l.group_columns) != 0 && l.group_rows == 1)
        return "its rows are no whole groups";
    if (l.order == code_order::ggml_rows && (s.rows % static_cast<std::size_t>(l.interleaved) != 0))
        return "its rows do not fill repacked ones";
    if (l.order == code_order::row_pairs && s.rows % 2 != 0) return "it has an odd number of rows";
    if ((l.order == code_order::awq || l.zero == zero_type::packed_words || l.zero == zero_type::packed_words_m1) && s.rows % 8 != 0)
        return "its rows do not fill words";
    if (l.order == code_order::columns && s.columns * static_cast<std::size_t>(l.bits) % 32 != 0) return "its columns do not fill words";
    if (l.order == code_order::ggml_rows && (f.bytes - 1) / 2 * 2 % static_cast<std::size_t>(l.interleaved_bytes) != 0)
        return "its blocks cannot be taken apart so";
    return {};
}

}  // namespace QK_ISA

}  // namespace qk
