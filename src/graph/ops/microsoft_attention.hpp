// SPDX-License-Identifier: Apache-2.0
// Implements com.microsoft's Attention and MultiHeadAttention.
// https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md, and its CPU kernels where that page says nothing.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "graph/ops/attention.hpp"
#include "graph/ops/walk/rules.hpp"

namespace qk::graph::ops {
namespace detail {

template <class T>
constexpr T never_seen = -std::numeric_limits<T>::infinity();

/// Applies softmax with one more term in the denominator, exp(extra), which belongs to no key.
template <class T>
void softmax_row_beside(T* x, std::size_t n, T extra) {
    T largest = extra;
    for (std::size_t i = 0; i < n; ++i) largest = std::max(largest, x[i]);
    T sum = std::exp(extra - largest);
    for (std::size_t i = 0; i < n; ++i) x[i] = std::exp(x[i] - largest), sum += x[i];
    for (std::size_t i = 0; i < n; ++i) x[i] /= sum;
}

/// Computes y [B,S,N*w] of q [B,N,S,h], k [B,G,T,h], v [B,G,T,w]. `add(b, head, query, row)` adds masks and biases to a row of T scores.
template <class T, class Add, class Softmax>
void attend(op_context& call, const tensor& q, const tensor& k, const tensor& v, T scale, T cap, const Add& add, const Softmax& softmax,
            T* y) {
    const std::int64_t batch = q.dim(0), heads = q.dim(1), queries = q.dim(2), width = q.dim(3), groups = k.dim(1), keys = k.dim(2),
                       value_width = v.dim(3);
    if (k.dim(0) != batch || v.dim(0) != batch || v.dim(1) != groups || v.dim(2) != keys || k.dim(3) != width || groups < 1 ||
        heads % groups != 0)
        call.fail("query " + to_string(q.shape()) + ", key " + to_string(k.shape()) + " and value " + to_string(v.shape()) +
                  " do not fit (batch, heads, sequence, width)");
    tensor scores = call.scratch(type_of<T>, {queries, keys}), result = call.scratch(type_of<T>, {queries, value_width});
    T* score = scores.as<T>().data();
    for (std::int64_t b = 0; b < batch; ++b)
        for (std::int64_t h = 0; h < heads; ++h) {
            const std::int64_t matrix = b * heads + h, group = b * groups + h / (heads / groups);
            multiply(q.as<T>().data() + matrix * queries * width, false, k.as<T>().data() + group * keys * width, true, score, queries,
                     keys, width);
            for (std::int64_t i = 0; i < queries; ++i) {
                T* row = score + i * keys;
                for (std::int64_t j = 0; j < keys; ++j) {
                    row[j] *= scale;
                    if (cap > 0) row[j] = cap * std::tanh(row[j] / cap);
                }
                add(b, h, i, row);
                softmax(h, row, static_cast<std::size_t>(keys));
            }
            multiply(score, false, v.as<T>().data() + group * keys * value_width, false, result.as<T>().data(), queries, value_width, keys);
            for (std::int64_t i = 0; i < queries; ++i)
                std::copy_n(result.as<T>().data() + i * value_width, value_width, y + ((b * queries + i) * heads + h) * value_width);
        }
}

/// The optional input attention_bias, [B or 1, N or 1, S, T or more].
template <class T>
class score_bias {
  public:
    score_bias(op_context& call, std::size_t input, std::int64_t batch, std::int64_t heads, std::int64_t queries, std::int64_t keys)
        : values_(optional_as<T>(call, input)), queries_(queries), keys_(keys) {
        if (values_.empty()) return;
        const dims& s = values_.shape();
        if (s.size() != 4 || (s[0] != 1 && s[0] != batch) || (s[1] != 1 && s[1] != heads) || s[2] != queries || s[3] < keys)
            call.fail("the attention bias " + to_string(s) + " does not fit " + std::to_string(queries) + " queries and " +
                      std::to_string(keys) + " keys");
    }
    void add(std::int64_t b, std::int64_t h, std::int64_t i, T* row) const {
        if (values_.empty()) return;
        const dims& s = values_.shape();
        const T* from = values_.as<T>().data() + (((s[0] == 1 ? 0 : b) * s[1] + (s[1] == 1 ? 0 : h)) * queries_ + i) * s[3];
        for (std::int64_t j = 0; j < keys_; ++j) row[j] += from[j];
    }

  private:
    tensor values_;
    std::int64_t queries_, keys_;
};

/// The mask of Attention and MultiHeadAttention, which holds lengths, ranges, or zeros and ones. add() adds it to a row of scores.
template <class T>
class filter_mask {
  public:
    filter_mask(op_context& call, std::size_t input, std::int64_t batch, std::int64_t queries, std::int64_t keys)
        : filter_(static_cast<T>(call.node().get_float("mask_filter_value", -10000.0f))),
          causal_(call.node().get_int("unidirectional", 0) != 0),
          queries_(queries),
          keys_(keys) {
        if (!call.has_input(input)) return;
        shape_ = call.input(input).shape();
        values_ = integers(call, input);
        const auto is = [&](const dims& wanted) { return shape_ == wanted; };
        if (is({batch}) || is({2 * batch}) || is({3 * batch + 2})) return;
        const bool square = shape_.size() == 4 && shape_[0] == batch && shape_[1] == 1 && shape_[2] == shape_[3] && shape_[2] >= keys;
        if (is({batch, keys}) || is({batch, queries, keys}) || square) return;
        call.fail("a mask of shape " + to_string(shape_) + " is not supported for " + std::to_string(batch) + " samples, " +
                  std::to_string(queries) + " queries and " + std::to_string(keys) + " keys");
    }
    void add(std::int64_t batch, std::int64_t b, std::int64_t i, T* row) const {
        const std::int64_t past = keys_ - queries_;
        for (std::int64_t j = 0; j < keys_; ++j) {
            if (!shown(batch, b, i, j)) row[j] += filter_;
            if (causal_ && j > past + i) row[j] = std::numeric_limits<T>::lowest();
        }
    }

  private:
    bool shown(std::int64_t batch, std::int64_t b, std::int64_t i, std::int64_t j) const {
        if (values_.empty()) return true;
        const auto at = [&](std::int64_t k) { return values_[static_cast<std::size_t>(k)]; };
        if (shape_.size() == 1) return j < at(b) && (shape_[0] != 2 * batch || j >= at(batch + b));
        if (shape_.size() == 2) return at(b * keys_ + j) > 0;
        if (shape_.size() == 3) return at((b * queries_ + i) * keys_ + j) > 0;
        return at((b * shape_[2] + keys_ - queries_ + i) * shape_[3] + j) > 0;
    }
    T filter_;
    bool causal_;
    std::int64_t queries_, keys_;
    dims shape_;
    std::vector<std::int64_t> values_;
};

/// Returns x [B,S,N*h] plus an optional bias as [B,N,S,h].
template <class T>
tensor biased_heads(op_context& call, const tensor& given, std::int64_t heads, const T* bias) {
    if (given.rank() != 3 || heads < 1 || given.dim(2) % heads != 0)
        call.fail("num_heads " + std::to_string(heads) + " does not divide the last axis of " + to_string(given.shape()));
    if (bias == nullptr) return split_heads<T>(call, given, heads);
    const tensor x = convert_to<T>(call, given);
    tensor y = call.scratch(type_of<T>, x.shape());
    const auto n = static_cast<std::size_t>(x.dim(2));
    for (std::size_t i = 0; i < x.size(); ++i) y.as<T>()[i] = x.as<T>()[i] + bias[i % n];
    return split_heads<T>(call, y, heads);
}

/// Returns part `which` of x [B,L,N,parts,h] as [B,N,L,h].
template <class T>
tensor unpacked_part(op_context& call, const tensor& x, std::int64_t parts, std::int64_t which) {
    const std::int64_t batch = x.dim(0), length = x.dim(1), heads = x.dim(2), width = x.dim(4);
    tensor y = call.scratch(type_of<T>, {batch, heads, length, width});
    T* to = y.as<T>().data();
    for (std::int64_t b = 0; b < batch; ++b)
        for (std::int64_t h = 0; h < heads; ++h)
            for (std::int64_t s = 0; s < length; ++s)
                to = std::copy_n(x.as<T>().data() + (((b * length + s) * heads + h) * parts + which) * width, width, to);
    return y;
}

/// The operands of attention, each [batch, heads, length, width]. Keys and values begin with those of the cache.
template <class T>
struct head_operands {
    tensor q, k, v;
    std::int64_t value_hidden = 0;  ///< width of the values, all heads together
};

template <class T>
head_operands<T> multi_head_operands(op_context& call) {
    const node_view& node = call.node();
    const std::int64_t heads = node.get_int("num_heads", 0);
    if (call.has_input(6) != call.has_input(7)) call.fail("past_key and past_value must be given together");
    if (call.has_input(8) || call.has_input(9))
        call.fail("a cache in one buffer (past_sequence_length, cache_indirection) is not supported");
    const tensor query = input_as<T>(call, 0), bias = optional_as<T>(call, 3);
    head_operands<T> o;
    if (query.rank() == 5) {
        if (query.dim(3) != 3) call.fail("a packed query must be [batch, length, heads, 3, width]");
        o.q = unpacked_part<T>(call, query, 3, 0), o.k = unpacked_part<T>(call, query, 3, 1), o.v = unpacked_part<T>(call, query, 3, 2);
        o.value_hidden = o.q.dim(1) * o.q.dim(3);
    } else {
        const tensor key = input_as<T>(call, 1), value = optional_as<T>(call, 2);
        const std::int64_t hidden = query.rank() == 3 ? query.dim(2) : 0;
        const T* b = bias.empty() ? nullptr : bias.as<T>().data();
        if (b != nullptr && static_cast<std::int64_t>(bias.size()) < 2 * hidden) call.fail("the bias does not fit");
        o.q = biased_heads<T>(call, query, heads, b);
        if (key.rank() == 5) {
            if (key.dim(3) != 2) call.fail("a packed key must be [batch, length, heads, 2, width]");
            o.k = unpacked_part<T>(call, key, 2, 0), o.v = unpacked_part<T>(call, key, 2, 1);
        } else if (key.rank() == 4) {
            o.k = key, o.v = value;
        } else {
            if (value.rank() != 3) call.fail("a key of rank 3 needs a value of rank 3");
            if (b != nullptr && static_cast<std::int64_t>(bias.size()) != 2 * hidden + value.dim(2)) call.fail("the bias does not fit");
            o.k = biased_heads<T>(call, key, heads, b == nullptr ? nullptr : b + hidden);
            o.v = biased_heads<T>(call, value, heads, b == nullptr ? nullptr : b + 2 * hidden);
        }
        o.value_hidden = heads * o.v.dim(3);
    }
    o.k = join_sequence<T>(call, optional_as<T>(call, 6), o.k), o.v = join_sequence<T>(call, optional_as<T>(call, 7), o.v);
    return o;
}

/// Returns the factor of the scores: attribute scale, or 1 / sqrt(width).
template <class T>
T score_scale(const op_context& call, std::int64_t width) {
    const float given = call.node().get_float("scale", 0);
    return given == 0 ? static_cast<T>(1 / std::sqrt(static_cast<double>(width))) : static_cast<T>(given);
}

/// Computes output 0. The mask is input `mask_input`, the bias of the scores is input 5.
template <class T>
void attend_masked(op_context& call, const head_operands<T>& o, std::size_t mask_input) {
    const std::int64_t batch = o.q.dim(0), queries = o.q.dim(2), keys = o.k.dim(2);
    const filter_mask<T> mask(call, mask_input, batch, queries, keys);
    const score_bias<T> added(call, 5, batch, o.q.dim(1), queries, keys);
    working_output<T> y(call, 0, call.input(0).type(), {batch, queries, o.value_hidden});
    attend<T>(
        call, o.q, o.k, o.v, score_scale<T>(call, o.q.dim(3)), T{0},
        [&](std::int64_t b, std::int64_t h, std::int64_t i, T* row) { added.add(b, h, i, row), mask.add(batch, b, i, row); },
        [](std::int64_t, T* row, std::size_t n) { softmax_row(row, n); }, y.data());
    y.store();
}

}  // namespace detail

inline void run_multi_head_attention(op_context& call) {
    with_working_type(call.input(0).type(), [&]<class T>(T) {
        const auto o = detail::multi_head_operands<T>(call);
        detail::attend_masked<T>(call, o, 4);
        detail::give_as<T>(call, 1, o.k, call.input(0).type());
        detail::give_as<T>(call, 2, o.v, call.input(0).type());
    });
}

namespace detail {

/// Returns the widths of query, key and value, each for all heads together.
inline std::vector<std::int64_t> joined_widths(const op_context& call, std::int64_t columns) {
    std::vector<std::int64_t> sizes = call.node().get_ints("qkv_hidden_sizes");
    if (sizes.empty()) sizes.assign(3, columns / 3);
    return sizes;
}

/// Multiplies the input by the joined weights of query, key and value, and splits the product into heads.
template <class T>
head_operands<T> attention_operands(op_context& call) {
    const node_view& node = call.node();
    const std::int64_t heads = node.get_int("num_heads", 0);
    if (node.get_int("do_rotary", 0) != 0) call.fail("do_rotary=1 is not supported");
    if (call.has_input(6)) call.fail("a cache in one buffer (past_sequence_length) is not supported");
    const tensor x = input_as<T>(call, 0), w = input_as<T>(call, 1), bias = optional_as<T>(call, 2), past = optional_as<T>(call, 4);
    if (x.rank() != 3 || w.rank() != 2 || w.dim(0) != x.dim(2))
        call.fail("weights " + to_string(w.shape()) + " do not fit input " + to_string(x.shape()));
    const std::vector<std::int64_t> sizes = joined_widths(call, w.dim(1));
    if (heads < 1 || sizes.size() != 3 || sizes[0] + sizes[1] + sizes[2] != w.dim(1) || sizes[0] != sizes[1] || sizes[0] % heads != 0 ||
        sizes[2] % heads != 0 || (!bias.empty() && static_cast<std::int64_t>(bias.size()) != w.dim(1)))
        call.fail("num_heads, qkv_hidden_sizes, weights and bias do not fit each other");
    const std::int64_t batch = x.dim(0), queries = x.dim(1), columns = w.dim(1);
    tensor joined = call.scratch(type_of<T>, {batch * queries, columns});
    multiply(x.as<T>().data(), false, w.as<T>().data(), false, joined.as<T>().data(), batch * queries, columns, x.dim(2));
    const auto part = [&](std::int64_t first, std::int64_t size) {
        const std::int64_t width = size / heads;
        tensor y = call.scratch(type_of<T>, {batch, heads, queries, width});
        T* to = y.as<T>().data();
        for (std::int64_t b = 0; b < batch; ++b)
            for (std::int64_t h = 0; h < heads; ++h)
                for (std::int64_t s = 0; s < queries; ++s)
                    for (std::int64_t i = 0; i < width; ++i) {
                        const auto c = static_cast<std::size_t>(first + h * width + i);
                        *to++ = joined.as<T>()[static_cast<std::size_t>((b * queries + s) * columns) + c] +
                                (bias.empty() ? T{0} : bias.as<T>()[c]);
                    }
        return y;
    };
    head_operands<T> o{part(0, sizes[0]), part(sizes[0], sizes[1]), part(sizes[0] + sizes[1], sizes[2]), sizes[2]};
    if (past.empty()) return o;
    if (past.rank() != 5 || past.dim(0) != 2) call.fail("past must be [2, batch, heads, length, width]");
    const dims one(past.shape().begin() + 1, past.shape().end());
    tensor past_k = call.scratch(type_of<T>, one), past_v = call.scratch(type_of<T>, one);
    std::copy_n(past.as<T>().data(), past_k.size(), past_k.as<T>().data());
    std::copy_n(past.as<T>().data() + past_k.size(), past_v.size(), past_v.as<T>().data());
    o.k = join_sequence<T>(call, past_k, o.k), o.v = join_sequence<T>(call, past_v, o.v);
    return o;
}

}  // namespace detail

inline void run_microsoft_attention(op_context& call) {
    with_working_type(call.input(0).type(), [&]<class T>(T) {
        const auto o = detail::attention_operands<T>(call);
        detail::attend_masked<T>(call, o, 3);
        if (!call.wants(1)) return;
        if (o.k.dim(3) != o.v.dim(3)) call.fail("present needs keys and values of one width");
        tensor present = call.scratch(type_of<T>, {2, o.k.dim(0), o.k.dim(1), o.k.dim(2), o.k.dim(3)});
        std::copy_n(o.k.template as<T>().data(), o.k.size(), present.as<T>().data());
        std::copy_n(o.v.template as<T>().data(), o.v.size(), present.as<T>().data() + o.k.size());
        detail::give_as<T>(call, 1, present, call.input(0).type());
    });
}

// clang-format off
inline constexpr op_entry microsoft_attention_ops[] = {
    {"com.microsoft", "Attention", 1, run_microsoft_attention, nullptr, {follow_microsoft_attention}, {.traits = moves_channels, .pasts = 1u << 4, .mask = 5}},
    {"com.microsoft", "MultiHeadAttention", 1, run_multi_head_attention, nullptr, {follow_multi_head_attention}, {.traits = moves_channels, .pasts = 1u << 6 | 1u << 7, .mask = 5}},
};
// clang-format on

}  // namespace qk::graph::ops
