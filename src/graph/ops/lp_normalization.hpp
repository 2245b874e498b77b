// SPDX-License-Identifier: Apache-2.0
// Implements LpNormalization, LRN and MeanVarianceNormalization, which have no scale and bias.
#pragma once

#include <cmath>
#include <vector>

#include "graph/ops/broadcast.hpp"
#include "graph/ops/op.hpp"
#include "graph/ops/walk/rules.hpp"
#include "graph/ops/working_type.hpp"

namespace qk::graph::ops {

/// Computes x / |x| along an axis with p = 1 or 2. A zero norm gives zeros.
inline void run_lp_normalization(op_context& call) {
    const tensor& given = call.input(0);
    const std::int64_t p = call.node().get_int("p", 2);
    if (p != 1 && p != 2) call.fail("p=" + std::to_string(p) + " is neither 1 nor 2");
    const axis_split s = split_at(given.shape(), normal_axis(call, call.node().get_int("axis", -1), given.rank()));
    with_working_type(given.type(), [&]<class T>(T) {
        const tensor x = input_as<T>(call, 0);
        working_output<T> y(call, 0, given.type(), x.shape());
        if (x.size() == 0) return y.store();
        std::vector<T> norm(s.inner);
        for (std::size_t o = 0; o < s.outer; ++o) {
            const T* from = x.as<T>().data() + o * s.length * s.inner;
            T* to = y.data() + o * s.length * s.inner;
            std::fill(norm.begin(), norm.end(), T{0});
            for (std::size_t k = 0; k < s.length; ++k)
                for (std::size_t i = 0; i < s.inner; ++i) {
                    const T v = from[k * s.inner + i];
                    norm[i] += p == 1 ? std::fabs(v) : v * v;
                }
            for (T& n : norm) n = p == 1 ? n : std::sqrt(n);
            for (std::size_t k = 0; k < s.length; ++k)
                for (std::size_t i = 0; i < s.inner; ++i) to[k * s.inner + i] = norm[i] == 0 ? T{0} : from[k * s.inner + i] / norm[i];
        }
        y.store();
    });
}

/// Computes x / (bias + alpha / size * sum of squares over `size` neighbouring channels) ^ beta.
inline void run_lrn(op_context& call) {
    const tensor& given = call.input(0);
    const node_view& node = call.node();
    const std::int64_t size = node.get_int("size", 0);
    if (size < 1 || given.rank() < 2) call.fail("size must be positive and the input at least of rank 2");
    const float alpha = node.get_float("alpha", 0.0001f), beta = node.get_float("beta", 0.75f), bias = node.get_float("bias", 1.0f);
    const std::int64_t channels = given.dim(1), before = (size - 1) / 2, after = size - 1 - before;
    const std::size_t positions = product(given.shape(), 2, given.rank());
    with_working_type(given.type(), [&]<class T>(T) {
        const tensor x = input_as<T>(call, 0);
        working_output<T> y(call, 0, given.type(), x.shape());
        if (x.size() == 0) return y.store();
        std::vector<T> squares(positions);
        for (std::int64_t n = 0; n < given.dim(0); ++n)
            for (std::int64_t c = 0; c < channels; ++c) {
                std::fill(squares.begin(), squares.end(), T{0});
                for (std::int64_t k = std::max<std::int64_t>(0, c - before); k <= std::min(channels - 1, c + after); ++k) {
                    const T* from = x.as<T>().data() + static_cast<std::size_t>(n * channels + k) * positions;
                    for (std::size_t i = 0; i < positions; ++i) squares[i] += from[i] * from[i];
                }
                const T* from = x.as<T>().data() + static_cast<std::size_t>(n * channels + c) * positions;
                T* to = y.data() + static_cast<std::size_t>(n * channels + c) * positions;
                const T factor = static_cast<T>(alpha) / static_cast<T>(size);
                for (std::size_t i = 0; i < positions; ++i)
                    to[i] = from[i] / std::pow(static_cast<T>(bias) + factor * squares[i], static_cast<T>(beta));
            }
        y.store();
    });
}

/// Returns the shape of the means that MeanVarianceNormalization subtracts.
inline dims mean_variance_shape(const op_context& call, const dims& shape) {
    std::vector<std::int64_t> axes = call.node().get_ints("axes", {0, 2, 3});
    if (call.node().has("across_channels") && call.node().get_int("across_channels", 0) != 0) axes = {0, 1, 2, 3};  // before version 9
    dims kept = shape;
    for (const std::int64_t a : axes) kept[normal_axis(call, a, shape.size())] = 1;
    return kept;
}

/// Computes (x - mean) / (sqrt(E[(x - mean)^2]) + 1e-9) over `axes` (default 0, 2, 3).
inline void run_mean_variance_normalization(op_context& call) {
    const tensor& given = call.input(0);
    const dims kept = mean_variance_shape(call, given.shape());
    with_working_type(given.type(), [&]<class T>(T) {
        const tensor x = input_as<T>(call, 0);
        working_output<T> y(call, 0, given.type(), x.shape());
        if (x.size() == 0) return y.store();
        std::vector<double> sum(element_count(kept), 0.0), square(sum.size(), 0.0);
        const double count = sum.empty() ? 1 : static_cast<double>(x.size()) / static_cast<double>(sum.size());
        const broadcast_walk<1> walk(x.shape(), {&kept});
        const auto each = [&](auto f) {
            walk.each_run([&](std::size_t at, const std::array<std::size_t, 1>& group) {
                for (std::size_t i = 0; i < walk.run; ++i) f(at + i, group[0] + i * walk.step[0]);
            });
        };
        each([&](std::size_t i, std::size_t g) { sum[g] += static_cast<double>(x.as<T>()[i]); });
        for (double& s : sum) s /= count;
        each([&](std::size_t i, std::size_t g) {
            const double d = static_cast<double>(x.as<T>()[i]) - sum[g];
            square[g] += d * d;
        });
        each([&](std::size_t i, std::size_t g) {
            y.values()[i] = static_cast<T>((static_cast<double>(x.as<T>()[i]) - sum[g]) / (std::sqrt(square[g] / count) + 1e-9));
        });
        y.store();
    });
}

inline constexpr op_entry lp_normalization_ops[] = {
    {"", "LpNormalization", 1, run_lp_normalization, nullptr, {follow_along_attribute}},
    {"", "LRN", 1, run_lrn, nullptr, {follow_normalization_of_channels}},
    {"", "MeanVarianceNormalization", 1, run_mean_variance_normalization, nullptr, {follow_mean_variance}},
};

}  // namespace qk::graph::ops
