// SPDX-License-Identifier: Apache-2.0
// Implements com.microsoft's DecoderMaskedMultiHeadAttention: MultiHeadAttention of one query, whose cache may be filled in place.
// https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
#pragma once

#include <algorithm>
#include <array>

#include "graph/ops/microsoft_attention.hpp"
#include "graph/ops/walk/rules.hpp"

namespace qk::graph::ops {

namespace detail {

/// Copies the first `length` rows of every head from one cache [B,N,any,h] to another.
inline void copy_rows(const tensor& from, tensor& to, std::int64_t length) {
    const std::size_t row = static_cast<std::size_t>(from.dim(3)) * size_of(from.type()), part = static_cast<std::size_t>(length) * row;
    const std::size_t step = static_cast<std::size_t>(from.dim(2)) * row, to_step = static_cast<std::size_t>(to.dim(2)) * row;
    for (std::size_t i = 0; part > 0 && i < static_cast<std::size_t>(from.dim(0) * from.dim(1)); ++i)
        std::copy_n(from.bytes() + i * step, part, to.bytes() + i * to_step);
}

/// Returns the first `length` positions of a cache [B,N,longest,h]. The positions behind them are not filled yet.
inline tensor filled_part(op_context& call, const tensor& cache, std::int64_t length) {
    if (cache.rank() != 4 || length < 0 || length > cache.dim(2))
        call.fail("past_sequence_length " + std::to_string(length) + " does not fit a cache of shape " + to_string(cache.shape()));
    tensor y = call.scratch(cache.type(), {cache.dim(0), cache.dim(1), length, cache.dim(3)});
    copy_rows(cache, y, length);
    return y;
}

/// Returns a copy of the cache whose first positions are replaced by `now` [B,N,length,h].
inline tensor refilled(op_context& call, const tensor& cache, const tensor& now) {
    if (now.dim(2) > cache.dim(2)) call.fail("the cache of shape " + to_string(cache.shape()) + " is full");
    tensor y = call.scratch(cache.type(), cache.shape());
    std::copy_n(cache.bytes(), cache.size() * size_of(cache.type()), y.bytes());
    copy_rows(now, y, now.dim(2));
    return y;
}

}  // namespace detail

inline void run_decoder_masked_attention(op_context& call) {
    const node_view& node = call.node();
    const auto number = [&](std::size_t i, const char* what) {
        const std::vector<std::int64_t> values = integers(call, i);
        if (values.size() != 1) call.fail(std::string(what) + " must be one number, not of shape " + to_string(call.input(i).shape()));
        return values[0];
    };
    if (call.has_input(8) && number(8, "beam_width") > 1) call.fail("beam_width above 1 (cache_indirection) is not supported");
    if (node.get_int("output_qk", 0) != 0) call.fail("output_qk=1 is not supported");
    const auto given = [&](std::size_t i) { return optional_input(call, i); };
    if (call.input(0).rank() == 3 && call.input(0).dim(1) != 1)
        call.fail("it has one query for each sample, not those of shape " + to_string(call.input(0).shape()));
    const bool in_place = node.get_int("past_present_share_buffer", 0) != 0 && call.has_input(5);
    std::array<tensor, 8> inputs{given(0), given(1), given(2), given(10), given(3), given(4), given(5), given(6)};
    if (in_place) {
        if (!call.has_input(7)) call.fail("past_present_share_buffer needs past_sequence_length");
        const std::int64_t length = number(7, "past_sequence_length");
        for (const std::size_t i : {std::size_t{6}, std::size_t{7}}) inputs[i] = detail::filled_part(call, inputs[i], length);
        if (length == 0) inputs[6] = inputs[7] = tensor{};
    }
    std::array<tensor, 3> outputs;
    op_context inner = call.with(inputs, outputs);
    run_multi_head_attention(inner);
    call.set_output(0, outputs[0]);
    for (const std::size_t i : {std::size_t{1}, std::size_t{2}})
        if (call.wants(i)) call.set_output(i, in_place ? detail::refilled(call, call.input(i + 4), outputs[i]) : outputs[i]);
}

// clang-format off
inline constexpr op_entry decoder_masked_attention_ops[] = {
    {"com.microsoft", "DecoderMaskedMultiHeadAttention", 1, run_decoder_masked_attention, nullptr, {follow_multi_head_attention}, {.pasts = 1u << 5 | 1u << 6}},
};
// clang-format on

}  // namespace qk::graph::ops
