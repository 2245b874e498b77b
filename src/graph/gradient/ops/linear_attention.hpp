// SPDX-License-Identifier: Apache-2.0
// Vector-Jacobian products of LinearAttention and CausalConvWithState, token by token in reverse, in float32 as the operators compute.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "graph/gradient/backward.hpp"
#include "graph/gradient/ops/unary.hpp"
#include "graph/ops/linear_attention.hpp"

namespace qk::graph::gradient {

/// Walks back through S1 = decay S0, u = v - S1' k, S2 = S1 + k (x) beta u, o = scale q S2; keeps the states of all tokens of a head.
class linear_attention_back {
  public:
    explicit linear_attention_back(backward_call& c) : call_(&c) {
        const node_view& node = c.node();
        const std::string rule = node.get_string("update_rule", "gated_delta");
        gated_ = rule == "gated" || rule == "gated_delta", delta_ = rule == "delta" || rule == "gated_delta";
        heads_ = size(node.get_int("q_num_heads", 0)), groups_ = size(node.get_int("kv_num_heads", 0));
        for (std::size_t i = 0; i < 6; ++i)
            if (c.has_input(i)) in_[i] = c.real<float>(i), d_[i] = zeros<float>(in_[i].shape());
        batch_ = size(in_[0].dim(0)), length_ = size(in_[0].dim(1));
        dk_ = size(in_[0].dim(2)) / heads_, dv_ = size(in_[2].dim(2)) / groups_;
        decays_ = gated_ ? size(in_[4].dim(2)) / groups_ : 0;
        scale_ = node.get_float("scale", 0);
        if (scale_ == 0) scale_ = 1 / std::sqrt(static_cast<float>(dk_));
    }

    void run() {
        for (std::size_t b = 0; b < batch_; ++b)
            for (std::size_t g = 0; g < groups_; ++g) {
                const std::vector<std::vector<float>> states = forward(b, g);
                std::vector<float> ds(dk_ * dv_, 0.0f);
                const std::size_t first = (b * groups_ + g) * dk_ * dv_;
                if (call_->has_gradient(1)) std::copy_n(call_->gradient(1).as<float>().data() + first, ds.size(), ds.data());
                for (std::size_t t = length_; t-- > 0;) back(b, g, t, states[t], states[t + 1], ds);
                if (!d_[3].empty()) std::copy(ds.begin(), ds.end(), d_[3].as<float>().data() + first);
            }
        for (std::size_t i = 0; i < 6; ++i)
            if (!d_[i].empty()) call_->give(i, d_[i]);
    }

  private:
    static std::size_t size(std::int64_t n) { return static_cast<std::size_t>(n); }
    const float* row(std::size_t input, std::size_t b, std::size_t t, std::size_t g, std::size_t width) const {
        return in_[input].as<float>().data() + ((b * length_ + t) * groups_ + g) * width;
    }
    float* gradient_row(std::size_t input, std::size_t b, std::size_t t, std::size_t g, std::size_t width) {
        return d_[input].as<float>().data() + ((b * length_ + t) * groups_ + g) * width;
    }
    std::size_t rate_at(std::size_t b, std::size_t t, std::size_t g) const {
        const std::size_t at = b * length_ + t;
        return in_[5].dim(2) == 1 ? at : at * groups_ + g;
    }
    /// Returns S1, the state after its decay.
    std::vector<float> decayed(const std::vector<float>& s, std::size_t b, std::size_t t, std::size_t g) const {
        std::vector<float> s1 = s;
        for (std::size_t d = 0; gated_ && d < dk_; ++d) {
            const float factor = std::exp(row(4, b, t, g, decays_)[decays_ == 1 ? 0 : d]);
            for (std::size_t m = 0; m < dv_; ++m) s1[d * dv_ + m] *= factor;
        }
        return s1;
    }
    /// Returns u: v, or for the delta rules v - S1' k.
    std::vector<float> news(const std::vector<float>& s1, std::size_t b, std::size_t t, std::size_t g) const {
        std::vector<float> u(row(2, b, t, g, dv_), row(2, b, t, g, dv_) + dv_);
        const float* k = row(1, b, t, g, dk_);
        for (std::size_t d = 0; delta_ && d < dk_; ++d)
            for (std::size_t m = 0; m < dv_; ++m) u[m] -= s1[d * dv_ + m] * k[d];
        return u;
    }
    /// Returns the states before each token, and after the last.
    std::vector<std::vector<float>> forward(std::size_t b, std::size_t g) const {
        std::vector<std::vector<float>> states(1, std::vector<float>(dk_ * dv_, 0.0f));
        if (!in_[3].empty()) std::copy_n(in_[3].as<float>().data() + (b * groups_ + g) * dk_ * dv_, dk_ * dv_, states[0].data());
        for (std::size_t t = 0; t < length_; ++t) {
            std::vector<float> s = decayed(states.back(), b, t, g);
            const std::vector<float> u = news(s, b, t, g);
            const float *k = row(1, b, t, g, dk_), rate = delta_ ? in_[5].as<float>()[rate_at(b, t, g)] : 1.0f;
            for (std::size_t d = 0; d < dk_; ++d)
                for (std::size_t m = 0; m < dv_; ++m) s[d * dv_ + m] += k[d] * rate * u[m];
            states.push_back(std::move(s));
        }
        return states;
    }

    /// Turns ds, the gradient of the state after the token, into that of the state before.
    void back(std::size_t b, std::size_t g, std::size_t t, const std::vector<float>& s0, const std::vector<float>& s2,
              std::vector<float>& ds) {
        const std::size_t share = heads_ / groups_;
        for (std::size_t h = g * share; call_->has_gradient(0) && h < (g + 1) * share; ++h) {
            const std::size_t at = (b * length_ + t) * heads_ + h;
            const float *q = in_[0].as<float>().data() + at * dk_, *go = call_->gradient(0).as<float>().data() + at * dv_;
            float* dq = d_[0].as<float>().data() + at * dk_;
            for (std::size_t d = 0; d < dk_; ++d)
                for (std::size_t m = 0; m < dv_; ++m) {
                    dq[d] += scale_ * s2[d * dv_ + m] * go[m];
                    ds[d * dv_ + m] += scale_ * q[d] * go[m];
                }
        }
        const std::vector<float> s1 = decayed(s0, b, t, g), u = news(s1, b, t, g);
        const float *k = row(1, b, t, g, dk_), rate = delta_ ? in_[5].as<float>()[rate_at(b, t, g)] : 1.0f;
        float *dk = gradient_row(1, b, t, g, dk_), *dv = gradient_row(2, b, t, g, dv_), drate = 0;
        std::vector<float> dvalue(dv_, 0.0f);
        for (std::size_t d = 0; d < dk_; ++d)
            for (std::size_t m = 0; m < dv_; ++m) {
                dk[d] += ds[d * dv_ + m] * rate * u[m];
                dvalue[m] += ds[d * dv_ + m] * k[d];
            }
        for (std::size_t m = 0; m < dv_; ++m) {
            drate += dvalue[m] * u[m];
            dvalue[m] *= rate;
            dv[m] += dvalue[m];
        }
        if (delta_) d_[5].as<float>()[rate_at(b, t, g)] += drate;
        for (std::size_t d = 0; delta_ && d < dk_; ++d)
            for (std::size_t m = 0; m < dv_; ++m) {
                dk[d] -= s1[d * dv_ + m] * dvalue[m];
                ds[d * dv_ + m] -= k[d] * dvalue[m];
            }
        for (std::size_t d = 0; gated_ && d < dk_; ++d) {
            const std::size_t which = decays_ == 1 ? 0 : d;
            const float factor = std::exp(row(4, b, t, g, decays_)[which]);
            float sum = 0;
            for (std::size_t m = 0; m < dv_; ++m) {
                sum += ds[d * dv_ + m] * s1[d * dv_ + m];
                ds[d * dv_ + m] *= factor;
            }
            gradient_row(4, b, t, g, decays_)[which] += sum;
        }
    }

    backward_call* call_;
    bool gated_ = false, delta_ = false;
    std::size_t heads_ = 0, groups_ = 0, batch_ = 0, length_ = 0, dk_ = 0, dv_ = 0, decays_ = 0;
    float scale_ = 0;
    tensor in_[6], d_[6];
};

inline void linear_attention_backward(backward_call& call) { linear_attention_back(call).run(); }

inline void causal_conv_backward(backward_call& call) {
    const std::string activation = call.node().get_string("activation", "none");
    const bool silu = activation == "silu" || activation == "swish";
    const tensor x = call.real<float>(0), w = call.real<float>(1), bias = call.optional_real<float>(2), past = call.optional_real<float>(3);
    const auto channels = static_cast<std::size_t>(x.dim(1)), length = static_cast<std::size_t>(x.dim(2)),
               taps = static_cast<std::size_t>(w.dim(2)), before = taps - 1, rows = static_cast<std::size_t>(x.dim(0)) * channels;
    tensor dx = zeros<float>(x.shape()), dw = zeros<float>(w.shape()), dbias = bias.empty() ? tensor() : zeros<float>(bias.shape()),
           dpast = past.empty() ? tensor() : zeros<float>(past.shape());
    std::vector<float> row(before + length), drow(row.size());
    for (std::size_t i = 0; i < rows; ++i) {
        const float* weights = w.as<float>().data() + i % channels * taps;
        std::fill(row.begin(), row.end(), 0.0f), std::fill(drow.begin(), drow.end(), 0.0f);
        if (!past.empty()) std::copy_n(past.as<float>().data() + i * before, before, row.data());
        std::copy_n(x.as<float>().data() + i * length, length, row.data() + before);
        for (std::size_t t = 0; call.has_gradient(0) && t < length; ++t) {
            float sum = bias.empty() ? 0.0f : bias.as<float>()[i % channels], g = call.gradient(0).as<float>()[i * length + t];
            for (std::size_t j = 0; j < taps; ++j) sum += weights[j] * row[t + j];
            if (silu) g *= swish_slope(sum, 1.0f);
            if (!dbias.empty()) dbias.as<float>()[i % channels] += g;
            for (std::size_t j = 0; j < taps; ++j) {
                dw.as<float>()[i % channels * taps + j] += g * row[t + j];
                drow[t + j] += g * weights[j];
            }
        }
        for (std::size_t j = 0; call.has_gradient(1) && j < before; ++j) drow[length + j] += call.gradient(1).as<float>()[i * before + j];
        std::copy_n(drow.data() + before, length, dx.as<float>().data() + i * length);
        if (!dpast.empty()) std::copy_n(drow.data(), before, dpast.as<float>().data() + i * before);
    }
    call.give(0, dx);
    call.give(1, dw);
    if (!dbias.empty()) call.give(2, dbias);
    if (!dpast.empty()) call.give(3, dpast);
}

inline constexpr backward_entry linear_attention_backward_rows[] = {
    {"", "LinearAttention", 1, linear_attention_backward},
    {"", "CausalConvWithState", 1, causal_conv_backward},
};

}  // namespace qk::graph::gradient
