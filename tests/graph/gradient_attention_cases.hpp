// SPDX-License-Identifier: Apache-2.0
// More nodes for gradient_test: com.microsoft's attention operators, rotary positions, embeddings, packed weights.
#pragma once

#include "gradient_cases.hpp"

namespace qk_test {

inline std::vector<gradient_case> attention_cases() {
    const std::int64_t one = 1, two = 2;
    const auto small = [](qk::graph::dims shape) { return real(std::move(shape), -1, 1); };
    return {
        {"com.microsoft:MultiHeadAttention",
         {small({2, 3, 8}), small({2, 4, 8}), small({2, 4, 6}), small({22}), whole({2}, {4, 3}), small({1, 2, 3, 4})},
         {{"num_heads", two}},
         1},
        {"com.microsoft:MultiHeadAttention",
         {small({1, 2, 4}), small({1, 2, 4}), small({1, 2, 4}), nothing(), nothing(), nothing(), small({1, 2, 3, 2}), small({1, 2, 3, 2})},
         {{"num_heads", two}, {"unidirectional", one}, {"scale", 0.8f}},
         1,
         false,
         3},
        {"com.microsoft:MultiHeadAttention", {small({1, 3, 2, 3, 4})}, {{"num_heads", two}}, 1},
        {"com.microsoft:MultiHeadAttention", {small({1, 3, 4}), small({1, 4, 2, 2, 2})}, {{"num_heads", two}}, 1},
        {"com.microsoft:MultiHeadAttention", {small({1, 3, 4}), small({1, 2, 5, 2}), small({1, 2, 5, 2})}, {{"num_heads", two}}, 1},
        {"com.microsoft:Attention", {small({2, 3, 4}), small({4, 12}), small({12})}, {{"num_heads", two}}, 1},
        {"com.microsoft:Attention",
         {small({1, 3, 4}), small({4, 12}), small({12}), nothing(), small({2, 1, 2, 2, 2}), small({1, 2, 3, 5})},
         {{"num_heads", two}, {"unidirectional", one}},
         1,
         false,
         2},
        {"com.microsoft:GroupQueryAttention",
         {small({2, 2, 8}), small({2, 2, 4}), small({2, 2, 4}), small({2, 2, 5, 2}), small({2, 2, 5, 2}), whole({2}, {4, 2}),
          whole({}, {5}), small({6, 1}), small({6, 1}), nothing(), small({1, 4, 2, 5}), small({4})},
         {{"num_heads", std::int64_t{4}},
          {"kv_num_heads", two},
          {"do_rotary", one},
          {"local_window_size", std::int64_t{3}},
          {"softcap", 1.5f}},
         1,
         false,
         3},
        {"com.microsoft:GroupQueryAttention",
         {small({1, 3, 16}), nothing(), nothing(), nothing(), nothing(), whole({1}, {2}), whole({}, {3})},
         {{"num_heads", std::int64_t{4}}, {"kv_num_heads", two}, {"smooth_softmax", one}},
         1},
    };
}

inline std::vector<gradient_case> decoder_cases() {
    const std::int64_t one = 1, two = 2;
    const auto small = [](qk::graph::dims shape) { return real(std::move(shape), -1, 1); };
    return {
        {"com.microsoft:RotaryEmbedding", {real({1, 3, 8}), whole({1, 3}, {0, 2, 4}), real({5, 2}), real({5, 2})}, {{"num_heads", two}}, 1},
        {"com.microsoft:RotaryEmbedding", {real({2, 2, 3, 4}), whole({1}, {1}), real({5, 2}), real({5, 2})}, {{"interleaved", one}}, 1},
        {"RotaryEmbedding", {real({1, 2, 8}), real({1, 2, 2}), real({1, 2, 2})}, {{"num_heads", two}}, 23},
        {"com.microsoft:EmbedLayerNormalization",
         {whole({2, 3}, {0, 3, 1, 1, 2, 0}), whole({2, 3}, {0, 1, 1, 0, 0, 1}), real({4, 5}), real({3, 5}), real({2, 5}), real({5}),
          real({5})},
         {},
         1,
         true,
         3},
        {"com.microsoft:MatMulNBits",
         {real({2, 3, 4}), bytes({2, 1, 8}, {0x31, 0xA7, 0, 0, 0, 0, 0, 0, 0x5C, 0xF0, 0, 0, 0, 0, 0, 0}), real({2}, 0.5, 1), nothing(),
          nothing(), real({2})},
         {{"K", std::int64_t{4}}, {"N", two}, {"block_size", std::int64_t{16}}},
         1,
         true},
        {"com.microsoft:GatherBlockQuantized",
         {bytes({3, 2}, {0x31, 0xA7, 0x5C, 0xF0, 0x12, 0x9E}), whole({3}, {0, 2, 0}), real({3, 2}, 0.5, 1)},
         {{"block_size", two}},
         1,
         true},
        {"CausalConvWithState",
         {real({2, 3, 5}), real({3, 1, 3}), real({3}), real({2, 3, 2})},
         {{"activation", std::string("silu")}},
         28,
         true,
         2},
        {"CausalConvWithState", {real({1, 2, 4}), real({2, 1, 2})}, {}, 28, true},
        {"LinearAttention",
         {small({1, 3, 8}), small({1, 3, 4}), small({1, 3, 6}), small({1, 2, 2, 3}), real({1, 3, 4}, -1, -0.1), real({1, 3, 2}, 0.2, 0.9)},
         {{"q_num_heads", std::int64_t{4}}, {"kv_num_heads", two}},
         28,
         true,
         2},
        {"LinearAttention",
         {small({1, 3, 4}), small({1, 3, 4}), small({1, 3, 6}), nothing(), real({1, 3, 2}, -1, -0.1)},
         {{"q_num_heads", two}, {"kv_num_heads", two}, {"update_rule", std::string("gated")}, {"scale", 0.7f}},
         28,
         true},
        {"LinearAttention",
         {small({1, 3, 4}), small({1, 3, 4}), small({1, 3, 6}), nothing(), nothing(), real({1, 3, 1}, 0.2, 0.9)},
         {{"q_num_heads", two}, {"kv_num_heads", two}, {"update_rule", std::string("delta")}},
         28,
         true},
        {"LinearAttention",
         {small({2, 3, 4}), small({2, 3, 4}), small({2, 3, 6})},
         {{"q_num_heads", two}, {"kv_num_heads", two}, {"update_rule", std::string("linear")}},
         28,
         true},
    };
}

}  // namespace qk_test
