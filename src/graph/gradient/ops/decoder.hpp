// SPDX-License-Identifier: Apache-2.0
// Vector-Jacobian products of com.microsoft's Attention, MultiHeadAttention and GroupQueryAttention, by every real input (caches, biases,
// sinks, tables of cosines and sines), and of RotaryEmbedding.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "graph/gradient/backward.hpp"
#include "graph/gradient/ops/attention.hpp"
#include "graph/ops/group_query_attention.hpp"

namespace qk::graph::gradient {

/// Gradients of attention's operands.
template <class T>
struct operand_gradients {
    tensor q, k, v, scores;  ///< scores [B, N, S, T]: gradient of what was added to the scores
    std::vector<T> sinks;    ///< by head: gradients of sinks

    operand_gradients(const tensor& of_q, const tensor& of_k, const tensor& of_v)
        : q(zeros<T>(of_q.shape())), k(zeros<T>(of_k.shape())), v(zeros<T>(of_v.shape())), sinks(static_cast<std::size_t>(of_q.dim(1))) {
        scores = tensor(type_of<T>, {of_q.dim(0), of_q.dim(1), of_q.dim(2), of_k.dim(2)});
    }
};

/// Takes the gradient of output 0 back to the operands. add(b, h, i, row) adds masks and biases to a row of T scores; `beside` has for each
/// head an extra score that belongs to no key, or is empty.
template <class T, class Add>
operand_gradients<T> attend_back(backward_call& call, const tensor& q, const tensor& k, const tensor& v, T scale, T cap, const Add& add,
                                 const std::vector<T>& beside) {
    operand_gradients<T> d(q, k, v);
    const std::int64_t heads = q.dim(1), queries = q.dim(2), keys = k.dim(2), groups = k.dim(1), width = q.dim(3), value_width = v.dim(3);
    std::fill(d.scores.template as<T>().begin(), d.scores.template as<T>().end(), T{0});
    if (!call.has_gradient()) return d;
    op_context context = call.context();
    const tensor g = ops::split_heads<T>(context, call.gradient(), heads);
    std::vector<T> extra(static_cast<std::size_t>(queries * keys));
    const std::vector<char> any(static_cast<std::size_t>(queries), 1);
    for (std::int64_t b = 0; b < q.dim(0); ++b)
        for (std::int64_t h = 0; h < heads; ++h) {
            attention_head<T> head{queries, keys, width, value_width, scale, cap};
            if (!beside.empty()) head.beside = &beside[static_cast<std::size_t>(h)], head.dbeside = &d.sinks[static_cast<std::size_t>(h)];
            std::fill(extra.begin(), extra.end(), T{0});
            for (std::int64_t i = 0; i < queries; ++i) add(b, h, i, extra.data() + i * keys);
            const std::int64_t m = b * heads + h, group = b * groups + h / (heads / groups);
            head.run(q.as<T>().data() + m * queries * width, k.as<T>().data() + group * keys * width,
                     v.as<T>().data() + group * keys * value_width, g.as<T>().data() + m * queries * value_width, extra, any,
                     d.q.template as<T>().data() + m * queries * width, d.k.template as<T>().data() + group * keys * width,
                     d.v.template as<T>().data() + group * keys * value_width, d.scores.template as<T>().data() + m * queries * keys);
        }
    return d;
}

template <class T>
void add_to(tensor& sum, const tensor& g) {
    for (std::size_t i = 0; i < sum.size(); ++i) sum.as<T>()[i] += g.as<T>()[i];
}

/// Returns rows [first, first + count) along L of x [B, N, L, w].
template <class T>
tensor sequence_part(const tensor& x, std::int64_t first, std::int64_t count) {
    tensor y(type_of<T>, {x.dim(0), x.dim(1), count, x.dim(3)});
    for (std::int64_t m = 0; m < x.dim(0) * x.dim(1); ++m)
        std::copy_n(x.as<T>().data() + (m * x.dim(2) + first) * x.dim(3), count * x.dim(3), y.as<T>().data() + m * count * x.dim(3));
    return y;
}

/// Gives the gradient of the input that score_bias adds: summed over what it is broadcast to, zeros for keys that are not there.
template <class T>
void give_score_bias(backward_call& call, std::size_t input, const tensor& scores) {
    if (!call.wants(input)) return;
    const dims& s = call.input(input).shape();
    tensor d = zeros<T>(s);
    const T* from = scores.as<T>().data();
    for (std::int64_t b = 0; b < scores.dim(0); ++b)
        for (std::int64_t h = 0; h < scores.dim(1); ++h)
            for (std::int64_t i = 0; i < scores.dim(2); ++i) {
                T* to = d.as<T>().data() + (((s[0] == 1 ? 0 : b) * s[1] + (s[1] == 1 ? 0 : h)) * s[2] + i) * s[3];
                for (std::int64_t j = 0; j < scores.dim(3); ++j) to[j] += *from++;
            }
    call.give(input, d);
}

/// Writes dx [B, N, S, h] to `to`, the gradient of what biased_heads or unpacked_part reads; adds its sums over tokens to `bias`, from
/// entry `first` on.
template <class T>
void put_heads(const tensor& dx, std::int64_t parts, std::int64_t which, tensor& to, std::vector<T>* bias, std::int64_t first) {
    const std::int64_t heads = dx.dim(1), length = dx.dim(2), width = dx.dim(3);
    const T* from = dx.as<T>().data();
    for (std::int64_t b = 0; b < dx.dim(0); ++b)
        for (std::int64_t h = 0; h < heads; ++h)
            for (std::int64_t s = 0; s < length; ++s, from += width) {
                std::copy_n(from, width, to.as<T>().data() + (((b * length + s) * heads + h) * parts + which) * width);
                for (std::int64_t i = 0; bias != nullptr && i < width; ++i)
                    (*bias)[static_cast<std::size_t>(first + h * width + i)] += from[i];
            }
}

template <class T>
void give_values(backward_call& call, std::size_t input, const std::vector<T>& values) {
    if (!call.wants(input)) return;
    call.give(input, make_tensor<T>(call.input(input).shape(), std::span<const T>(values)));
}

/// Takes the gradient of output 0 back through attend_masked.
template <class T>
operand_gradients<T> attend_masked_back(backward_call& call, const ops::detail::head_operands<T>& o, std::size_t mask_input) {
    op_context context = call.context();
    const std::int64_t batch = o.q.dim(0), queries = o.q.dim(2), keys = o.k.dim(2);
    const ops::detail::filter_mask<T> mask(context, mask_input, batch, queries, keys);
    const ops::detail::score_bias<T> added(context, 5, batch, o.q.dim(1), queries, keys);
    return attend_back<T>(
        call, o.q, o.k, o.v, ops::detail::score_scale<T>(context, o.q.dim(3)), T{0},
        [&](std::int64_t b, std::int64_t h, std::int64_t i, T* row) { added.add(b, h, i, row), mask.add(batch, b, i, row); }, {});
}

template <class T>
void multi_head_gradients(backward_call& call) {
    op_context context = call.context();
    const ops::detail::head_operands<T> o = ops::detail::multi_head_operands<T>(context);
    operand_gradients<T> d = attend_masked_back<T>(call, o, 4);
    if (call.has_gradient(1)) add_to<T>(d.k, call.gradient(1));
    if (call.has_gradient(2)) add_to<T>(d.v, call.gradient(2));
    give_score_bias<T>(call, 5, d.scores);
    const std::int64_t past = call.has_input(6) ? call.input(6).dim(2) : 0;
    if (past != 0) {
        call.give(6, sequence_part<T>(d.k, 0, past)), call.give(7, sequence_part<T>(d.v, 0, past));
        d.k = sequence_part<T>(d.k, past, o.k.dim(2) - past), d.v = sequence_part<T>(d.v, past, o.k.dim(2) - past);
    }
    std::vector<T> bias(call.has_input(3) ? call.input(3).size() : 0);
    std::vector<T>* b = bias.empty() ? nullptr : &bias;
    tensor dq = zeros<T>(call.input(0).shape());
    if (dq.rank() == 5) {
        std::int64_t which = 0;
        for (const tensor* part : {&d.q, &d.k, &d.v}) put_heads<T>(*part, 3, which++, dq, nullptr, 0);
        call.give(0, dq);
        return;
    }
    put_heads<T>(d.q, 1, 0, dq, b, 0);
    call.give(0, dq);
    tensor dk = zeros<T>(call.input(1).shape());
    const std::int64_t width = o.q.dim(1) * o.q.dim(3);
    if (dk.rank() == 5) {
        put_heads<T>(d.k, 2, 0, dk, nullptr, 0), put_heads<T>(d.v, 2, 1, dk, nullptr, 0);
    } else if (dk.rank() == 4) {
        dk = d.k;
        call.give(2, d.v);
    } else {
        put_heads<T>(d.k, 1, 0, dk, b, width);
        tensor dv = zeros<T>(call.input(2).shape());
        put_heads<T>(d.v, 1, 0, dv, b, 2 * width);
        call.give(2, dv);
    }
    call.give(1, dk);
    if (b != nullptr) give_values<T>(call, 3, bias);
}
inline void multi_head_backward(backward_call& call) {
    with_gradient_type(call, [&]<class T>(T) { multi_head_gradients<T>(call); });
}

template <class T>
void microsoft_attention_gradients(backward_call& call) {
    op_context context = call.context();
    const ops::detail::head_operands<T> o = ops::detail::attention_operands<T>(context);
    const std::int64_t batch = o.q.dim(0), heads = o.q.dim(1), queries = o.q.dim(2), past = o.k.dim(2) - queries;
    operand_gradients<T> d = attend_masked_back<T>(call, o, 3);
    if (call.has_gradient(1)) {  // present: keys, then values
        const T* g = call.gradient(1).as<T>().data();
        for (std::size_t i = 0; i < d.k.size(); ++i) d.k.template as<T>()[i] += g[i], d.v.template as<T>()[i] += g[d.k.size() + i];
    }
    give_score_bias<T>(call, 5, d.scores);
    if (past != 0) {
        const tensor first = sequence_part<T>(d.k, 0, past), second = sequence_part<T>(d.v, 0, past);
        if (call.wants(4)) {
            tensor both(type_of<T>, call.input(4).shape());
            std::copy_n(second.as<T>().data(), second.size(), std::copy_n(first.as<T>().data(), first.size(), both.as<T>().data()));
            call.give(4, both);
        }
        d.k = sequence_part<T>(d.k, past, queries), d.v = sequence_part<T>(d.v, past, queries);
    }
    const tensor x = call.real<T>(0), w = call.real<T>(1);
    const std::int64_t columns = w.dim(1), rows = batch * queries, inner = w.dim(0);
    tensor joined = zeros<T>({rows, columns});
    std::int64_t first = 0;
    for (const tensor* part : {&d.q, &d.k, &d.v}) {
        const std::int64_t width = part->dim(3);
        const T* from = part->as<T>().data();
        for (std::int64_t b = 0; b < batch; ++b)
            for (std::int64_t h = 0; h < heads; ++h)
                for (std::int64_t s = 0; s < queries; ++s, from += width)
                    std::copy_n(from, width, joined.as<T>().data() + (b * queries + s) * columns + first + h * width);
        first += heads * width;
    }
    const T* g = std::as_const(joined).template as<T>().data();
    if (call.wants(0)) {
        tensor dx = zeros<T>(x.shape());
        ops::multiply(g, false, w.as<T>().data(), true, dx.as<T>().data(), rows, inner, columns);
        call.give(0, dx);
    }
    if (call.wants(1)) {
        tensor dw = zeros<T>(w.shape());
        ops::multiply(x.as<T>().data(), true, g, false, dw.as<T>().data(), inner, columns, rows);
        call.give(1, dw);
    }
    if (call.wants(2)) call.give(2, reduced_to<T>(joined, {columns}));
}
inline void microsoft_attention_backward(backward_call& call) {
    with_gradient_type(call, [&]<class T>(T) { microsoft_attention_gradients<T>(call); });
}

/// Takes g [B, N, S, h] back through ops::detail::rotate, in place: it turns the other way. Adds the gradients of the caches of cosines and
/// sines, if wanted (not empty); `x` is what was rotated.
template <class T, class Position>
void rotate_back(tensor& g, const tensor& x, const tensor& cosine, const tensor& sine, bool interleaved, const Position& position,
                 tensor& dcosine, tensor& dsine) {
    const std::int64_t half = cosine.shape().back(), width = x.dim(3), length = x.dim(2), heads = x.dim(1);
    for (std::int64_t b = 0; b < x.dim(0); ++b)
        for (std::int64_t s = 0; s < length; ++s) {
            const std::int64_t row = position(b, s) * half;
            for (std::int64_t h = 0; h < heads; ++h) {
                const std::int64_t at = ((b * heads + h) * length + s) * width;
                for (std::int64_t i = 0; i < half; ++i) {
                    const std::int64_t first = at + (interleaved ? 2 * i : i), second = at + (interleaved ? 2 * i + 1 : i + half);
                    const T c = cosine.as<T>().data()[row + i], n = sine.as<T>().data()[row + i];
                    T &g1 = g.as<T>().data()[first], &g2 = g.as<T>().data()[second];
                    const T x1 = x.as<T>().data()[first], x2 = x.as<T>().data()[second];
                    if (!dcosine.empty()) dcosine.as<T>().data()[row + i] += g1 * x1 + g2 * x2;
                    if (!dsine.empty()) dsine.as<T>().data()[row + i] += g2 * x1 - g1 * x2;
                    const T turned = c * g1 + n * g2;
                    g2 = c * g2 - n * g1;
                    g1 = turned;
                }
            }
        }
}

/// Handles RotaryEmbedding, the standard's and com.microsoft's: the caches of cosines and sines are inputs `first` and first + 1, the
/// positions are input `places`.
template <class T>
void rotary_gradients(backward_call& call, std::size_t first, std::size_t places) {
    op_context context = call.context();
    const node_view& node = call.node();
    const tensor cosine = call.real<T>(first), sine = call.real<T>(first + 1);
    const tensor& given = call.input(0);
    std::int64_t heads = node.get_int("num_heads", 0);
    if (given.rank() == 3 && heads == 0) heads = given.dim(2) / (2 * cosine.shape().back());
    const tensor x = ops::split_heads<T>(context, call.real<T>(0), heads);
    tensor g = ops::detail::own_copy<T>(context, ops::split_heads<T>(context, call.gradient(), heads));
    const std::vector<std::int64_t> position = ops::optional_integers(context, places);
    tensor dcosine = call.wants(first) ? zeros<T>(cosine.shape()) : tensor();
    tensor dsine = call.wants(first + 1) ? zeros<T>(sine.shape()) : tensor();
    const std::int64_t length = x.dim(2);
    const bool first_only = position.size() == 1;
    rotate_back<T>(
        g, x, cosine, sine, node.get_int("interleaved", 0) != 0,
        [&](std::int64_t b, std::int64_t s) {
            return position.empty() ? b * length + s : first_only ? position[0] + s : position[static_cast<std::size_t>(b * length + s)];
        },
        dcosine, dsine);
    call.give(0, joined_heads<T>(g, given.shape()));
    if (!dcosine.empty()) call.give(first, dcosine);
    if (!dsine.empty()) call.give(first + 1, dsine);
}
inline void rotary_embedding_backward(backward_call& call) {
    with_gradient_type(call, [&]<class T>(T) { rotary_gradients<T>(call, 1, 3); });
}
inline void microsoft_rotary_backward(backward_call& call) {
    with_gradient_type(call, [&]<class T>(T) { rotary_gradients<T>(call, 2, 1); });
}

/// Splits `present`, the gradient of the cache with the new tokens, into those of the past cache and of the new tokens.
template <class T>
std::pair<tensor, tensor> apart(const ops::detail::grouped_lengths& at, const tensor& present, const tensor& past, const dims& now) {
    tensor before = past.empty() ? tensor() : zeros<T>(past.shape()), fresh = zeros<T>(now);
    const std::int64_t width = now[3];
    for (std::int64_t b = 0; b < at.batch; ++b)
        for (std::int64_t g = 0; g < now[1]; ++g) {
            const std::int64_t first = at.past_of(b), row = b * now[1] + g;
            const T* from = present.as<T>().data() + row * at.kept * width;
            if (!before.empty()) std::copy_n(from, first * width, before.as<T>().data() + row * at.buffer * width);
            std::copy_n(from + first * width, std::min(at.queries, at.kept - first) * width,
                        fresh.as<T>().data() + row * at.queries * width);
        }
    return {before, fresh};
}

template <class T>
void grouped_gradients(backward_call& call) {
    op_context context = call.context();
    const node_view& node = call.node();
    const std::int64_t heads = node.get_int("num_heads", 0), groups = node.get_int("kv_num_heads", 0);
    const tensor query = call.real<T>(0), past_k = ops::optional_as<T>(context, 3), past_v = ops::optional_as<T>(context, 4);
    const auto flat = ops::detail::grouped_heads<T>(context, query, heads, groups);
    auto [q, k, v] = ops::detail::grouped_heads<T>(context, query, heads, groups);
    const ops::detail::grouped_lengths at(context, query.dim(0), query.dim(1), past_k);
    ops::detail::rotate_grouped<T>(context, at, q, k);
    const tensor all_k = ops::detail::present_cache<T>(context, at, past_k, k),
                 all_v = ops::detail::present_cache<T>(context, at, past_v, v);
    const ops::detail::score_bias<T> added(context, 10, at.batch, heads, at.queries, at.kept);
    const std::int64_t window = node.get_int("local_window_size", -1);
    const tensor sinks = ops::optional_as<T>(context, 11);
    std::vector<T> beside(sinks.empty() ? std::size_t{0} : sinks.size());
    std::copy_n(sinks.empty() ? nullptr : sinks.as<T>().data(), beside.size(), beside.data());
    if (beside.empty() && node.get_int("smooth_softmax", 0) != 0) beside.assign(static_cast<std::size_t>(heads), T{0});
    operand_gradients<T> d = attend_back<T>(
        call, q, all_k, all_v, ops::detail::score_scale<T>(context, k.dim(3)), static_cast<T>(node.get_float("softcap", 0)),
        [&](std::int64_t b, std::int64_t h, std::int64_t i, T* row) {
            added.add(b, h, i, row);
            at.hide(b, i, window, row);
        },
        beside);
    if (call.has_gradient(1)) add_to<T>(d.k, call.gradient(1));
    if (call.has_gradient(2)) add_to<T>(d.v, call.gradient(2));
    give_score_bias<T>(call, 10, d.scores);
    if (!sinks.empty()) give_values<T>(call, 11, d.sinks);
    auto [before_k, fresh_k] = apart<T>(at, d.k, past_k, k.shape());
    auto [before_v, fresh_v] = apart<T>(at, d.v, past_v, v.shape());
    if (!before_k.empty()) call.give(3, before_k), call.give(4, before_v);
    if (node.get_int("do_rotary", 0) != 0) {
        const tensor cosine = call.real<T>(7), sine = call.real<T>(8);
        tensor dcosine = zeros<T>(cosine.shape()), dsine = zeros<T>(sine.shape());
        const std::vector<std::int64_t> places = ops::optional_integers(context, 9);
        const auto position = [&](std::int64_t b, std::int64_t s) {
            return places.empty() ? at.past_of(b) + s : places[static_cast<std::size_t>(b * at.queries + s)];
        };
        const bool interleaved = node.get_int("rotary_interleaved", 0) != 0;
        rotate_back<T>(d.q, flat[0], cosine, sine, interleaved, position, dcosine, dsine);
        rotate_back<T>(fresh_k, flat[1], cosine, sine, interleaved, position, dcosine, dsine);
        call.give(7, dcosine), call.give(8, dsine);
    }
    if (call.has_input(1)) {
        call.give(0, joined_heads<T>(d.q, call.input(0).shape()));
        call.give(1, joined_heads<T>(fresh_k, call.input(1).shape()));
        call.give(2, joined_heads<T>(fresh_v, call.input(2).shape()));
        return;
    }
    tensor all(type_of<T>, {at.batch, heads + 2 * groups, at.queries, k.dim(3)});
    T* to = all.as<T>().data();
    for (std::int64_t b = 0; b < at.batch; ++b)
        for (const tensor* part : {&d.q, &fresh_k, &fresh_v}) {
            const std::int64_t one = part->dim(1) * part->dim(2) * part->dim(3);
            to = std::copy_n(std::as_const(*part).template as<T>().data() + b * one, one, to);
        }
    call.give(0, joined_heads<T>(all, call.input(0).shape()));
}
inline void group_query_backward(backward_call& call) {
    with_gradient_type(call, [&]<class T>(T) { grouped_gradients<T>(call); });
}

inline constexpr backward_entry decoder_backward_rows[] = {
    {"", "RotaryEmbedding", 23, rotary_embedding_backward},
    {"com.microsoft", "Attention", 1, microsoft_attention_backward},
    {"com.microsoft", "MultiHeadAttention", 1, multi_head_backward},
    {"com.microsoft", "GroupQueryAttention", 1, group_query_backward},
    {"com.microsoft", "RotaryEmbedding", 1, microsoft_rotary_backward},
};

}  // namespace qk::graph::gradient
