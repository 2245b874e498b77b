// SPDX-License-Identifier: Apache-2.0
// Implements com.microsoft's GroupQueryAttention and RotaryEmbedding: attention of grouped heads over a cache, as deployed decoders use it.
// https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md, and its CPU kernels where that page says nothing.
#pragma once

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "graph/ops/microsoft_attention.hpp"
#include "graph/ops/walk/rules.hpp"

namespace qk::graph::ops {

namespace detail {

/// Rotates x [B,N,S,h] in place by row position(b, s) of the cosine and sine caches.
template <class T, class Position>
void rotate(const op_context& call, tensor& x, const tensor& cosine, const tensor& sine, bool interleaved, const Position& position) {
    const std::int64_t batch = x.dim(0), heads = x.dim(1), length = x.dim(2), width = x.dim(3);
    if (cosine.rank() != 2 || cosine.shape() != sine.shape() || 2 * cosine.dim(1) > width)
        call.fail("caches of shape " + to_string(cosine.shape()) + " and " + to_string(sine.shape()) + " do not fit heads of width " +
                  std::to_string(width));
    const std::int64_t half = cosine.dim(1);
    for (std::int64_t b = 0; b < batch; ++b)
        for (std::int64_t s = 0; s < length; ++s) {
            const std::int64_t row = position(b, s);
            if (row < 0 || row >= cosine.dim(0))
                call.fail("position " + std::to_string(row) + " is outside a cache of " + std::to_string(cosine.dim(0)) + " rows");
            const T *c = cosine.as<T>().data() + row * half, *n = sine.as<T>().data() + row * half;
            for (std::int64_t h = 0; h < heads; ++h) {
                T* at = x.as<T>().data() + ((b * heads + h) * length + s) * width;
                for (std::int64_t i = 0; i < half; ++i) {
                    const std::int64_t first = interleaved ? 2 * i : i, second = interleaved ? 2 * i + 1 : i + half;
                    const T a = at[first], d = at[second];
                    at[first] = c[i] * a - n[i] * d, at[second] = n[i] * a + c[i] * d;
                }
            }
        }
}

/// Returns a writable copy of x.
template <class T>
tensor own_copy(op_context& call, const tensor& x) {
    tensor y = call.scratch(type_of<T>, x.shape());
    std::copy_n(x.as<T>().data(), x.size(), y.as<T>().data());
    return y;
}

}  // namespace detail

inline void run_microsoft_rotary(op_context& call) {
    const node_view& node = call.node();
    const tensor& given = call.input(0);
    if (node.get_int("is_packed_batching", 0) != 0 || node.get_float("scale", 1) != 1)
        call.fail("is_packed_batching and scale are not supported");
    with_working_type(given.type(), [&]<class T>(T) {
        const tensor cosine = input_as<T>(call, 2), sine = input_as<T>(call, 3);
        std::int64_t heads = node.get_int("num_heads", 0);
        const std::int64_t rotated = node.get_int("rotary_embedding_dim", 0);
        if (given.rank() == 3 && heads == 0) {  // the caches tell the width of a head
            if (rotated != 0) call.fail("rotary_embedding_dim needs num_heads");
            heads = cosine.rank() == 2 && cosine.dim(1) > 0 ? given.dim(2) / (2 * cosine.dim(1)) : 0;
        }
        const tensor split = split_heads<T>(call, given, heads);
        tensor x = detail::own_copy<T>(call, split);
        const std::vector<std::int64_t> positions = integers(call, 1);
        const std::int64_t batch = x.dim(0), length = x.dim(2);
        const bool first_only = positions.size() == 1 && batch * length != 1;
        if (!first_only && positions.size() != static_cast<std::size_t>(batch * length))
            call.fail("position_ids must be one value, or one for each token");
        detail::rotate<T>(call, x, cosine, sine, node.get_int("interleaved", 0) != 0, [&](std::int64_t b, std::int64_t s) {
            return first_only ? positions[0] + s : positions[static_cast<std::size_t>(b * length + s)];
        });
        working_output<T> y(call, 0, given.type(), given.shape());
        const std::int64_t width = x.dim(3);
        for (std::int64_t b = 0; b < batch; ++b)
            for (std::int64_t h = 0; h < x.dim(1); ++h)
                for (std::int64_t s = 0; s < length; ++s) {
                    const std::int64_t from = ((b * x.dim(1) + h) * length + s) * width;
                    const std::int64_t to = given.rank() == 4 ? from : ((b * length + s) * x.dim(1) + h) * width;
                    std::copy_n(x.as<T>().data() + from, width, y.data() + to);
                }
        y.store();
    });
}

namespace detail {

/// The length of each sample, and the positions of its new tokens.
struct grouped_lengths {
    std::int64_t batch = 0, queries = 0, buffer = 0, kept = 0;
    bool prompt = false;
    std::vector<std::int64_t> last;  ///< index of each sample's last token

    grouped_lengths(op_context& call, std::int64_t samples, std::int64_t tokens, const tensor& past)
        : batch(samples), queries(tokens), buffer(past.empty() ? 0 : past.dim(2)), last(integers(call, 5)) {
        const std::vector<std::int64_t> given = call.has_input(6) ? integers(call, 6) : std::vector{tokens};
        if (last.size() != static_cast<std::size_t>(batch)) call.fail("seqlens_k needs one value for each sample");
        if (given.size() != 1) call.fail("total_sequence_length must be one value");
        kept = std::max(given[0], buffer);
        prompt = queries == given[0];
        for (std::int64_t b = 0; b < batch; ++b)
            if (past_of(b) < 0 || last[static_cast<std::size_t>(b)] + 1 > kept || past_of(b) > buffer)
                call.fail("seqlens_k of sample " + std::to_string(b) + " does not fit the cache and the query");
    }
    std::int64_t past_of(std::int64_t b) const { return prompt ? 0 : last[static_cast<std::size_t>(b)] + 1 - queries; }
    /// Sets the scores of keys that query i must not see to -Inf: later keys, and those before its window (-1: no window).
    template <class T>
    void hide(std::int64_t b, std::int64_t i, std::int64_t window, T* row) const {
        const std::int64_t seen = past_of(b) + i + 1, first = window >= 0 ? std::max<std::int64_t>(0, seen - window) : 0;
        for (std::int64_t j = 0; j < kept; ++j)
            if (j >= seen || j < first) row[j] = never_seen<T>;
    }
};

/// Returns query, key and value as [B,heads,S,h], the first two writable. A packed query holds the heads of query, key and value in turn.
template <class T>
std::array<tensor, 3> grouped_heads(op_context& call, const tensor& query, std::int64_t heads, std::int64_t groups) {
    if (call.has_input(1))
        return {own_copy<T>(call, split_heads<T>(call, query, heads)), own_copy<T>(call, split_heads<T>(call, call.input(1), groups)),
                split_heads<T>(call, call.input(2), groups)};
    const tensor all = split_heads<T>(call, query, heads + 2 * groups);
    const auto part = [&](std::int64_t first, std::int64_t count) {
        tensor y = call.scratch(type_of<T>, {all.dim(0), count, all.dim(2), all.dim(3)});
        const std::int64_t one = all.dim(2) * all.dim(3);
        for (std::int64_t b = 0; b < all.dim(0); ++b)
            std::copy_n(all.as<T>().data() + (b * all.dim(1) + first) * one, count * one, y.as<T>().data() + b * count * one);
        return y;
    };
    return {part(0, heads), part(heads, groups), part(heads + groups, groups)};
}

/// Returns the cache with the new keys or values appended, for each sample at its own position. Zeros fill the rest.
template <class T>
tensor present_cache(op_context& call, const grouped_lengths& at, const tensor& past, const tensor& now) {
    const std::int64_t groups = now.dim(1), width = now.dim(3);
    if (now.dim(0) != at.batch || now.dim(2) != at.queries) call.fail("keys and values need a token for each of the query's");
    if (!past.empty() && past.shape() != dims{at.batch, groups, at.buffer, width})
        call.fail("a cache of shape " + to_string(past.shape()) + " does not fit " + to_string(now.shape()));
    tensor y = call.scratch(type_of<T>, {at.batch, groups, at.kept, width});
    std::fill(y.as<T>().begin(), y.as<T>().end(), T{0});
    for (std::int64_t b = 0; b < at.batch; ++b)
        for (std::int64_t g = 0; g < groups; ++g) {
            const std::int64_t before = at.past_of(b), row = b * groups + g;
            T* to = y.as<T>().data() + row * at.kept * width;
            if (!past.empty()) std::copy_n(past.as<T>().data() + row * at.buffer * width, before * width, to);
            std::copy_n(now.as<T>().data() + row * at.queries * width, std::min(at.queries, at.kept - before) * width, to + before * width);
        }
    return y;
}

/// Rotates query and key by the positions of their tokens if attribute do_rotary is set.
template <class T>
void rotate_grouped(op_context& call, const grouped_lengths& at, tensor& q, tensor& k) {
    if (call.node().get_int("do_rotary", 0) == 0) return;
    const tensor cosine = input_as<T>(call, 7), sine = input_as<T>(call, 8);
    const std::vector<std::int64_t> places = optional_integers(call, 9);
    if (!places.empty() && places.size() != static_cast<std::size_t>(at.batch * at.queries))
        call.fail("position_ids needs one value for each token");
    const auto position = [&](std::int64_t b, std::int64_t s) {
        return places.empty() ? at.past_of(b) + s : places[static_cast<std::size_t>(b * at.queries + s)];
    };
    const bool interleaved = call.node().get_int("rotary_interleaved", 0) != 0;
    rotate<T>(call, q, cosine, sine, interleaved, position);
    rotate<T>(call, k, cosine, sine, interleaved, position);
}

}  // namespace detail

/// Computes causal attention of grouped heads over a cache in which each sample has its own length.
template <class T>
void group_query_attention(op_context& call) {
    const node_view& node = call.node();
    const std::int64_t heads = node.get_int("num_heads", 0), groups = node.get_int("kv_num_heads", 0);
    if (heads < 1 || groups < 1 || heads % groups != 0) call.fail("kv_num_heads must divide num_heads");
    const tensor query = input_as<T>(call, 0), past_k = optional_as<T>(call, 3), past_v = optional_as<T>(call, 4);
    if (query.rank() != 3) call.fail("the query must have rank 3, not shape " + to_string(query.shape()));
    if (!past_k.empty() && past_k.rank() != 4) call.fail("a cache must have rank 4, not shape " + to_string(past_k.shape()));
    const std::int64_t batch = query.dim(0), queries = query.dim(1);
    auto [q, k, v] = detail::grouped_heads<T>(call, query, heads, groups);
    const detail::grouped_lengths at(call, batch, queries, past_k);
    detail::rotate_grouped<T>(call, at, q, k);
    const tensor all_k = detail::present_cache<T>(call, at, past_k, k), all_v = detail::present_cache<T>(call, at, past_v, v);
    const detail::score_bias<T> added(call, 10, batch, heads, queries, at.kept);
    const std::int64_t window = node.get_int("local_window_size", -1);
    const tensor sinks = optional_as<T>(call, 11);
    if (!sinks.empty() && static_cast<std::int64_t>(sinks.size()) != heads) call.fail("head_sink needs one value for each head");
    const bool smooth = node.get_int("smooth_softmax", 0) != 0;
    const T scale = detail::score_scale<T>(call, k.dim(3));
    working_output<T> y(call, 0, call.input(0).type(), {batch, queries, heads * v.dim(3)});
    detail::attend<T>(
        call, q, all_k, all_v, scale, static_cast<T>(node.get_float("softcap", 0)),
        [&](std::int64_t b, std::int64_t h, std::int64_t i, T* row) {
            added.add(b, h, i, row);
            at.hide(b, i, window, row);
        },
        [&](std::int64_t h, T* row, std::size_t n) {
            if (!sinks.empty()) detail::softmax_row_beside(row, n, sinks.as<T>()[static_cast<std::size_t>(h)]);
            else if (smooth) detail::softmax_row_beside(row, n, T{0});
            else softmax_row(row, n);
        },
        y.data());
    y.store();
    detail::give_as<T>(call, 1, all_k, call.input(0).type());
    detail::give_as<T>(call, 2, all_v, call.input(0).type());
}

inline void run_group_query_attention(op_context& call) {
    with_working_type(call.input(0).type(), [&]<class T>(T) { group_query_attention<T>(call); });
}

// clang-format off
inline constexpr op_entry group_query_attention_ops[] = {
    {"com.microsoft", "GroupQueryAttention", 1, run_group_query_attention, nullptr, {follow_group_query_attention}, {.traits = moves_channels, .pasts = 1u << 3 | 1u << 4, .mask = 10}},
    {"com.microsoft", "RotaryEmbedding", 1, run_microsoft_rotary, nullptr, {follow_rotary}},
};
// clang-format on

}  // namespace qk::graph::ops
