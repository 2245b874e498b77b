// SPDX-License-Identifier: Apache-2.0
// Implements com.microsoft's EmbedLayerNormalization and GatherBlockQuantized, which look up rows in tables of embeddings.
// https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
#pragma once

#include <cmath>
#include <vector>

#include "graph/ops/op.hpp"
#include "graph/ops/types.hpp"
#include "graph/ops/walk/rules.hpp"
#include "graph/ops/working_type.hpp"

namespace qk::graph::ops {

/// Adds the embeddings of words, positions and segments, and normalizes along the last axis. Output 1 is the number of unmasked positions.
inline void run_embed_layer_normalization(op_context& call) {
    const tensor& ids = call.input(0);
    if (ids.rank() != 2) call.fail("input_ids must be [batch, length], not " + to_string(ids.shape()));
    const data_type type = call.input(2).type();
    const tensor word = input_as<float>(call, 2), place = input_as<float>(call, 3), segment = optional_as<float>(call, 4),
                 gamma = input_as<float>(call, 5), beta = input_as<float>(call, 6);
    const std::int64_t batch = ids.dim(0), length = ids.dim(1), hidden = word.rank() == 2 ? word.dim(1) : 0;
    if (hidden < 1 || place.rank() != 2 || place.dim(1) != hidden ||
        (!segment.empty() && (segment.rank() != 2 || segment.dim(1) != hidden)) || static_cast<std::int64_t>(gamma.size()) != hidden ||
        static_cast<std::int64_t>(beta.size()) != hidden)
        call.fail("the tables and the normalization do not have one width");
    const std::vector<std::int64_t> words = integers(call, 0);
    const std::vector<std::int64_t> segments = optional_integers(call, 1), places = optional_integers(call, 8),
                                    mask = optional_integers(call, 7);
    const auto fits = [&](const std::vector<std::int64_t>& given, std::size_t i, const char* what) {
        if (call.has_input(i) && given.size() != words.size())
            call.fail(std::string(what) + " of shape " + to_string(call.input(i).shape()) + " do not fit input_ids of shape " +
                      to_string(ids.shape()));
    };
    fits(segments, 1, "segment_ids");
    fits(mask, 7, "mask values");
    if (places.size() != static_cast<std::size_t>(length)) fits(places, 8, "position_ids");
    const auto row = [&](const tensor& table, std::int64_t index, const char* what) {
        if (index < 0 || index >= table.dim(0))
            call.fail(std::string(what) + " " + std::to_string(index) + " is outside of " + std::to_string(table.dim(0)) + " rows");
        return table.as<float>().data() + index * hidden;
    };
    const float epsilon = call.node().get_float("epsilon", 1e-12f);
    working_output<float> y(call, 0, type, {batch, length, hidden}), sum(call, 2, type, {batch, length, hidden});
    for (std::int64_t t = 0; t < batch * length; ++t) {
        const auto at = static_cast<std::size_t>(t);
        const float* a = row(word, words[at], "the id");
        const std::int64_t where =
            places.empty() ? t % length : places[places.size() == words.size() ? at : static_cast<std::size_t>(t % length)];
        const float* b = row(place, where, "the position");
        const float* c = segment.empty() ? nullptr : row(segment, segments.empty() ? 0 : segments[at], "the segment");
        float* to = sum.data() + t * hidden;
        double mean = 0, square = 0;
        for (std::int64_t i = 0; i < hidden; ++i) to[i] = a[i] + b[i] + (c == nullptr ? 0.0f : c[i]), mean += static_cast<double>(to[i]);
        mean /= static_cast<double>(hidden);
        for (std::int64_t i = 0; i < hidden; ++i) square += (static_cast<double>(to[i]) - mean) * (static_cast<double>(to[i]) - mean);
        const double scale = 1 / std::sqrt(square / static_cast<double>(hidden) + static_cast<double>(epsilon));
        for (std::int64_t i = 0; i < hidden; ++i)
            y.data()[t * hidden + i] =
                static_cast<float>((static_cast<double>(to[i]) - mean) * scale) * gamma.as<float>()[static_cast<std::size_t>(i)] +
                beta.as<float>()[static_cast<std::size_t>(i)];
    }
    y.store();
    sum.store();
    if (!call.wants(1)) return;
    tensor& shown = call.output(1, data_type::int32, {batch});
    for (std::int64_t b = 0; b < batch; ++b) {
        std::int32_t count = 0;
        for (std::int64_t s = 0; s < length && !mask.empty(); ++s) count += mask[static_cast<std::size_t>(b * length + s)] == 1;
        shown.as<std::int32_t>()[static_cast<std::size_t>(b)] = count;
    }
}

/// Looks up rows in a table of codes with one scale for each block along the last axis: integers, or small floats, whose scales may be the
/// same for all rows and whose rows may be one block.
inline void run_gather_block_quantized(op_context& call) {
    const node_view& node = call.node();
    const tensor& data = call.input(0);
    const bool floats = !is_integer_type(data.type());
    const std::int64_t given_block = node.get_int("block_size", 128);
    const std::int64_t block = floats && given_block == 0 && data.rank() == 2 ? data.dim(1) : given_block,
                       bits = data.type() == data_type::uint8 ? node.get_int("bits", 4) : 4;
    const auto rank = static_cast<std::int64_t>(data.rank());
    const auto counted = [&](std::int64_t axis) { return axis < 0 ? axis + rank : axis; };
    if (rank != 2 || counted(node.get_int("gather_axis", 0)) != 0 || counted(node.get_int("quantize_axis", 1)) != 1)
        call.fail("only a table [rows, values] gathered by rows with blocks along them is supported");
    if (block < 1 || (bits != 2 && bits != 4 && bits != 8)) call.fail("block_size must be positive and bits 2, 4 or 8");
    const tensor& scales = call.input(2);
    const tensor scale = input_as<float>(call, 2);
    const bool bytes = data.type() == data_type::uint8;
    const std::int64_t per_byte = bytes ? 8 / bits : 1, width = data.dim(1) * per_byte, blocks = (width + block - 1) / block;
    const bool one_row = floats && scales.rank() == 2 && scales.dim(0) == 1;
    if (scale.size() != static_cast<std::size_t>((one_row ? 1 : data.dim(0)) * blocks))
        call.fail("scales of shape " + to_string(scale.shape()) + " do not fit the table");
    const auto code_of = [&](const tensor& t, std::int64_t row, std::int64_t i, std::int64_t row_bytes, const tensor& wide) -> float {
        if (!bytes) return wide.as<float>()[static_cast<std::size_t>(row * row_bytes + i)];
        const auto byte = std::to_integer<std::int64_t>(t.bytes()[row * row_bytes + i / per_byte]);
        return static_cast<float>(byte >> (i % per_byte * bits) & ((std::int64_t{1} << bits) - 1));
    };
    const tensor wide = bytes ? tensor{} : input_as<float>(call, 0),
                 zeros = call.has_input(3) && !bytes ? input_as<float>(call, 3) : tensor{};
    const std::int64_t zero_width = bytes ? (blocks + per_byte - 1) / per_byte : blocks;
    if (call.has_input(3) && call.input(3).size() != static_cast<std::size_t>(data.dim(0) * zero_width))
        call.fail("the zero points do not fit the table");
    const float middle = bytes ? static_cast<float>(std::int64_t{1} << (bits - 1)) : 0;
    dims shape = call.input(1).shape();
    const std::vector<std::int64_t> indices = integers(call, 1);
    shape.push_back(width);
    working_output<float> y(call, 0, scales.type(), shape);
    for (std::size_t n = 0; n < indices.size(); ++n) {
        const std::int64_t r = indices[n] < 0 ? indices[n] + data.dim(0) : indices[n];
        if (r < 0 || r >= data.dim(0))
            call.fail("index " + std::to_string(indices[n]) + " is outside of " + std::to_string(data.dim(0)) + " rows");
        for (std::int64_t i = 0; i < width; ++i) {
            const std::int64_t b = i / block;
            const float zero = call.has_input(3) ? code_of(call.input(3), r, b, zero_width, zeros) : middle;
            y.values()[n * static_cast<std::size_t>(width) + static_cast<std::size_t>(i)] =
                (code_of(data, r, i, data.dim(1), wide) - zero) *
                scale.as<float>()[static_cast<std::size_t>((one_row ? 0 : r) * blocks + b)];
        }
    }
    y.store();
}

inline type_source embedding_types(const onnx::NodeProto&, int output) {
    return output == 1 ? type_source{-1, data_type::int32} : type_source{2};  // counts of what the mask shows, beside words
}

// clang-format off
inline constexpr op_entry embedding_ops[] = {
    {"com.microsoft", "EmbedLayerNormalization", 1, run_embed_layer_normalization, nullptr,
     {follow_embeddings}, {.types = embedding_types}},
    {"com.microsoft", "GatherBlockQuantized", 1, run_gather_block_quantized, nullptr, {follow_gather_block_quantized}, {.traits = on_codes, .types = like<2>}},
};
// clang-format on

}  // namespace qk::graph::ops
