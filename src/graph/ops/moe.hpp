// SPDX-License-Identifier: Apache-2.0
// Implements com.microsoft's MoE and QMoE: a router chooses k experts for each token; an expert has two layers (three if it is gated).
// https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md; routing, activations and codes are those of its CPU kernels
// (tests/graph/attention_evidence.py compares them).
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "graph/ops/activation.hpp"
#include "graph/ops/expert_codes.hpp"
#include "graph/ops/matrix.hpp"
#include "graph/ops/op.hpp"
#include "graph/ops/walk/rules.hpp"
#include "graph/ops/working_type.hpp"
#include "qk/reference/codes.hpp"

namespace qk::graph::ops {

namespace detail {

/// One layer of all experts: weights are [E, out, in]; bias is [E, out] or empty.
struct expert_layer {
    tensor weights, bias;
    std::int64_t experts() const { return weights.dim(0); }
    std::int64_t out() const { return weights.dim(1); }
    std::int64_t in() const { return weights.dim(2); }
};

inline void check_layer(const op_context& call, const expert_layer& l, std::int64_t experts, std::int64_t in, const char* name) {
    if (l.weights.rank() != 3 || l.experts() != experts || l.in() != in ||
        (!l.bias.empty() && l.bias.size() != static_cast<std::size_t>(experts * l.out())))
        call.fail(std::string(name) + "_experts_weights of shape " + to_string(l.weights.shape()) + " and its bias do not fit " +
                  std::to_string(experts) + " experts that read " + std::to_string(in) + " channels");
}

/// Computes y [rows, out] = x [rows, in] * weights^T + bias with the layer of expert e.
template <class T>
void apply_layer(const expert_layer& l, std::int64_t e, const T* x, T* y, std::int64_t rows) {
    multiply(x, false, l.weights.as<T>().data() + e * l.out() * l.in(), true, y, rows, l.out(), l.in());
    if (l.bias.empty()) return;
    const T* bias = l.bias.as<T>().data() + e * l.out();
    for (std::int64_t r = 0; r < rows; ++r)
        for (std::int64_t i = 0; i < l.out(); ++i) y[r * l.out() + i] += bias[i];
}

/// The activation between the layers of an expert.
template <class T>
class expert_activation {
  public:
    explicit expert_activation(const op_context& call)
        : name_(call.node().get_string("activation_type", "relu")),
          fusion_(call.node().get_int("swiglu_fusion", 0)),
          alpha_(static_cast<T>(call.node().get_float("activation_alpha", 1))),
          beta_(static_cast<T>(call.node().get_float("activation_beta", 0))),
          limit_(static_cast<T>(call.node().get_float("swiglu_limit", std::numeric_limits<float>::infinity()))),
          limits_later_(call.node().get_int("swiglu_limit_after_activation", 0) != 0) {
        constexpr const char* names[] = {"relu", "gelu", "silu", "swiglu", "identity", "relu2", "geglu"};
        if (std::ranges::find(names, name_) == std::end(names))
            call.fail("activation_type '" + name_ + "' is none of relu, gelu, silu, swiglu, identity, relu2, geglu");
        if (fusion_ < 0 || fusion_ > 2) call.fail("swiglu_fusion is 0, 1 or 2");
        if (name_ == "geglu" && fusion_ == 0) call.fail("geglu has swiglu_fusion 1 or 2");
        if (limits_later_ && name_ != "swiglu") call.fail("swiglu_limit_after_activation is of swiglu, not of " + name_);
        if (call.node().get_int("use_sparse_mixer", 0) != 0) call.fail("use_sparse_mixer 1 is not supported");
    }
    /// Is true when one row holds both the gate and the linear part.
    bool fused() const { return (name_ == "swiglu" || name_ == "geglu") && fusion_ != 0; }

    /// Changes x [rows, width] to [rows, inner] in place. `linear` holds the rows of the third layer, or is nullptr.
    void apply(T* x, const T* linear, std::int64_t rows, std::int64_t width, std::int64_t inner) const {
        for (std::int64_t r = 0; r < rows; ++r)
            for (std::int64_t i = 0; i < inner; ++i) {
                const T* row = x + r * width;
                const T* beside = linear != nullptr ? linear + r * inner + i : nullptr;
                T y = row[i];
                if (fused()) y = gated(row[fusion_ == 1 ? 2 * i : i], row[fusion_ == 1 ? 2 * i + 1 : i + inner]);
                else if (name_ == "swiglu" && beside != nullptr) y = gated(y, *beside);
                else y = plain(y) * (beside != nullptr ? *beside : T{1});
                x[r * inner + i] = y;  // no later read needs this element
            }
    }

  private:
    T plain(T x) const {
        if (name_ == "relu") return std::max(x, T{0});
        if (name_ == "relu2") return std::max(x, T{0}) * std::max(x, T{0});
        if (name_ == "gelu" || name_ == "geglu")
            return x / 2 * (1 + std::tanh(static_cast<T>(0.7978845608028654) * (x + static_cast<T>(0.044715) * x * x * x)));
        return name_ == "identity" ? x : x * any_sigmoid(x);
    }
    T gated(T gate, T linear) const {
        if (name_ == "geglu") return plain(gate) * linear;
        const T other = std::clamp(linear, -limit_, limit_) + beta_;
        if (limits_later_) return std::min(gate * any_sigmoid(alpha_ * gate), limit_) * other;
        gate = std::min(gate, limit_);
        return gate * any_sigmoid(alpha_ * gate) * other;
    }
    std::string name_;
    std::int64_t fusion_;
    T alpha_, beta_, limit_;
    bool limits_later_;  ///< the limit is the activated gate's, not the gate's
};

/// Chooses the k experts of a token and their shares: a softmax over all experts, or over the k alone if `normalized`.
template <class T>
void choose_experts(const T* logits, std::int64_t experts, std::int64_t k, bool normalized, std::vector<std::int64_t>& chosen,
                    std::vector<T>& share) {
    chosen.resize(static_cast<std::size_t>(experts));
    std::iota(chosen.begin(), chosen.end(), std::int64_t{0});
    std::stable_sort(chosen.begin(), chosen.end(), [&](std::int64_t a, std::int64_t b) { return logits[a] > logits[b]; });
    T sum = 0;
    for (std::size_t i = 0; i < chosen.size(); ++i)
        if (!normalized || static_cast<std::int64_t>(i) < k) sum += std::exp(logits[chosen[i]] - logits[chosen[0]]);
    share.clear();
    for (std::int64_t i = 0; i < k; ++i) share.push_back(std::exp(logits[chosen[static_cast<std::size_t>(i)]] - logits[chosen[0]]) / sum);
}

/// Computes the node's output. The weights of the layers are values, not codes.
template <class T>
void run_experts(op_context& call, const expert_layer& first, const expert_layer& second, const expert_layer& third,
                 std::size_t share_input) {
    const tensor& given = call.input(0);
    const tensor x = input_as<T>(call, 0), logits = input_as<T>(call, 1), mix = optional_as<T>(call, share_input);
    const expert_activation<T> between(call);
    const std::int64_t k = call.node().get_int("k", 1);
    if (logits.rank() != 2 || given.rank() < 2)
        call.fail("router_probs has shape " + to_string(logits.shape()) + ", not [tokens, experts]");
    const std::int64_t experts = logits.dim(1), tokens = logits.dim(0), hidden = given.shape().back();
    if (x.size() != static_cast<std::size_t>(tokens * hidden) || k < 1 || k > experts)
        call.fail("router_probs of shape " + to_string(logits.shape()) + " does not fit an input of shape " + to_string(given.shape()) +
                  " and k = " + std::to_string(k));
    check_layer(call, first, experts, hidden, "fc1");
    const std::int64_t inner = between.fused() ? first.out() / 2 : first.out();
    check_layer(call, second, experts, inner, "fc2");
    if (!third.weights.empty()) check_layer(call, third, experts, hidden, "fc3");
    if (second.out() != hidden || (!third.weights.empty() && third.out() != inner)) call.fail("the layers of the experts do not fit");
    if (!mix.empty() && mix.size() != logits.size()) call.fail("router_weights has another shape than router_probs");

    struct visit {
        std::int64_t token;
        T share;
    };
    std::vector<std::vector<visit>> visits(static_cast<std::size_t>(experts));
    std::vector<std::int64_t> chosen;
    std::vector<T> share;
    const bool normalized = call.node().get_int("normalize_routing_weights", 0) != 0;
    for (std::int64_t t = 0; t < tokens; ++t) {
        choose_experts(logits.as<T>().data() + t * experts, experts, k, normalized, chosen, share);
        if (!mix.empty()) {
            T sum = 0;
            for (std::int64_t i = 0; i < k; ++i)
                sum += share[static_cast<std::size_t>(i)] =
                    mix.as<T>()[static_cast<std::size_t>(t * experts + chosen[static_cast<std::size_t>(i)])];
            if (normalized)
                for (T& s : share) s /= sum;
        }
        for (std::size_t i = 0; i < static_cast<std::size_t>(k); ++i) visits[static_cast<std::size_t>(chosen[i])].push_back({t, share[i]});
    }

    working_output<T> y(call, 0, given.type(), given.shape());
    std::fill(y.values().begin(), y.values().end(), T{0});
    for (std::int64_t e = 0; e < experts; ++e) {
        const std::vector<visit>& here = visits[static_cast<std::size_t>(e)];
        const auto rows = static_cast<std::int64_t>(here.size());
        if (rows == 0) continue;
        tensor read = call.scratch(type_of<T>, {rows, hidden}), made = call.scratch(type_of<T>, {rows, hidden});
        tensor middle = call.scratch(type_of<T>, {rows, first.out()});
        tensor beside = third.weights.empty() ? tensor{} : call.scratch(type_of<T>, {rows, inner});
        for (std::int64_t r = 0; r < rows; ++r)
            std::copy_n(x.as<T>().data() + here[static_cast<std::size_t>(r)].token * hidden, hidden, read.as<T>().data() + r * hidden);
        apply_layer<T>(first, e, read.as<T>().data(), middle.as<T>().data(), rows);
        if (!beside.empty()) apply_layer<T>(third, e, read.as<T>().data(), beside.as<T>().data(), rows);
        between.apply(middle.as<T>().data(), beside.empty() ? nullptr : beside.as<T>().data(), rows, first.out(), inner);
        apply_layer<T>(second, e, middle.as<T>().data(), made.as<T>().data(), rows);
        for (std::int64_t r = 0; r < rows; ++r)
            for (std::int64_t i = 0; i < hidden; ++i)
                y.data()[here[static_cast<std::size_t>(r)].token * hidden + i] +=
                    here[static_cast<std::size_t>(r)].share * made.as<T>().data()[r * hidden + i];
    }
    y.store();
}

/// Decodes codes [E, out, in * bits / 8], lowest bits first, as (code - zero point) * scale. Scales are [E, out] or [E, out, blocks].
/// `projection` is the layer's name in attributes: its codes may have a width of their own.
template <class T>
tensor decoded_experts(op_context& call, const std::string& projection, std::size_t codes_at, std::size_t zeros_at) {
    const tensor& codes = call.input(codes_at);
    const tensor scales = input_as<T>(call, codes_at + 1);
    const std::int64_t bits = expert_bits(call.node(), projection), size = call.node().get_int("block_size", -1);
    if ((bits != 2 && bits != 3 && bits != 4 && bits != 8) || codes.rank() != 3 || codes.type() != data_type::uint8)
        call.fail("expert weights are codes of 2, 3, 4 or 8 bits in uint8 of rank 3, not " + to_string(codes.shape()));
    if (bits == 3 && (size < 1 || scales.rank() != 3)) call.fail("experts of 3 bits have a block_size, and scales of rank 3");
    // Bytes do not say how many codes of 3 bits there are: such rows are whole blocks.
    const std::int64_t experts = codes.dim(0), out = codes.dim(1), in = bits == 3 ? scales.dim(2) * size : codes.dim(2) * (8 / bits);
    const std::int64_t block = size > 0 ? size : in, blocks = (in + block - 1) / block;
    if (scales.size() != static_cast<std::size_t>(experts * out * blocks) || codes.dim(2) != bytes_of_codes(in, bits))
        call.fail("scales of shape " + to_string(scales.shape()) + " do not fit expert weights of shape " + to_string(codes.shape()) +
                  " in blocks of " + std::to_string(block));
    const bool zeros = call.has_input(zeros_at);
    // Zero points are packed along their last axis, which is blocks if there is a block_size, else outputs.
    const std::int64_t packed = bytes_of_codes(size > 0 ? blocks : out, bits);
    if (zeros && call.input(zeros_at).size() != static_cast<std::size_t>(experts * (size > 0 ? out : 1) * packed))
        call.fail("zero points of shape " + to_string(call.input(zeros_at).shape()) + " do not fit the scales");
    tensor y = call.scratch(type_of<T>, {experts, out, in});
    T* to = y.as<T>().data();
    for (std::int64_t row = 0; row < experts * out; ++row)
        for (std::int64_t i = 0; i < in; ++i) {
            const std::int64_t b = i / block;
            int zero = 1 << (bits - 1);
            if (zeros)
                zero = size > 0 ? code_in_row(call.input(zeros_at), row, packed, bits, b)
                                : code_in_row(call.input(zeros_at), row / out, packed, bits, row % out);
            *to++ = static_cast<T>(code_in_row(codes, row, codes.dim(2), bits, i) - zero) *
                    scales.as<T>()[static_cast<std::size_t>(row * blocks + b)];
        }
    return y;
}

/// Decodes FP8 values [E, out, in] under scales of square blocks, or under one of each expert.
inline tensor decoded_fp8_experts(op_context& call, std::size_t codes_at, std::size_t whole_at) {
    const tensor& codes = call.input(codes_at);
    if (codes.rank() != 3 || codes.type() != data_type::float8e4m3fn)
        call.fail("FP8 experts are values of float8e4m3fn of rank 3, not " + std::string(name_of(codes.type())) + " of shape " +
                  to_string(codes.shape()));
    const std::int64_t experts = codes.dim(0), out = codes.dim(1), in = codes.dim(2);
    const std::int64_t size = call.node().get_int("block_size", -1);
    const std::int64_t wide = size > 0 ? (in + size - 1) / size : 1, high = size > 0 ? (out + size - 1) / size : 1;
    const std::size_t scales_at = size > 0 ? codes_at + 1 : whole_at;
    if (!call.has_input(scales_at)) call.fail("FP8 experts have scales of their blocks, or one for each expert");
    const tensor scales = input_as<float>(call, scales_at);
    if (scales.size() != static_cast<std::size_t>(experts * high * wide))
        call.fail("scales of shape " + to_string(scales.shape()) + " do not fit expert weights of shape " + to_string(codes.shape()) +
                  (size > 0 ? " in square blocks of " + std::to_string(size) : std::string()));
    tensor y = call.scratch(data_type::float32, {experts, out, in});
    float* to = y.as<float>().data();
    for (std::int64_t e = 0; e < experts; ++e)
        for (std::int64_t o = 0; o < out; ++o)
            for (std::int64_t i = 0; i < in; ++i) {
                const std::int64_t b = size > 0 ? o / size * wide + i / size : 0;
                *to++ = reference::value_of(fp8_e4m3fn, codes.as<std::uint8_t>()[static_cast<std::size_t>((e * out + o) * in + i)]) *
                        scales.as<float>()[static_cast<std::size_t>(e * high * wide + b)];
            }
    return y;
}

/// Decodes FP4 codes, two a byte along the inputs, low half first, as element * block scale * the expert's scale. The shape is that of the
/// scales, [E, out, in / block]: the codes' own may be [E, in, out / 2] with the same bytes.
inline tensor decoded_fp4_experts(op_context& call, std::size_t codes_at, std::size_t whole_at, std::int64_t block,
                                  const floating& of_scales) {
    const tensor &codes = call.input(codes_at), &scales = call.input(codes_at + 1);
    const tensor scale = input_as<float>(call, codes_at + 1), whole = input_as<float>(call, whole_at);
    if (scales.rank() != 3 || format_of(scales.type()) != of_scales)
        call.fail("scales of " + std::string(name_of(scales.type())) + " of shape " + to_string(scales.shape()) +
                  " are not those of the blocks of FP4 experts");
    const std::int64_t experts = scales.dim(0), out = scales.dim(1), in = scales.dim(2) * block;
    if (codes.type() != data_type::uint8 || codes.size() != static_cast<std::size_t>(experts * out * in / 2))
        call.fail("expert weights of shape " + to_string(codes.shape()) + " do not fit scales of shape " + to_string(scales.shape()) +
                  " for blocks of " + std::to_string(block));
    if (whole.size() != static_cast<std::size_t>(experts))
        call.fail("the scales of the experts have shape " + to_string(whole.shape()) + ", for " + std::to_string(experts) + " experts");
    tensor y = call.scratch(data_type::float32, {experts, out, in});
    float* to = y.as<float>().data();
    for (std::int64_t row = 0; row < experts * out; ++row)
        for (std::int64_t i = 0; i < in; ++i) {
            const std::uint32_t byte = codes.as<std::uint8_t>()[static_cast<std::size_t>((row * in + i) / 2)];
            const float s = scale.as<float>()[static_cast<std::size_t>((row * in + i) / block)];
            *to++ = reference::value_of(fp4_e2m1, i % 2 == 0 ? byte & 15 : byte >> 4) * s *
                    whole.as<float>()[static_cast<std::size_t>(row / out)];
        }
    return y;
}

}  // namespace detail

inline void run_moe(op_context& call) {
    if (call.input(0).type() == data_type::float64) call.fail("MoE has no type float64");
    const auto layer = [&](std::size_t i) { return detail::expert_layer{optional_as<float>(call, i), optional_as<float>(call, i + 1)}; };
    detail::run_experts<float>(call, layer(2), layer(4), layer(6), std::numeric_limits<std::size_t>::max());
}

inline void run_qmoe(op_context& call) {
    const std::string type = call.node().get_string("quant_type", "int");
    if (type == "fp4" || type == "nvfp4") {
        if (type == "nvfp4" && call.node().get_int("weights_prepacked", -1) != 1)
            call.fail("nvfp4 experts have weights_prepacked 1, two codes a byte along the inputs");
        if (call.has_input(8)) call.fail("FP4 experts have two layers, fc1 with the gate in it");
        const auto layer = [&](std::size_t weights, std::size_t whole) {
            return detail::expert_layer{type == "fp4" ? detail::decoded_fp4_experts(call, weights, whole, 32, e8m0)
                                                      : detail::decoded_fp4_experts(call, weights, whole, 16, fp8_e4m3fn),
                                        optional_as<float>(call, weights + 2)};
        };
        return detail::run_experts<float>(call, layer(2, 15), layer(5, 16), {}, 14);
    }
    if (type == "fp8") {
        const auto layer = [&](std::size_t weights, std::size_t whole) {
            if (!call.has_input(weights)) return detail::expert_layer{};
            return detail::expert_layer{detail::decoded_fp8_experts(call, weights, whole), optional_as<float>(call, weights + 2)};
        };
        if (call.has_input(17) || call.has_input(18)) call.fail("FP8 experts with scales for activations are not supported");
        return detail::run_experts<float>(call, layer(2, 15), layer(5, 16), layer(8, std::numeric_limits<std::size_t>::max()), 14);
    }
    if (type != "int") call.fail("quant_type '" + type + "' is not supported: int, fp4, nvfp4 and fp8 are");
    const auto layer = [&](const char* projection, std::size_t weights, std::size_t zeros) {
        if (!call.has_input(weights)) return detail::expert_layer{};
        return detail::expert_layer{detail::decoded_experts<float>(call, projection, weights, zeros),
                                    optional_as<float>(call, weights + 2)};
    };
    detail::run_experts<float>(call, layer("fc1", 2, 11), layer("fc2", 5, 12), layer("fc3", 8, 13), 14);
}

inline constexpr op_entry moe_ops[] = {
    {"com.microsoft", "MoE", 1, run_moe, nullptr, {follow_experts}},
    {"com.microsoft", "QMoE", 1, run_qmoe, nullptr, {follow_experts}, {on_codes}},
};

}  // namespace qk::graph::ops
