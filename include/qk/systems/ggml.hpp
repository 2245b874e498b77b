// SPDX-License-Identifier: Apache-2.0
// ggml's block types as it stores them in a .gguf: quantize gives the bytes that ggml_quantize_chunk gives, dequantize the floats of
// dequantize_row_*. A row is a whole number of blocks.
//
//   const qk::systems::ggml::block_type* t = qk::systems::ggml::find("q4_K");
//   std::vector<std::byte> blocks(t->bytes_of(row.size()));
//   t->quantize(row, {}, blocks);
//   t->dequantize(blocks, row);
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "qk/inline.hpp"

namespace qk::systems::ggml {

struct block_type {
    std::string_view name;  ///< "q4_0", "q4_K", "iq4_xs": ggml's own spelling
    int number;             ///< ggml_type in a .gguf: 2 is q4_0
    std::size_t values, bytes;
    bool takes_importance;  ///< whether quantize uses an importance; the others ignore it, as ggml does

    /// `row` holds a multiple of `values` floats, `importance` as many or none, `blocks` has bytes_of(row.size()) bytes.
    void (*quantize)(std::span<const float> row, std::span<const float> importance, std::span<std::byte> blocks);
    void (*dequantize)(std::span<const std::byte> blocks, std::span<float> row);

    QK_INLINE std::size_t bytes_of(std::size_t count) const { return count / values * bytes; }
};

/// Every type that quantize knows: q1_0 q2_0 q4_0 q4_1 q5_0 q5_1 q8_0 q2_K..q6_K iq4_nl iq4_xs tq1_0 tq2_0 mxfp4 nvfp4.
std::span<const block_type> types();

/// Finds a type by ggml's name, upper or lower case ("Q4_K", "q4_k"); nullptr if it is not one of types().
const block_type* find(std::string_view name);
const block_type* find(int number);

}  // namespace qk::systems::ggml
