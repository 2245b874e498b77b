// SPDX-License-Identifier: Apache-2.0
// Implements LinearAttention, CausalConvWithState and RotaryEmbedding, which recurrent language models combine with attention.
#pragma once

#include <cmath>
#include <vector>

#include "graph/ops/op.hpp"
#include "graph/ops/walk/rules.hpp"
#include "graph/ops/working_type.hpp"

namespace qk::graph::ops {

/// Computes, token by token, S = decay S + k (x) u and o = scale S^T q, where u = v, or u = beta (v - (decay S)^T k) for the delta rules.
/// decay is exp(input 4) for the gated rules and 1 for the others.
inline void run_linear_attention(op_context& call) {
    const node_view& node = call.node();
    const tensor& given = call.input(0);
    const std::string rule = node.get_string("update_rule", "gated_delta");
    const bool gated = rule == "gated" || rule == "gated_delta", delta = rule == "delta" || rule == "gated_delta";
    if (!gated && !delta && rule != "linear") call.fail("update_rule '" + rule + "' is none of linear, gated, delta, gated_delta");
    const std::int64_t heads = node.get_int("q_num_heads", 0), groups = node.get_int("kv_num_heads", 0);
    if (groups < 1 || heads < 1 || heads % groups != 0 || heads > 1 << 20)
        call.fail("q_num_heads must be a positive multiple of kv_num_heads, and sensible");
    const tensor q = input_as<float>(call, 0), k = input_as<float>(call, 1), v = input_as<float>(call, 2);
    const tensor past = optional_as<float>(call, 3);
    const tensor decay = gated ? input_as<float>(call, 4) : tensor{}, beta = delta ? input_as<float>(call, 5) : tensor{};
    for (const tensor* t : {&q, &k, &v})
        if (t->rank() != 3) call.fail("query, key and value must have rank 3, not shape " + to_string(t->shape()));
    const std::int64_t batch = q.dim(0), length = q.dim(1), dk = q.dim(2) / heads, dv = v.dim(2) / groups;
    if (q.dim(2) != dk * heads || k.shape() != dims{batch, length, groups * dk} || v.shape() != dims{batch, length, groups * dv}) {
        call.fail("query " + to_string(q.shape()) + ", key " + to_string(k.shape()) + " and value " + to_string(v.shape()) +
                  " do not fit the numbers of heads");
    }
    const dims state_shape{batch, groups, dk, dv};
    if (!past.empty() && past.shape() != state_shape)
        call.fail("past_state has shape " + to_string(past.shape()) + ", not " + to_string(state_shape));
    if (!decay.empty() && decay.rank() != 3) call.fail("decay has shape " + to_string(decay.shape()));
    const std::int64_t decays = decay.empty() ? 0 : decay.dim(2) / groups;
    if (!decay.empty() && decay.shape() != dims{batch, length, groups} && decay.shape() != dims{batch, length, groups * dk})
        call.fail("decay has shape " + to_string(decay.shape()));
    if (!beta.empty() && beta.shape() != dims{batch, length, groups} && beta.shape() != dims{batch, length, 1})
        call.fail("beta has shape " + to_string(beta.shape()));
    float scale = node.get_float("scale", 0);
    if (scale == 0) scale = 1 / std::sqrt(static_cast<float>(dk));

    working_output<float> state(call, 1, call.has_input(3) ? call.input(3).type() : given.type(), state_shape);
    if (past.empty()) std::fill(state.values().begin(), state.values().end(), 0.0f);
    else std::copy(past.as<float>().begin(), past.as<float>().end(), state.data());
    working_output<float> y(call, 0, given.type(), {batch, length, heads * dv});
    std::vector<float> value(static_cast<std::size_t>(dv));
    for (std::int64_t b = 0; b < batch; ++b)
        for (std::int64_t g = 0; g < groups; ++g) {
            float* s = state.data() + (b * groups + g) * dk * dv;
            for (std::int64_t t = 0; t < length; ++t) {
                const std::int64_t at = b * length + t;
                const float* key = k.as<float>().data() + (at * groups + g) * dk;
                std::copy_n(v.as<float>().data() + (at * groups + g) * dv, dv, value.data());
                for (std::int64_t d = 0; gated && d < dk; ++d) {
                    const float factor =
                        std::exp(decay.as<float>()[static_cast<std::size_t>((at * groups + g) * decays + (decays == 1 ? 0 : d))]);
                    for (std::int64_t m = 0; m < dv; ++m) s[d * dv + m] *= factor;
                }
                if (delta) {
                    const float rate = beta.as<float>()[static_cast<std::size_t>(beta.dim(2) == 1 ? at : at * groups + g)];
                    for (std::int64_t d = 0; d < dk; ++d)
                        for (std::int64_t m = 0; m < dv; ++m) value[static_cast<std::size_t>(m)] -= s[d * dv + m] * key[d];
                    for (float& x : value) x *= rate;
                }
                for (std::int64_t d = 0; d < dk; ++d)
                    for (std::int64_t m = 0; m < dv; ++m) s[d * dv + m] += key[d] * value[static_cast<std::size_t>(m)];
                for (std::int64_t h = g * (heads / groups); h < (g + 1) * (heads / groups); ++h) {
                    const float* query = q.as<float>().data() + (at * heads + h) * dk;
                    float* out = y.data() + (at * heads + h) * dv;
                    std::fill_n(out, dv, 0.0f);
                    for (std::int64_t d = 0; d < dk; ++d)
                        for (std::int64_t m = 0; m < dv; ++m) out[m] += query[d] * s[d * dv + m];
                    for (std::int64_t m = 0; m < dv; ++m) out[m] *= scale;
                }
            }
        }
    y.store();
    state.store();
}

/// Computes a depthwise convolution over past_state followed by the input. The last k - 1 values are the next state.
inline void run_causal_conv_with_state(op_context& call) {
    const tensor& given = call.input(0);
    const std::string activation = call.node().get_string("activation", "none");
    const bool silu = activation == "silu" || activation == "swish";
    if (!silu && activation != "none") call.fail("activation '" + activation + "' is none of silu, swish, none");
    const tensor x = input_as<float>(call, 0), w = input_as<float>(call, 1), bias = optional_as<float>(call, 2),
                 past = optional_as<float>(call, 3);
    if (x.rank() != 3 || w.rank() != 3 || w.dim(0) != x.dim(1) || w.dim(1) != 1 || w.dim(2) < 1) {
        call.fail("input " + to_string(x.shape()) + " and weight " + to_string(w.shape()) + " do not fit");
    }
    const std::int64_t batch = x.dim(0), channels = x.dim(1), length = x.dim(2), k = w.dim(2), before = k - 1;
    if (!past.empty() && past.shape() != dims{batch, channels, before}) call.fail("past_state has shape " + to_string(past.shape()));
    if (!bias.empty() && bias.size() != static_cast<std::size_t>(channels)) call.fail("bias has shape " + to_string(bias.shape()));
    working_output<float> y(call, 0, given.type(), x.shape()), state(call, 1, given.type(), {batch, channels, before});
    if (batch * channels == 0) return y.store(), state.store();
    std::vector<float> row(static_cast<std::size_t>(before + length), 0.0f);
    for (std::int64_t i = 0; i < batch * channels; ++i) {
        const std::int64_t c = i % channels;
        if (!past.empty()) std::copy_n(past.as<float>().data() + i * before, before, row.data());
        std::copy_n(x.as<float>().data() + i * length, length, row.data() + before);
        for (std::int64_t t = 0; t < length; ++t) {
            float sum = 0;
            for (std::int64_t j = 0; j < k; ++j)
                sum += w.as<float>()[static_cast<std::size_t>(c * k + j)] * row[static_cast<std::size_t>(t + j)];
            if (!bias.empty()) sum += bias.as<float>()[static_cast<std::size_t>(c)];
            y.data()[i * length + t] = silu ? sum / (1 + std::exp(-sum)) : sum;
        }
        std::copy_n(row.data() + length, before, state.data() + i * before);
    }
    y.store();
    state.store();
}

/// Rotates pairs of values by the angles of their position. A pair is a value of each half, or two neighbours when interleaved.
inline void run_rotary_embedding(op_context& call) {
    const node_view& node = call.node();
    const tensor& given = call.input(0);
    const bool packed = given.rank() == 3;
    if (!packed && given.rank() != 4) call.fail("X must have rank 3 or 4");
    const std::int64_t heads = packed ? node.get_int("num_heads", 0) : given.dim(1);
    if (packed && (heads < 1 || given.dim(2) % heads != 0)) call.fail("a rank-3 X needs num_heads, a divisor of its last axis");
    const std::int64_t batch = given.dim(0), length = given.dim(packed ? 1 : 2), width = packed ? given.dim(2) / heads : given.dim(3);
    std::int64_t rotated = node.get_int("rotary_embedding_dim", 0);
    if (rotated == 0) rotated = width;
    if (rotated < 0 || rotated > width || rotated % 2 != 0)
        call.fail("rotary_embedding_dim " + std::to_string(rotated) + " must be even and at most the head size " + std::to_string(width));
    const std::int64_t half_width = rotated / 2;
    const bool interleaved = node.get_int("interleaved", 0) != 0;
    with_working_type(given.type(), [&]<class T>(T) {
        const tensor x = input_as<T>(call, 0), cosine = input_as<T>(call, 1), sine = input_as<T>(call, 2);
        const bool by_position = call.has_input(3);
        const std::vector<std::int64_t> positions = by_position ? integers(call, 3) : std::vector<std::int64_t>{};
        if (cosine.shape() != sine.shape() || cosine.rank() < 2 || cosine.shape().back() != half_width) {
            call.fail("caches of shape " + to_string(cosine.shape()) + " and " + to_string(sine.shape()) + " do not end in " +
                      std::to_string(half_width));
        }
        const std::int64_t rows = static_cast<std::int64_t>(cosine.size()) / std::max<std::int64_t>(half_width, 1);
        if (by_position && positions.size() != static_cast<std::size_t>(batch * length))
            call.fail("position_ids needs one value for each token");
        if (!by_position && rows != batch * length) call.fail("without position_ids the caches need one row for each token");
        working_output<T> y(call, 0, given.type(), x.shape());
        for (std::int64_t b = 0; b < batch; ++b)
            for (std::int64_t s = 0; s < length; ++s) {
                const std::int64_t row = by_position ? positions[static_cast<std::size_t>(b * length + s)] : b * length + s;
                if (row < 0 || row >= rows)
                    call.fail("position " + std::to_string(row) + " is outside a cache of " + std::to_string(rows) + " rows");
                const T* c = cosine.as<T>().data() + row * half_width;
                const T* n = sine.as<T>().data() + row * half_width;
                for (std::int64_t h = 0; h < heads; ++h) {
                    const std::int64_t at = (packed ? (b * length + s) * heads + h : (b * heads + h) * length + s) * width;
                    const T* from = x.as<T>().data() + at;
                    T* to = y.data() + at;
                    for (std::int64_t i = 0; i < half_width; ++i) {
                        const std::int64_t first = interleaved ? 2 * i : i, second = interleaved ? 2 * i + 1 : i + half_width;
                        const T a = from[first], d = from[second];
                        to[first] = c[i] * a - n[i] * d;
                        to[second] = n[i] * a + c[i] * d;
                    }
                    std::copy(from + rotated, from + width, to + rotated);
                }
            }
        y.store();
    });
}

inline constexpr op_entry linear_attention_ops[] = {
    {"", "LinearAttention", 27, run_linear_attention, nullptr, {follow_linear_attention}},
    {"", "CausalConvWithState", 27, run_causal_conv_with_state, nullptr, {follow_causal_conv}},
    {"", "RotaryEmbedding", 23, run_rotary_embedding, nullptr, {follow_rotary}},
};

}  // namespace qk::graph::ops
