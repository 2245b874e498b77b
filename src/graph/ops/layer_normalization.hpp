// SPDX-License-Identifier: Apache-2.0
// Implements LayerNormalization, RMSNormalization and com.microsoft's Simplified and Skip variants: statistics over the last axes.
#pragma once

#include <cmath>

#include "graph/ops/body.hpp"
#include "graph/ops/broadcast.hpp"
#include "graph/ops/op.hpp"
#include "graph/ops/sums.hpp"
#include "graph/ops/types.hpp"
#include "graph/ops/walk/rules.hpp"
#include "graph/ops/working_type.hpp"

namespace qk::graph::ops {

namespace detail {

/// Returns `value` broadcast to `shape`, or `value` itself when it has as many elements.
template <class T>
tensor stretched(op_context& call, const tensor& value, const dims& shape) {
    if (value.size() == element_count(shape)) return value;
    tensor like(type_of<T>, shape, value.buffer());  // only its shape is read
    const tensor* both[] = {&value, &like};
    if (broadcast_shape(call, both) != shape)
        call.fail("an input of shape " + to_string(value.shape()) + " does not broadcast to " + to_string(shape));
    tensor out = call.scratch(type_of<T>, shape);
    const broadcast_walk<1> walk(shape, {&value.shape()});
    walk.each_run([&](std::size_t to, const std::array<std::size_t, 1>& at) {
        for (std::size_t i = 0; i < walk.run; ++i) out.as<T>()[to + i] = value.as<T>()[at[0] + i * walk.step[0]];
    });
    return out;
}

/// Scale or bias of a normalization over shape[axis..]: one value for each element of a row, or (`whole`) of the tensor.
template <class T>
struct row_parameter {
    tensor values;
    bool whole = false;
    const T* row(std::size_t i, std::size_t length) const { return values.as<T>().data() + (whole ? i * length : 0); }

    row_parameter(op_context& call, const tensor& given, const dims& shape, std::size_t axis) {
        if (given.empty()) return;
        const dims inner(shape.begin() + static_cast<std::ptrdiff_t>(axis), shape.end());
        whole = given.rank() > inner.size() && given.size() > 1;
        for (std::size_t i = 0; whole && i + inner.size() < given.rank(); ++i) {
            if (given.dim(i) != 1) break;
            if (i + inner.size() + 1 == given.rank()) whole = false;  // leading ones only
        }
        const tensor shaped = whole || given.rank() <= inner.size()
                                  ? given
                                  : given.reshaped({given.shape().end() - static_cast<std::ptrdiff_t>(inner.size()), given.shape().end()});
        values = stretched<T>(call, shaped, whole ? shape : inner);
    }
    explicit operator bool() const { return !values.empty(); }
};

}  // namespace detail

/// Normalizes one row: (x - mean) / sqrt(variance + epsilon) * scale + shift, where scale and shift may be null. With `centered` false the
/// mean is taken as 0. Returns the mean and the inverse deviation.
template <class T>
std::pair<T, T> normalize_row(const T* x, T* y, std::size_t n, T epsilon, bool centered, const T* scale, const T* shift) {
    moments<T> m{0, 0};
    if (centered) m = moments_of(x, n);
    else m.variance = row_sum(x, n, [](auto v) { return v * v; }) / static_cast<T>(n == 0 ? 1 : n);
    const T mean = m.mean, inverse = 1 / std::sqrt(m.variance + epsilon);
    if (scale != nullptr && shift != nullptr)
        for (std::size_t i = 0; i < n; ++i) y[i] = (x[i] - mean) * inverse * scale[i] + shift[i];
    else if (scale != nullptr)
        for (std::size_t i = 0; i < n; ++i) y[i] = (x[i] - mean) * inverse * scale[i];
    else
        for (std::size_t i = 0; i < n; ++i) y[i] = (x[i] - mean) * inverse + (shift != nullptr ? shift[i] : 0);
    return {mean, inverse};
}

/// Computes Y = (X - mean) / sqrt(variance + epsilon) * Scale + B over the axes from `axis` on; the outputs are Y, Mean and InvStdDev. With
/// `centered` false the mean is taken as 0 (RMS).
inline void normalize_rows(op_context& call, const tensor& given, std::size_t axis, const tensor& scale, const tensor& bias, float epsilon,
                           bool centered, std::size_t mean_output, std::size_t deviation_output) {
    with_working_type(given.type(), [&]<class T>(T) {
        const tensor x = convert_to<T>(call, given);
        const std::size_t rows = product(x.shape(), 0, axis), length = product(x.shape(), axis, x.rank());
        const detail::row_parameter<T> factors(call, scale.empty() ? scale : convert_to<T>(call, scale), x.shape(), axis);
        const detail::row_parameter<T> shifts(call, bias.empty() ? bias : convert_to<T>(call, bias), x.shape(), axis);
        dims statistic = x.shape();
        std::fill(statistic.begin() + static_cast<std::ptrdiff_t>(axis), statistic.end(), 1);
        const data_type kind = type_of<T>;
        const bool wants_mean = call.wants(mean_output), wants_deviation = call.wants(deviation_output);
        tensor means = wants_mean ? call.output(mean_output, kind, statistic) : tensor{};
        tensor deviations = wants_deviation ? call.output(deviation_output, kind, statistic) : tensor{};
        working_output<T> y(call, 0, given.type(), x.shape());
        const auto one = [&](std::size_t r) {
            const T* from = x.as<T>().data() + r * length;
            T* to = y.data() + r * length;
            const auto [mean, inverse] =
                normalize_row(from, to, length, static_cast<T>(epsilon), centered, factors ? factors.row(r, length) : nullptr,
                              shifts ? shifts.row(r, length) : nullptr);
            if (wants_mean) means.as<T>()[r] = mean;
            if (wants_deviation) deviations.as<T>()[r] = inverse;
        };
        for_each_range(rows, 4 * length, [&](std::size_t first, std::size_t last) {
            for (std::size_t r = first; r < last; ++r) one(r);
        });
        y.store();
    });
}

namespace detail {

/// Calls normalize_rows on inputs X and Scale with the node's axis and epsilon.
inline void normalize_from_axis(op_context& call, const tensor& bias, bool centered, std::size_t mean_output,
                                std::size_t deviation_output) {
    const tensor& x = call.input(0);
    const std::size_t axis = normal_axis(call, call.node().get_int("axis", -1), x.rank());
    normalize_rows(call, x, axis, call.input(1), bias, call.node().get_float("epsilon", 1e-5f), centered, mean_output, deviation_output);
}

}  // namespace detail

inline void run_layer_normalization(op_context& call) { detail::normalize_from_axis(call, optional_input(call, 2), true, 1, 2); }
inline void run_rms_normalization(op_context& call) { detail::normalize_from_axis(call, {}, false, 99, 99); }
/// Implements com.microsoft's SimplifiedLayerNormalization: RMS, with the inverse deviation as second output.
inline void run_simplified_layer_normalization(op_context& call) { detail::normalize_from_axis(call, {}, false, 99, 1); }

namespace detail {

/// Normalizes input + skip (+ bias) over the last axis. Inputs: input, skip, gamma, [beta,] bias. Output 3 is the sum.
inline void skip_layer_normalization(op_context& call, bool simplified) {
    const tensor& x = call.input(0);
    if (x.rank() == 0) call.fail("the input is a scalar: it has no axis to normalize over");
    const tensor sum_bias = optional_input(call, simplified ? 3 : 4);
    tensor sum = call.scratch(data_type::float32, x.shape());
    const tensor a = input_as<float>(call, 0), b = input_as<float>(call, 1);
    const tensor skip = stretched<float>(call, b, x.shape());
    const auto to = sum.as<float>();
    const auto length = static_cast<std::size_t>(x.shape().back());
    for (std::size_t i = 0; i < to.size(); ++i) to[i] = a.as<float>()[i] + skip.as<float>()[i];
    if (!sum_bias.empty()) {
        const tensor c = convert_to<float>(call, sum_bias);
        if (c.size() != length) call.fail("the bias does not fit the last axis");
        for (std::size_t i = 0; i < to.size(); ++i) to[i] += c.as<float>()[i % length];
    }
    normalize_rows(call, sum, x.rank() - 1, call.input(2), simplified ? tensor{} : optional_input(call, 3),
                   call.node().get_float("epsilon", 1e-5f), !simplified, 1, 2);
    call.set_output(3, sum);
}

}  // namespace detail

inline void run_skip_layer_normalization(op_context& call) { detail::skip_layer_normalization(call, false); }
inline void run_skip_simplified_layer_normalization(op_context& call) { detail::skip_layer_normalization(call, true); }

template <bool Simplified>
void skip_layer_normalization_body(op_body& b) {
    op_body::value sum = b.add("Add", {b.input(0), b.input(1)});
    if (const op_body::value bias = b.input(Simplified ? 3 : 4); bias >= 0) sum = b.add("Add", {sum, bias});
    const std::pair epsilon("epsilon", b.call().get_float("epsilon", 1e-5f));
    if (Simplified) b.give(0, b.add("RMSNormalization", {sum, b.input(2)}, epsilon));
    else b.give(0, b.add("LayerNormalization", {sum, b.input(2), b.input(3)}, epsilon));
    b.give(3, sum);
}

// clang-format off
inline constexpr op_entry layer_normalization_ops[] = {
    {"", "LayerNormalization", 1, run_layer_normalization, nullptr, {follow_layer_normalization}, {.types = gives_statistics_beside}},
    {"", "RMSNormalization", 23, run_rms_normalization, nullptr, {follow_layer_normalization}, {.types = gives_statistics_beside}},
    {"", "SimplifiedLayerNormalization", 1, run_simplified_layer_normalization, nullptr,
     {follow_layer_normalization}, {.types = gives_statistics_beside}},
    {"com.microsoft", "LayerNormalization", 1, run_layer_normalization, nullptr,
     {follow_layer_normalization}, {.types = gives_statistics_beside}},
    {"com.microsoft", "SimplifiedLayerNormalization", 1, run_simplified_layer_normalization, nullptr,
     {follow_layer_normalization}, {.types = gives_statistics_beside}},
    {"com.microsoft", "SkipLayerNormalization", 1, through_float32<run_skip_layer_normalization>, nullptr,
     {follow_skip_normalization}, {}, skip_layer_normalization_body<false>},
    {"com.microsoft", "SkipSimplifiedLayerNormalization", 1, through_float32<run_skip_simplified_layer_normalization>, nullptr,
     {follow_skip_normalization}, {}, skip_layer_normalization_body<true>},
};
// clang-format on

}  // namespace qk::graph::ops
