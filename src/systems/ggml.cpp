// SPDX-License-Identifier: Apache-2.0
// The table of ggml's block types, and the rules "ggml.TYPE".
#include "qk/systems/ggml.hpp"

#include "ggml_blocks.hpp"
#include "planes.hpp"
#include "tables.hpp"

namespace qk::systems {
namespace ggml {
namespace {

constexpr block_type block_types[] = {
    {"q4_0", 2, 32, 18, true, quantize_q4_0, dequantize_q4_0},        {"q4_1", 3, 32, 20, true, quantize_q4_1, dequantize_q4_1},
    {"q5_0", 6, 32, 22, true, quantize_q5_0, dequantize_q5_0},        {"q5_1", 7, 32, 24, true, quantize_q5_1, dequantize_q5_1},
    {"q8_0", 8, 32, 34, false, quantize_q8_0, dequantize_q8_0},       {"q2_K", 10, 256, 84, true, quantize_q2_k, dequantize_q2_k},
    {"q3_K", 11, 256, 110, true, quantize_q3_k, dequantize_q3_k},     {"q4_K", 12, 256, 144, true, quantize_q4_k, dequantize_q4_k},
    {"q5_K", 13, 256, 176, true, quantize_q5_k, dequantize_q5_k},     {"q6_K", 14, 256, 210, true, quantize_q6_k, dequantize_q6_k},
    {"iq4_nl", 20, 32, 18, true, quantize_iq4_nl, dequantize_iq4_nl}, {"iq4_xs", 23, 256, 136, true, quantize_iq4_xs, dequantize_iq4_xs},
    {"tq1_0", 34, 256, 54, false, quantize_tq1_0, dequantize_tq1_0},  {"tq2_0", 35, 256, 66, false, quantize_tq2_0, dequantize_tq2_0},
    {"mxfp4", 39, 32, 17, false, quantize_mxfp4, dequantize_mxfp4},   {"nvfp4", 40, 64, 36, false, quantize_nvfp4, dequantize_nvfp4},
    {"q1_0", 41, 128, 18, false, quantize_q1_0, dequantize_q1_0},     {"q2_0", 42, 64, 18, false, quantize_q2_0, dequantize_q2_0},
};

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

}  // namespace

std::span<const block_type> types() { return block_types; }

const block_type* find(std::string_view name) {
    for (const block_type& t : block_types) {
        if (t.name.size() != name.size()) continue;
        bool same = true;
        for (std::size_t i = 0; i < name.size(); ++i) same = same && lower(t.name[i]) == lower(name[i]);
        if (same) return &t;
    }
    return nullptr;
}
const block_type* find(int number) {
    for (const block_type& t : block_types) {
        if (t.number == number) return &t;
    }
    return nullptr;
}

}  // namespace ggml

result ggml_rule(const rule& how, const input& x) {
    const ggml::block_type& type = *ggml::find(how.format);
    const std::size_t row_bytes = type.bytes_of(x.columns);
    result made{{x.rows, x.columns}, std::vector<float>(x.values.size()), {}};
    std::vector<std::uint8_t> codes(x.rows * row_bytes);
    const auto stored = std::as_writable_bytes(std::span(codes));
    for (std::size_t r = 0; r < x.rows; ++r) {
        const auto blocks = stored.subspan(r * row_bytes, row_bytes);
        type.quantize(x.values.subspan(r * x.columns, x.columns), x.importance, blocks);
        type.dequantize(blocks, std::span(made.values).subspan(r * x.columns, x.columns));
    }
    made.planes.push_back(make_plane("codes", {x.rows, row_bytes}, codes));
    return made;
}

}  // namespace qk::systems
