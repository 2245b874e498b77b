// SPDX-License-Identifier: Apache-2.0
// Vector-Jacobian product of the standard's Attention, and of the heads that its relatives have in common with it (decoder.hpp).
#pragma once

#include <cmath>
#include <vector>

#include "graph/gradient/backward.hpp"
#include "graph/gradient/reduce_to.hpp"
#include "graph/ops/microsoft_attention.hpp"

namespace qk::graph::gradient {

/// Inverts split_heads: returns x [batch, heads, sequence, width] in `shape`, that of the operand.
template <class T>
tensor joined_heads(const tensor& x, const dims& shape) {
    if (shape.size() == 4) return x;
    tensor y(type_of<T>, shape);
    const std::int64_t heads = x.dim(1), length = x.dim(2), width = x.dim(3);
    const T* from = x.as<T>().data();
    for (std::int64_t b = 0; b < x.dim(0); ++b)
        for (std::int64_t h = 0; h < heads; ++h)
            for (std::int64_t s = 0; s < length; ++s, from += width)
                std::copy_n(from, width, y.as<T>().data() + ((b * length + s) * heads + h) * width);
    return y;
}

/// One head of Attention backwards: y = softmax(cap(scale * q k') + bias) v.
template <class T>
struct attention_head {
    std::int64_t queries, keys, width, value_width;
    T scale, cap;               ///< scale: the factor of q k'
    const T* beside = nullptr;  ///< an extra score that belongs to no key (a sink), and its gradient
    T* dbeside = nullptr;

    void run(const T* q, const T* k, const T* v, const T* g, const std::vector<T>& extra, const std::vector<char>& any, T* dq, T* dk, T* dv,
             T* dbias) const {
        const auto n = static_cast<std::size_t>(queries * keys);
        std::vector<T> score(n), p(n), dp(n), part(static_cast<std::size_t>(keys * std::max(width, value_width)));
        ops::multiply(q, false, k, true, score.data(), queries, keys, width);
        for (std::size_t i = 0; i < n; ++i) {
            score[i] *= scale;
            if (cap > 0) score[i] = std::tanh(score[i] / cap);
            p[i] = (cap > 0 ? cap * score[i] : score[i]) + extra[i];
        }
        for (std::int64_t i = 0; i < queries; ++i) {
            T* row = p.data() + i * keys;
            if (beside != nullptr) ops::detail::softmax_row_beside(row, static_cast<std::size_t>(keys), *beside);
            else if (any[static_cast<std::size_t>(i)]) ops::softmax_row(row, static_cast<std::size_t>(keys));
            else std::fill_n(row, keys, T{0});
        }
        ops::multiply(g, false, v, true, dp.data(), queries, keys, value_width);
        ops::multiply(p.data(), true, g, false, part.data(), keys, value_width, queries);
        add_into(part.data(), static_cast<std::size_t>(keys * value_width), dv);
        for (std::int64_t i = 0; i < queries; ++i) {
            T *row = dp.data() + i * keys, *weight = p.data() + i * keys;
            double sum = 0;
            for (std::int64_t j = 0; j < keys; ++j) sum += static_cast<double>(row[j] * weight[j]);
            double given = 0;
            for (std::int64_t j = 0; dbeside != nullptr && j < keys; ++j) given += static_cast<double>(weight[j]);
            if (dbeside != nullptr) *dbeside -= static_cast<T>((1 - given) * sum);
            for (std::int64_t j = 0; j < keys; ++j) row[j] = weight[j] * (row[j] - static_cast<T>(sum));
        }
        if (dbias != nullptr) std::copy_n(dp.data(), n, dbias);
        for (std::size_t i = 0; i < n; ++i) dp[i] *= scale * (cap > 0 ? 1 - score[i] * score[i] : T{1});
        ops::multiply(dp.data(), false, k, false, dq, queries, width, keys);
        ops::multiply(dp.data(), true, q, false, part.data(), keys, width, queries);
        add_into(part.data(), static_cast<std::size_t>(keys * width), dk);
    }
};

inline void attention_backward(backward_call& call) {
    for (std::size_t k = 1; k < call.output_count(); ++k)
        if (call.has_gradient(k)) call.fail("a gradient through the outputs present_key, present_value and qk_matmul is not supported");
    if (call.has_input(4)) call.fail("no vector-Jacobian product for Attention with a cache (past_key)");
    with_gradient_type(call, [&]<class T>(T) {
        op_context context = call.context();
        const node_view& node = call.node();
        const tensor q = ops::split_heads<T>(context, call.real<T>(0), node.get_int("q_num_heads", 0));
        const tensor k = ops::split_heads<T>(context, call.real<T>(1), node.get_int("kv_num_heads", 0));
        const tensor v = ops::split_heads<T>(context, call.real<T>(2), node.get_int("kv_num_heads", 0));
        tensor g = call.gradient();
        if (call.input(0).rank() == 3) g = ops::split_heads<T>(context, g, node.get_int("q_num_heads", 0));
        const std::int64_t batch = q.dim(0), heads = q.dim(1), queries = q.dim(2), width = q.dim(3), groups = k.dim(1), keys = k.dim(2);
        const attention_head<T> head{
            queries,
            keys,
            width,
            v.dim(3),
            static_cast<T>(node.has("scale") ? static_cast<double>(node.get_float("scale", 1)) : 1 / std::sqrt(static_cast<double>(width))),
            static_cast<T>(node.get_float("softcap", 0))};
        const ops::detail::attention_bias<T> bias(context, queries, keys, 0);
        tensor dq = zeros<T>(q.shape()), dk = zeros<T>(k.shape()), dv = zeros<T>(v.shape());
        tensor dbias = call.wants(3) ? tensor(type_of<T>, {batch, heads, queries, keys}) : tensor();
        std::vector<T> extra(static_cast<std::size_t>(queries * keys));
        std::vector<char> any(static_cast<std::size_t>(queries));
        for (std::int64_t b = 0; b < batch; ++b)
            for (std::int64_t h = 0; h < heads; ++h) {
                for (std::int64_t i = 0; i < queries; ++i) any[static_cast<std::size_t>(i)] = bias.row(b, h, i, extra.data() + i * keys);
                const std::int64_t m = b * heads + h, group = b * groups + h / (heads / groups);
                head.run(q.as<T>().data() + m * queries * width, k.as<T>().data() + group * keys * width,
                         v.as<T>().data() + group * keys * head.value_width, g.as<T>().data() + m * queries * head.value_width, extra, any,
                         dq.as<T>().data() + m * queries * width, dk.as<T>().data() + group * keys * width,
                         dv.as<T>().data() + group * keys * head.value_width,
                         call.wants(3) ? dbias.as<T>().data() + m * queries * keys : nullptr);
            }
        call.give(0, joined_heads<T>(dq, call.input(0).shape()));
        call.give(1, joined_heads<T>(dk, call.input(1).shape()));
        call.give(2, joined_heads<T>(dv, call.input(2).shape()));
        if (!call.wants(3)) return;
        if (call.input(3).shape().back() != keys) call.fail("a gradient of a mask that is shorter than the keys is not supported");
        call.give(3, reduced_to<T>(dbias, call.input(3).shape()));
    });
}

inline constexpr backward_entry attention_backward_rows[] = {
    {"", "Attention", 23, attention_backward},
};

}  // namespace qk::graph::gradient
