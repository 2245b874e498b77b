// SPDX-License-Identifier: Apache-2.0
// Implements BatchNormalization: y = (x - mean) / sqrt(variance + epsilon) * scale + bias, per channel. With training_mode mean and
// variance are those of the batch.
#pragma once

#include <cmath>
#include <vector>

#include "graph/ops/dispatch.hpp"
#include "graph/ops/layouts.hpp"
#include "graph/ops/pool.hpp"
#include "graph/ops/walk/rules.hpp"

namespace qk::graph::ops {

template <class T>
void batch_normalization_of(op_context& c) {
    const tensor& x = c.input(0);
    if (x.rank() < 1) c.fail("input of shape " + to_string(x.shape()) + " has no channel axis");
    const std::int64_t n = x.dim(0), channels = x.rank() > 1 ? x.dim(1) : 1;
    const std::int64_t plane = n * channels == 0 ? 0 : static_cast<std::int64_t>(x.size()) / (n * channels);
    // Since opset 15 the parameters may have a type other than x's.
    const auto parameter = [&](std::size_t i) {
        const tensor& t = c.input(i);
        std::vector<double> v(t.size());
        if (v.size() != static_cast<std::size_t>(channels))
            c.fail("input " + std::to_string(i) + " of shape " + to_string(t.shape()) + " for " + std::to_string(channels) + " channels");
        const data_type type = t.type();
        if (!v.empty() && type != data_type::float32 && type != data_type::float64 && !is_narrow_float(type))
            c.fail(std::string("parameters of type ") + name_of(type));
        read_elements(type, t.bytes(), std::span<double>(v));
        return v;
    };
    const auto scale = parameter(1), bias = parameter(2), given_mean = parameter(3), given_variance = parameter(4);
    const double epsilon = static_cast<double>(c.node().get_float("epsilon", 1e-5f)),
                 momentum = static_cast<double>(c.node().get_float("momentum", 0.9f));
    const int version = c.node().version();
    const bool training =
        version >= 14 ? c.node().get_int("training_mode", 0) != 0 : version < 7 && c.node().get_int("is_test", 0) == 0 && c.wants(1);
    tensor& y = c.output(0, x.type(), x.shape());
    const T* xp = x.as<T>().data();
    T* yp = y.as<T>().data();
    std::vector<double> mean = given_mean, variance = given_variance;
    if (training) {
        const double count = static_cast<double>(n * plane);
        for (std::int64_t k = 0; k < channels; ++k) {
            double sum = 0, squares = 0;
            for (std::int64_t b = 0; b < n; ++b)
                for (std::int64_t i = 0; i < plane; ++i) sum += static_cast<double>(xp[(b * channels + k) * plane + i]);
            const double m = sum / count;
            for (std::int64_t b = 0; b < n; ++b)
                for (std::int64_t i = 0; i < plane; ++i) {
                    const double d = static_cast<double>(xp[(b * channels + k) * plane + i]) - m;
                    squares += d * d;
                }
            mean[static_cast<std::size_t>(k)] = m;
            variance[static_cast<std::size_t>(k)] = squares / count;
        }
    }
    std::vector<T> factor, centre, shift;
    for (std::size_t k = 0; k < scale.size(); ++k) {
        factor.push_back(static_cast<T>(scale[k] / std::sqrt(variance[k] + epsilon)));
        centre.push_back(static_cast<T>(mean[k]));
        shift.push_back(static_cast<T>(bias[k]));
    }
    for (std::int64_t b = 0; b < n; ++b) {
        const T* in = xp + b * channels * plane;
        T* out = yp + b * channels * plane;
        if (plane == 1) {
            for (std::size_t k = 0; k < factor.size(); ++k) out[k] = (in[k] - centre[k]) * factor[k] + shift[k];
            continue;
        }
        for (std::size_t k = 0; k < factor.size(); ++k, in += plane, out += plane)
            for (std::int64_t i = 0; i < plane; ++i) out[i] = (in[i] - centre[k]) * factor[k] + shift[k];
    }
    if (!training) return;
    for (std::size_t o = 1; o <= 2 && c.wants(o); ++o) {  // running mean and variance
        const tensor& old = c.input(o + 2);
        tensor running = c.scratch(data_type::float32, old.shape());
        for (std::size_t k = 0; k < scale.size(); ++k)
            running.as<float>()[k] =
                static_cast<float>((o == 1 ? given_mean : given_variance)[k] * momentum + (o == 1 ? mean : variance)[k] * (1 - momentum));
        if (old.type() == data_type::float32 || is_narrow_float(x.type())) {
            c.set_output(o, running);
        } else {
            tensor& wide = c.output(o, data_type::float64, old.shape());
            for (std::size_t k = 0; k < scale.size(); ++k) wide.as<double>()[k] = static_cast<double>(running.as<float>()[k]);
        }
    }
}

// clang-format off
inline constexpr op_entry batch_normalization_ops[] = {
    {"", "BatchNormalization", 1, floating_only<batch_normalization_of<float>, batch_normalization_of<double>>, nullptr,
     {follow_normalization_of_channels}, {.traits = of_pictures | channels_second, .layout = normalization_layout}},
};
// clang-format on

}  // namespace qk::graph::ops
