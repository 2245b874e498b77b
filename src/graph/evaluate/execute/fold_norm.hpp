// SPDX-License-Identifier: Apache-2.0
// Folds a BatchNormalization behind a convolution of floats into the convolution's weights and bias.
// Before: Conv -> BatchNormalization. After: Conv. Conditions: all but x constant; the value in between has no other reader and no
// quantizer.
#pragma once

#include <cmath>
#include <optional>
#include <utility>

#include "graph/evaluate/execute/cache.hpp"

namespace qk::graph::execute::detail {

inline bool is_inference_norm(const net_node& n) {
    return n.view.op_type() == "BatchNormalization" && n.view.version() >= 9 && n.inputs.size() == 5 && n.outputs.size() == 1 &&
           n.view.get_int("training_mode", 0) == 0;
}

/// Returns the slots of weights and bias that convolve and normalize. `in` are the slots of scale, shift, mean and variance. Returns
/// nullopt if these, or the bias, are not float32 constants with one value for each channel.
inline std::optional<std::pair<slot, slot>> with_norm(cache& c, const net_node& norm, const std::vector<slot>& in, slot weights,
                                                      slot bias) {
    const dims shape = c.shape_of(weights);
    for (const slot s : in)
        if (s >= no_slot || c.type_of(s) != data_type::float32 || c.shape_of(s) != dims{shape[0]}) return std::nullopt;
    if (bias < no_slot && c.shape_of(bias) != dims{shape[0]}) return std::nullopt;
    const auto [at, is_new] = c.folded.try_emplace({c.node_number(norm), weights, bias, in[0], in[1], in[2], in[3]});
    if (is_new) {
        const tensor given[] = {c.constant(in[0]), c.constant(in[1]), c.constant(in[2]), c.constant(in[3])};
        const auto of = [&](int k, std::size_t i) { return static_cast<double>(given[k].as<float>()[i]); };
        const double epsilon = static_cast<double>(norm.view.get_float("epsilon", 1e-5f));
        const tensor own = bias < no_slot ? c.constant(bias) : tensor();
        std::vector<double> factor;
        tensor shift(data_type::float32, {shape[0]});
        for (std::size_t i = 0; i < shift.size(); ++i) {
            factor.push_back(of(0, i) / std::sqrt(of(3, i) + epsilon));
            const double before = own.empty() ? 0.0 : static_cast<double>(own.as<float>()[i]);
            shift.as<float>()[i] = static_cast<float>((before - of(2, i)) * factor[i] + of(1, i));
        }
        const slot scaled = c.add_late_constant(data_type::float32, shape, [shared = &c, weights, factor] {
            const tensor w = shared->constant(weights);
            tensor y(data_type::float32, w.shape());
            const std::size_t each = w.size() / factor.size();
            for (std::size_t i = 0; i < w.size(); ++i)
                y.as<float>()[i] = static_cast<float>(static_cast<double>(w.as<float>()[i]) * factor[i / each]);
            return y;
        });
        at->second = {scaled, c.add_constant(std::move(shift))};
    }
    return std::pair(at->second[0], at->second[1]);
}

}  // namespace qk::graph::execute::detail
