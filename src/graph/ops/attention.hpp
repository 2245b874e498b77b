// SPDX-License-Identifier: Apache-2.0
// Implements Attention (opset 23 on): grouped heads, masks, causal and sliding windows, internal and external caches, softcap, all four
// debug outputs.
#pragma once

#include <cmath>
#include <limits>
#include <vector>

#include "graph/ops/matrix.hpp"
#include "graph/ops/op.hpp"
#include "graph/ops/sums.hpp"
#include "graph/ops/walk/rules.hpp"
#include "graph/ops/working_type.hpp"

namespace qk::graph::ops {

/// Returns x as [batch, heads, sequence, width] in T. A tensor of rank 3 is [batch, sequence, heads * width].
template <class T>
tensor split_heads(op_context& call, const tensor& given, std::int64_t heads) {
    const tensor x = convert_to<T>(call, given);
    if (x.rank() == 4) return x;
    if (x.rank() != 3) call.fail("Q, K and V must have rank 3 or 4, not shape " + to_string(x.shape()));
    if (heads < 1 || x.dim(2) % heads != 0)
        call.fail("rank-3 inputs need q_num_heads and kv_num_heads that divide the last axis of " + to_string(x.shape()));
    const std::int64_t width = x.dim(2) / heads;
    tensor y = call.scratch(type_of<T>, {x.dim(0), heads, x.dim(1), width});
    const T* from = x.as<T>().data();
    T* to = y.as<T>().data();
    for (std::int64_t b = 0; b < x.dim(0); ++b)
        for (std::int64_t h = 0; h < heads; ++h)
            for (std::int64_t s = 0; s < x.dim(1); ++s) to = std::copy_n(from + ((b * x.dim(1) + s) * heads + h) * width, width, to);
    return y;
}

/// Joins `past` and `now` along the sequence axis.
template <class T>
tensor join_sequence(op_context& call, const tensor& past, const tensor& now) {
    if (past.empty()) return now;
    if (past.rank() != 4 || past.dim(0) != now.dim(0) || past.dim(1) != now.dim(1) || past.dim(3) != now.dim(3)) {
        call.fail("a cache of shape " + to_string(past.shape()) + " does not fit " + to_string(now.shape()));
    }
    tensor y = call.scratch(type_of<T>, {now.dim(0), now.dim(1), past.dim(2) + now.dim(2), now.dim(3)});
    const auto a = static_cast<std::size_t>(past.dim(2) * past.dim(3)), b = static_cast<std::size_t>(now.dim(2) * now.dim(3));
    T* to = y.as<T>().data();
    for (std::size_t i = 0; i < static_cast<std::size_t>(now.dim(0) * now.dim(1)); ++i) {
        to = std::copy_n(past.as<T>().data() + i * a, a, to);
        to = std::copy_n(now.as<T>().data() + i * b, b, to);
    }
    return y;
}

/// Applies softmax in place. A row that is -Inf throughout becomes zeros.
template <class T>
void softmax_row(T* x, std::size_t n) {
    T largest = -std::numeric_limits<T>::infinity();
    for (std::size_t i = 0; i < n; ++i) largest = x[i] > largest || x[i] != x[i] ? x[i] : largest;
    if (std::isinf(largest) && largest < 0) {
        std::fill_n(x, n, T{0});
        return;
    }
    for (std::size_t i = 0; i < n; ++i) x[i] = std::exp(x[i] - largest);
    const T sum = lane_sum<T>(n, [x](std::size_t i) { return x[i]; });
    for (std::size_t i = 0; i < n; ++i) x[i] /= sum;
}

namespace detail {

/// What is added to the score of query i and key j: attn_mask, and -Inf for keys excluded by is_causal, the windows or nonpad_kv_seqlen.
template <class T>
class attention_bias {
  public:
    attention_bias(op_context& call, std::int64_t queries, std::int64_t keys, std::int64_t past)
        : queries_(queries), keys_(keys), past_(past) {
        const node_view& node = call.node();
        causal_ = node.get_int("is_causal", 0) != 0;
        left_ = node.get_int("left_window_size", -1);
        right_ = node.get_int("right_window_size", -1);
        if (left_ < -1 || right_ < -1) call.fail("left_window_size and right_window_size must be -1 or more");
        if (call.has_input(6)) valid_ = integers(call, 6);
        if (!valid_.empty() && past > 0) call.fail("nonpad_kv_seqlen and past_key exclude each other");
        if (!call.has_input(3)) return;
        const tensor& given = call.input(3);
        mask_ = convert_to<T>(call, given);
        boolean_ = given.type() == data_type::boolean;
        shape_ = given.shape();
        if (shape_.size() > 4 || shape_.empty()) call.fail("attn_mask has shape " + to_string(shape_));
        shape_.insert(shape_.begin(), 4 - shape_.size(), 1);
        if (shape_[3] > keys || (shape_[2] != 1 && shape_[2] != queries)) {
            call.fail("attn_mask of shape " + to_string(given.shape()) + " does not fit " + std::to_string(queries) + " queries and " +
                      std::to_string(keys) + " keys");
        }
    }

    void check(const op_context& call, std::int64_t batch, std::int64_t heads) const {
        if (!mask_.empty() && ((shape_[0] != 1 && shape_[0] != batch) || (shape_[1] != 1 && shape_[1] != heads))) {
            call.fail("attn_mask of shape " + to_string(shape_) + " does not fit batch " + std::to_string(batch) + " and " +
                      std::to_string(heads) + " heads");
        }
        if (!valid_.empty() && valid_.size() != static_cast<std::size_t>(batch))
            call.fail("nonpad_kv_seqlen needs one value for each sample");
        for (const std::int64_t v : valid_)
            if (v < 0 || v > keys_) call.fail("nonpad_kv_seqlen holds " + std::to_string(v) + " for " + std::to_string(keys_) + " keys");
    }

    /// Writes the bias of all keys for query i. Returns false if every key is excluded.
    bool row(std::int64_t b, std::int64_t h, std::int64_t i, T* out) const {
        constexpr T never = -std::numeric_limits<T>::infinity();
        const std::int64_t valid = valid_.empty() ? keys_ : valid_[static_cast<std::size_t>(b)];
        const std::int64_t offset = past_ > 0 || valid_.empty() ? past_ : valid - queries_;
        const T* mask = nullptr;
        if (!mask_.empty()) {
            const std::int64_t at =
                ((shape_[0] == 1 ? 0 : b) * shape_[1] + (shape_[1] == 1 ? 0 : h)) * shape_[2] + (shape_[2] == 1 ? 0 : i);
            mask = mask_.as<T>().data() + at * shape_[3];
        }
        bool any = false;
        for (std::int64_t j = 0; j < keys_; ++j) {
            T v = 0;
            if (mask != nullptr) {
                if (j >= shape_[3]) v = never;
                else v = boolean_ ? (mask[j] != 0 ? T{0} : never) : mask[j];
            }
            const std::int64_t ahead = j - (i + offset);
            if (j >= valid || (causal_ && ahead > 0) || (left_ >= 0 && -ahead > left_) || (right_ >= 0 && ahead > right_)) v = never;
            out[j] = v;
            any = any || v != never;
        }
        return any;
    }

  private:
    std::int64_t queries_, keys_, past_, left_ = -1, right_ = -1;
    bool causal_ = false, boolean_ = false;
    tensor mask_;
    dims shape_;
    std::vector<std::int64_t> valid_;
};

/// Fails unless Q, K and V, [batch, heads, sequence, width] each, fit each other.
inline void check_attention(const op_context& call, const tensor& q, const tensor& k, const tensor& v) {
    if (k.dim(0) != q.dim(0) || v.dim(0) != q.dim(0) || v.dim(1) != k.dim(1) || v.dim(2) != k.dim(2) || k.dim(3) != q.dim(3) ||
        k.dim(1) == 0 || q.dim(1) % k.dim(1) != 0)
        call.fail("Q " + to_string(q.shape()) + ", K " + to_string(k.shape()) + " and V " + to_string(v.shape()) +
                  " do not fit (batch, heads, sequence, width)");
}

/// Returns the square root of the scale. Queries and keys are both multiplied by it.
template <class T>
T attention_scale(const node_view& node, std::int64_t width) {
    return static_cast<T>(
        std::sqrt(node.has("scale") ? static_cast<double>(node.get_float("scale", 1)) : 1 / std::sqrt(static_cast<double>(width))));
}

/// Sets output i to `value` converted to `type`, if the output is wanted.
template <class T>
void give_as(op_context& call, std::size_t i, const tensor& value, data_type type) {
    if (!call.wants(i)) return;
    if (type == type_of<T>) call.set_output(i, value);
    else write_elements<T>(value.as<T>(), type, call.output(i, type, value.shape()).bytes());
}

}  // namespace detail

inline void run_attention(op_context& call) {
    const node_view& node = call.node();
    const tensor& given = call.input(0);
    const bool packed = given.rank() == 3;
    const auto precision = static_cast<data_type>(node.get_int("softmax_precision", 0));
    if (call.has_input(4) != call.has_input(5)) call.fail("past_key and past_value must be given together");
    with_working_type(precision == data_type::float64 ? precision : given.type(), [&]<class T>(T) {
        const tensor q = split_heads<T>(call, given, node.get_int("q_num_heads", 0));
        const tensor now_k = split_heads<T>(call, call.input(1), node.get_int("kv_num_heads", 0));
        const tensor now_v = split_heads<T>(call, call.input(2), node.get_int("kv_num_heads", 0));
        const tensor past_k = optional_as<T>(call, 4), past_v = optional_as<T>(call, 5);
        const tensor k = join_sequence<T>(call, past_k, now_k), v = join_sequence<T>(call, past_v, now_v);
        const std::int64_t batch = q.dim(0), heads = q.dim(1), queries = q.dim(2), width = q.dim(3);
        const std::int64_t groups = k.dim(1), keys = k.dim(2), value_width = v.dim(3);
        detail::check_attention(call, q, k, v);
        const detail::attention_bias<T> bias(call, queries, keys, past_k.empty() ? 0 : past_k.dim(2));
        bias.check(call, batch, heads);

        const T scale = detail::attention_scale<T>(node, width);
        const T cap = static_cast<T>(node.get_float("softcap", 0));
        const std::int64_t mode = node.get_int("qk_matmul_output_mode", 0);
        const bool wants_scores = call.wants(3);
        tensor debug = wants_scores ? call.scratch(type_of<T>, {batch, heads, queries, keys}) : tensor{};
        tensor scaled_q = call.scratch(type_of<T>, {queries, width}), scaled_k = call.scratch(type_of<T>, {keys, width});
        tensor scores = call.scratch(type_of<T>, {queries, keys}), result = call.scratch(type_of<T>, {queries, value_width});
        tensor extra = call.scratch(type_of<T>, {keys});
        working_output<T> y(call, 0, given.type(),
                            packed ? dims{batch, queries, heads * value_width} : dims{batch, heads, queries, value_width});
        const auto scaled = [&](const tensor& x, std::int64_t matrix, tensor& to) {
            const T* from = x.as<T>().data() + static_cast<std::size_t>(matrix) * to.size();
            for (std::size_t i = 0; i < to.size(); ++i) to.as<T>()[i] = from[i] * scale;
        };
        const auto n = static_cast<std::size_t>(keys);
        for (std::int64_t b = 0; b < batch; ++b)
            for (std::int64_t h = 0; h < heads; ++h) {
                const std::int64_t matrix = b * heads + h, group = b * groups + h / (heads / groups);
                scaled(q, matrix, scaled_q);
                scaled(k, group, scaled_k);
                T* score = scores.as<T>().data();
                multiply(scaled_q.as<T>().data(), false, scaled_k.as<T>().data(), true, score, queries, keys, width);
                T* show = wants_scores ? debug.as<T>().data() + static_cast<std::size_t>(matrix) * scores.size() : nullptr;
                if (show != nullptr && mode == 0) std::copy_n(score, scores.size(), show);
                if (cap > 0)
                    for (std::size_t i = 0; i < scores.size(); ++i) score[i] = cap * std::tanh(score[i] / cap);
                if (show != nullptr && mode == 1) std::copy_n(score, scores.size(), show);
                for (std::int64_t i = 0; i < queries; ++i) {
                    T* row = score + static_cast<std::size_t>(i) * n;
                    T* add = extra.as<T>().data();
                    const bool any = bias.row(b, h, i, add);
                    for (std::size_t j = 0; j < n; ++j) row[j] += add[j];
                    if (show != nullptr && mode == 2) std::copy_n(row, n, show + static_cast<std::size_t>(i) * n);
                    if (any) softmax_row(row, n);
                    else std::fill_n(row, n, T{0});
                }
                if (show != nullptr && mode == 3) std::copy_n(score, scores.size(), show);
                multiply(score, false, v.as<T>().data() + static_cast<std::size_t>(group * keys * value_width), false,
                         result.as<T>().data(), queries, value_width, keys);
                for (std::int64_t i = 0; i < queries; ++i) {
                    const std::int64_t to = packed ? ((b * queries + i) * heads + h) * value_width : (matrix * queries + i) * value_width;
                    std::copy_n(result.as<T>().data() + i * value_width, value_width, y.data() + to);
                }
            }
        y.store();
        detail::give_as<T>(call, 1, k, call.input(1).type());
        detail::give_as<T>(call, 2, v, call.input(2).type());
        if (wants_scores) detail::give_as<T>(call, 3, debug, given.type());
    });
}

/// Implements ai.onnx.preview's FlexAttention: inputs of rank 4, with subgraphs that change the scores and the probabilities.
inline void run_flex_attention(op_context& call) {
    const node_view& node = call.node();
    const tensor& given = call.input(0);
    auto precision = static_cast<data_type>(node.get_int("softmax_precision", 0));
    if (precision == data_type::undefined) precision = given.type() == data_type::float64 ? data_type::float64 : data_type::float32;
    with_working_type(precision, [&]<class T>(T) {
        const tensor q = input_as<T>(call, 0), k = input_as<T>(call, 1), v = input_as<T>(call, 2);
        if (q.rank() != 4 || k.rank() != 4 || v.rank() != 4) call.fail("Q, K and V must have rank 4");
        const std::int64_t batch = q.dim(0), heads = q.dim(1), queries = q.dim(2), width = q.dim(3), groups = k.dim(1), keys = k.dim(2),
                           value_width = v.dim(3);
        detail::check_attention(call, q, k, v);
        const T scale = detail::attention_scale<T>(node, width);
        const auto scaled = [&](const tensor& x) {
            tensor y = call.scratch(type_of<T>, x.shape());
            for (std::size_t i = 0; i < x.size(); ++i) y.as<T>()[i] = x.as<T>()[i] * scale;
            return y;
        };
        const tensor scaled_q = scaled(q), scaled_k = scaled(k);
        tensor scores = call.scratch(type_of<T>, {batch, heads, queries, keys});
        const auto group = [&](std::int64_t matrix) { return matrix / heads * groups + matrix % heads / (heads / groups); };
        for (std::int64_t m = 0; m < batch * heads; ++m) {
            multiply(scaled_q.as<T>().data() + m * queries * width, false, scaled_k.as<T>().data() + group(m) * keys * width, true,
                     scores.as<T>().data() + m * queries * keys, queries, keys, width);
        }
        const auto modified = [&](const char* attribute, const tensor& value) {
            if (!node.has(attribute)) return value;
            tensor in = value;
            if (precision != type_of<T>) {
                in = call.scratch(precision, value.shape());
                write_elements<T>(value.as<T>(), precision, in.bytes());
            }
            const std::vector<tensor> out = call.run_subgraph(node.get_graph(attribute), std::span<const tensor>(&in, 1));
            if (out.size() != 1 || out[0].shape() != value.shape())
                call.fail(std::string("attribute ") + attribute + " must give one tensor of shape " + to_string(value.shape()));
            return convert_to<T>(call, out[0]);
        };
        const tensor changed = modified("score_mod", scores);
        tensor probabilities = call.scratch(type_of<T>, changed.shape());
        std::copy(changed.as<T>().begin(), changed.as<T>().end(), probabilities.as<T>().begin());
        for (std::int64_t r = 0; r < batch * heads * queries; ++r)
            softmax_row(probabilities.as<T>().data() + r * keys, static_cast<std::size_t>(keys));
        const tensor weights = modified("prob_mod", probabilities);
        working_output<T> y(call, 0, given.type(), {batch, heads, queries, value_width});
        for (std::int64_t m = 0; m < batch * heads; ++m) {
            multiply(weights.as<T>().data() + m * queries * keys, false, v.as<T>().data() + group(m) * keys * value_width, false,
                     y.data() + m * queries * value_width, queries, value_width, keys);
        }
        y.store();
    });
}

inline constexpr op_entry attention_ops[] = {
    {"", "Attention", 23, run_attention, nullptr, {follow_attention}, {.traits = moves_channels, .pasts = 1u << 4 | 1u << 5, .mask = 3}},
    {"ai.onnx.preview", "FlexAttention", 1, run_flex_attention, nullptr, {follow_flex_attention}},
};

}  // namespace qk::graph::ops
