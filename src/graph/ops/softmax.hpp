// SPDX-License-Identifier: Apache-2.0
// Implements Softmax, LogSoftmax and Hardmax: on one axis, or before opset 13 on the input flattened to two dimensions at `axis`.
#pragma once

#include <cmath>

#include "graph/base/inner_loop.hpp"
#include "graph/ops/dispatch.hpp"
#include "graph/ops/vector_math.hpp"
#include "graph/ops/walk/rules.hpp"

namespace qk::graph::ops {

/// Computes one row in a fixed order: shift by the maximum, exponentials, their sum, then the quotients or the difference of logarithms.
inline void softmax_row(const float* x, float* y, std::size_t n, bool logarithm) {
    const float top = vector_max(x, n);
    map_vectors(x, y, n, [=](vfloat v) { return vexp(v - top); });
    if (logarithm) {
        const float shift = top + std::log(vector_sum(y, n));
        for (std::size_t i = 0; i < n; ++i) y[i] = x[i] - shift;
    } else {
        const float share = 1.0f / vector_sum(y, n);
        for (std::size_t i = 0; i < n; ++i) y[i] *= share;
    }
}

/// Computes rows shorter than two vectors: the exponentials of all rows are computed in one pass.
inline void softmax_short_rows(const float* x, float* y, std::size_t rows, std::size_t n) {
    for (std::size_t r = 0; r < rows; ++r) {
        const float* from = x + r * n;
        float top = from[0];
        for (std::size_t i = 1; i < n; ++i) top = vector_larger{}(top, from[i]);
        for (std::size_t i = 0; i < n; ++i) y[r * n + i] = from[i] - top;
    }
    map_vectors(y, y, rows * n, [](vfloat v) { return vexp(v); });
    for (std::size_t r = 0; r < rows; ++r) {
        float* to = y + r * n;
        float total = 0;
        for (std::size_t i = 0; i < n; ++i) total += to[i];
        for (std::size_t i = 0; i < n; ++i) to[i] /= total;
    }
}

/// Computes softmax along an axis whose neighbours are `inner` elements apart, one position after the other.
template <class T>
void softmax_strided(const T* x, T* y, std::size_t n, std::size_t inner, bool logarithm) {
    for (std::size_t j = 0; j < inner; ++j) {
        T top = x[j];
        for (std::size_t i = 1; i < n; ++i) top = x[i * inner + j] > top || x[i * inner + j] != x[i * inner + j] ? x[i * inner + j] : top;
        T total = 0;
        for (std::size_t i = 0; i < n; ++i) total += y[i * inner + j] = std::exp(x[i * inner + j] - top);
        const T shift = top + std::log(total);
        for (std::size_t i = 0; i < n; ++i) y[i * inner + j] = logarithm ? x[i * inner + j] - shift : y[i * inner + j] / total;
    }
}

/// Does the same as softmax_strided for float32, with positions as vector lanes. `tops` and `sums` have room for `inner` elements.
inline void softmax_columns(const float* x, float* y, std::size_t n, std::size_t inner, bool logarithm, float* tops, float* sums) {
    std::copy_n(x, inner, tops);
    for (std::size_t i = 1; i < n; ++i)
        for (std::size_t j = 0; j < inner; ++j) tops[j] = vector_larger{}(tops[j], x[i * inner + j]);
    for (std::size_t i = 0; i < n; ++i) {
        float* to = y + i * inner;
        for (std::size_t j = 0; j < inner; ++j) to[j] = x[i * inner + j] - tops[j];
        map_vectors(to, to, inner, [](vfloat v) { return vexp(v); });
        for (std::size_t j = 0; j < inner; ++j) sums[j] = i == 0 ? to[j] : sums[j] + to[j];
    }
    if (logarithm) {
        map_vectors(sums, sums, inner, [](vfloat v) { return vlog(v); });
        for (std::size_t i = 0; i < n; ++i)
            for (std::size_t j = 0; j < inner; ++j) y[i * inner + j] = x[i * inner + j] - (tops[j] + sums[j]);
    } else {
        for (std::size_t i = 0; i < n; ++i)
            for (std::size_t j = 0; j < inner; ++j) y[i * inner + j] /= sums[j];
    }
}

/// Returns the axis that the node's version means.
inline axis_split softmax_axis(const op_context& call, const tensor& x) {
    if (x.rank() == 0) return {};
    if (call.node().version() >= 13) return split_at(x.shape(), normal_axis(call, call.node().get_int("axis", -1), x.rank()));
    const std::int64_t given = call.node().get_int("axis", 1);
    const std::size_t axis = given == static_cast<std::int64_t>(x.rank()) ? x.rank() : normal_axis(call, given, x.rank());
    return {product(x.shape(), 0, axis), product(x.shape(), axis, x.rank()), 1};
}

template <bool Logarithm>
void softmax(op_context& call) {
    const tensor& x = call.input(0);
    const axis_split s = softmax_axis(call, x);
    tensor& y = call.output(0, x.type(), x.shape());
    if (x.size() == 0) return;
    tensor work = x.type() == data_type::float32 && s.inner > 1 ? call.scratch(data_type::float32, {2, static_cast<std::int64_t>(s.inner)})
                                                                : tensor();
    dispatch(call, x.type(), float_types, [&]<class T>(type_tag<T>) {
        const T* from = x.as<T>().data();
        T* to = y.as<T>().data();
        if constexpr (std::is_same_v<T, float>)
            if (s.inner == 1 && !Logarithm && s.length < 2 * vector_lanes) return softmax_short_rows(from, to, s.outer, s.length);
        if constexpr (std::is_same_v<T, float>)
            if (s.inner == 1)
                return for_each_range(s.outer, 8 * s.length, [&](std::size_t first, std::size_t last) {
                    for (std::size_t o = first; o < last; ++o) softmax_row(from + o * s.length, to + o * s.length, s.length, Logarithm);
                });
        for (std::size_t o = 0; o < s.outer; ++o, from += s.length * s.inner, to += s.length * s.inner) {
            if constexpr (std::is_same_v<T, float>)
                softmax_columns(from, to, s.length, s.inner, Logarithm, work.as<float>().data(), work.as<float>().data() + s.inner);
            else softmax_strided(from, to, s.length, s.inner, Logarithm);
        }
    });
}

/// Writes 1 at the first largest element along the axis, 0 elsewhere.
inline void hardmax(op_context& call) {
    const tensor& x = call.input(0);
    const axis_split s = softmax_axis(call, x);
    tensor& y = call.output(0, x.type(), x.shape());
    dispatch(call, x.type(), float_types, [&]<class T>(type_tag<T>) {
        const auto from = x.as<T>();
        const auto to = y.as<T>();
        std::fill(to.begin(), to.end(), T{0});
        for (std::size_t o = 0; s.length > 0 && o < s.outer; ++o)
            for (std::size_t j = 0; j < s.inner; ++j) {
                const std::size_t base = o * s.length * s.inner + j;
                std::size_t best = base;
                for (std::size_t i = 1; i < s.length; ++i)
                    if (from[base + i * s.inner] > from[best]) best = base + i * s.inner;
                to[best] = T{1};
            }
    });
}

inline constexpr op_entry softmax_ops[] = {
    {"", "Softmax", 1, through_float32<softmax<false>>, nullptr, {follow_softmax}},
    {"", "LogSoftmax", 1, through_float32<softmax<true>>, nullptr, {follow_softmax}},
    {"", "Hardmax", 1, through_float32<hardmax>, nullptr, {follow_softmax}},
};

}  // namespace qk::graph::ops
