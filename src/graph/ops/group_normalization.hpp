// SPDX-License-Identifier: Apache-2.0
// Implements InstanceNormalization and GroupNormalization: each sample has statistics for each channel, or each group of channels.
#pragma once

#include <cmath>

#include "graph/ops/op.hpp"
#include "graph/ops/sums.hpp"
#include "graph/ops/walk/rules.hpp"
#include "graph/ops/working_type.hpp"

namespace qk::graph::ops {

namespace detail {

/// Computes y = scale * (x - mean) / sqrt(variance + epsilon) + bias. scale and bias have one value for each channel or each group.
inline void normalize_groups(op_context& call, std::int64_t groups) {
    const tensor& given = call.input(0);
    if (given.rank() < 2) call.fail("input 0 of shape " + to_string(given.shape()) + " has no channels");
    const auto channels = static_cast<std::size_t>(given.dim(1));
    if (groups < 1 || static_cast<std::size_t>(groups) > channels || channels % static_cast<std::size_t>(groups) != 0) {
        call.fail(std::to_string(groups) + " groups do not divide " + std::to_string(channels) + " channels");
    }
    const std::size_t per_group = channels / static_cast<std::size_t>(groups), positions = product(given.shape(), 2, given.rank());
    const float epsilon = call.node().get_float("epsilon", 1e-5f);
    with_working_type(given.type(), [&]<class T>(T) {
        const tensor x = input_as<T>(call, 0), scale = input_as<T>(call, 1), bias = input_as<T>(call, 2);
        for (const tensor* t : {&scale, &bias})
            if (t->size() != channels && t->size() != static_cast<std::size_t>(groups)) {
                call.fail("scale and bias need one value a channel or a group, not shape " + to_string(t->shape()));
            }
        const auto value = [&](const tensor& t, std::size_t c) { return t.as<T>()[t.size() == channels ? c : c / per_group]; };
        working_output<T> y(call, 0, given.type(), x.shape());
        const std::size_t length = per_group * positions;
        for (std::size_t g = 0; g < static_cast<std::size_t>(given.dim(0) * groups); ++g) {
            const T* from = x.as<T>().data() + g * length;
            const moments<T> m = moments_of(from, length);
            const T inverse = 1 / std::sqrt(m.variance + static_cast<T>(epsilon));
            for (std::size_t k = 0; k < per_group; ++k) {
                const std::size_t c = (g % static_cast<std::size_t>(groups)) * per_group + k;
                const T factor = value(scale, c), shift = value(bias, c);
                for (std::size_t i = k * positions; i < (k + 1) * positions; ++i)
                    y.values()[g * length + i] = factor * ((from[i] - m.mean) * inverse) + shift;
            }
        }
        y.store();
    });
}

}  // namespace detail

inline void run_instance_normalization(op_context& call) {
    const tensor& x = call.input(0);
    detail::normalize_groups(call, x.rank() > 1 ? x.dim(1) : 0);
}
inline void run_group_normalization(op_context& call) { detail::normalize_groups(call, call.node().get_int("num_groups", 1)); }

inline constexpr op_entry group_normalization_ops[] = {
    {"", "InstanceNormalization", 1, run_instance_normalization, nullptr, {follow_normalization_of_channels}},
    {"", "GroupNormalization", 18, run_group_normalization, nullptr, {follow_normalization_of_channels}},
};

}  // namespace qk::graph::ops
