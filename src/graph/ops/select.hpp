// SPDX-License-Identifier: Apache-2.0
// Implements TopK, Unique and NonZero, whose order or size depends on the values.
#pragma once

#include <algorithm>
#include <numeric>

#include "graph/ops/dispatch.hpp"
#include "graph/ops/types.hpp"
#include "graph/ops/walk/rules.hpp"

namespace qk::graph::ops {

/// Returns the k largest (or smallest) elements along an axis and their indices. Ties are ordered by index; NaN is the largest.
inline void top_k(op_context& call) {
    const tensor& x = call.input(0);
    const std::size_t axis = normal_axis(call, call.node().get_int("axis", -1), x.rank());
    const std::int64_t k = call.node().version() < 10 ? call.node().get_int("k", 0) : scalar_value<std::int64_t>(call, call.input(1));
    if (k < 0 || k > x.dim(axis)) call.fail("k = " + std::to_string(k) + " for an axis of length " + std::to_string(x.dim(axis)));
    const bool largest = call.node().get_int("largest", 1) != 0;
    const axis_split s = split_at(x.shape(), axis);
    dims shape = x.shape();
    shape[axis] = k;
    tensor& values = call.output(0, x.type(), shape);
    tensor& indices = call.output(1, data_type::int64, shape);
    const tensor values_kept = values, indices_kept = indices;  // unwanted outputs share one tensor: keep both buffers
    if (values_kept.size() == 0) return;
    const auto n = static_cast<std::size_t>(k);
    std::vector<std::size_t> order(s.length);
    dispatch(call, x.type(), number_types, [&]<class T>(type_tag<T>) {
        T* value_out = reinterpret_cast<T*>(values_kept.buffer().get());
        auto* index_out = reinterpret_cast<std::int64_t*>(indices_kept.buffer().get());
        for (std::size_t o = 0; o < s.outer; ++o)
            for (std::size_t j = 0; j < s.inner; ++j) {
                const T* from = x.as<T>().data() + o * s.length * s.inner + j;
                const auto before = [&](std::size_t a, std::size_t b) {
                    const T va = from[a * s.inner], vb = from[b * s.inner];
                    const bool na = va != va, nb = vb != vb;
                    if (na != nb) return na == largest;
                    if (na || va == vb) return a < b;
                    return largest ? va > vb : va < vb;
                };
                std::iota(order.begin(), order.end(), std::size_t{0});
                std::partial_sort(order.begin(), order.begin() + k, order.end(), before);
                for (std::size_t i = 0; i < n; ++i) {
                    value_out[(o * n + i) * s.inner + j] = from[order[i] * s.inner];
                    index_out[(o * n + i) * s.inner + j] = static_cast<std::int64_t>(order[i]);
                }
            }
    });
}

/// Returns the distinct elements, or the distinct slices along an axis, sorted (lexicographically) or by first occurrence.
inline void unique(op_context& call) {
    tensor x = call.input(0);
    const bool flat = !call.node().has("axis"), sorted = call.node().get_int("sorted", 1) != 0;
    if (flat) x = x.reshaped({static_cast<std::int64_t>(x.size())});
    const std::size_t axis = flat ? 0 : normal_axis(call, call.node().get_int("axis", 0), x.rank());
    const axis_split s = split_at(x.shape(), axis);
    const std::size_t slice = s.outer * s.inner;
    expect_room(call, {static_cast<std::int64_t>(s.length), 4}, data_type::int64);
    std::vector<std::size_t> first, group(s.length), count;  // first occurrence and size of each group; group of each slice
    dispatch(call, x.type(), element_types, [&]<class T>(type_tag<T>) {
        const auto from = x.as<T>();
        const auto element = [&](std::size_t at, std::size_t e) { return from[(e / s.inner * s.length + at) * s.inner + e % s.inner]; };
        const auto compare = [&](std::size_t a, std::size_t b) {
            for (std::size_t e = 0; e < slice; ++e)
                if (element(a, e) != element(b, e)) {
                    const T va = element(a, e), vb = element(b, e);
                    if (va != va || vb != vb) {
                        if (va == va) return -1;
                        if (vb == vb) return 1;
                        continue;
                    }  // NaN sorts last; all NaN are equal
                    return va < vb ? -1 : 1;
                }
            return 0;
        };
        std::vector<std::size_t> order(s.length);
        std::iota(order.begin(), order.end(), std::size_t{0});
        std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return compare(a, b) < 0; });
        for (std::size_t i = 0; i < order.size(); ++i) {
            if (i == 0 || compare(order[i - 1], order[i]) != 0) {
                first.push_back(order[i]);
                count.push_back(0);
            }
            group[order[i]] = first.size() - 1;
            ++count.back();
        }
    });
    std::vector<std::size_t> rank(first.size()), place(first.size());  // group of each output position, and its inverse
    std::iota(rank.begin(), rank.end(), std::size_t{0});
    if (!sorted) std::sort(rank.begin(), rank.end(), [&](std::size_t a, std::size_t b) { return first[a] < first[b]; });
    for (std::size_t i = 0; i < rank.size(); ++i) place[rank[i]] = i;

    dims shape = x.shape();
    shape[axis] = static_cast<std::int64_t>(first.size());
    tensor& y = call.output(0, x.type(), shape);
    const std::size_t bytes = s.inner * size_of(x.type());
    for (std::size_t o = 0; bytes != 0 && o < s.outer; ++o)
        for (std::size_t i = 0; i < rank.size(); ++i)
            std::memcpy(y.bytes() + (o * rank.size() + i) * bytes, x.bytes() + (o * s.length + first[rank[i]]) * bytes, bytes);
    const auto report = [&](std::size_t out, std::size_t n, auto value) {
        if (!call.wants(out)) return;
        const auto to = call.output(out, data_type::int64, {static_cast<std::int64_t>(n)}).template as<std::int64_t>();
        for (std::size_t i = 0; i < n; ++i) to[i] = static_cast<std::int64_t>(value(i));
    };
    report(1, rank.size(), [&](std::size_t i) { return first[rank[i]]; });
    report(2, group.size(), [&](std::size_t i) { return place[group[i]]; });
    report(3, rank.size(), [&](std::size_t i) { return count[rank[i]]; });
}

/// Returns the coordinates of the non-zero elements in row-major order, one row per axis.
inline void non_zero(op_context& call) {
    const tensor x = widened(call, call.input(0));
    std::vector<std::size_t> found;
    dispatch(call, x.type(), element_types, [&]<class T>(type_tag<T>) {
        for (std::size_t i = 0; i < x.size(); ++i)
            if (x.as<T>()[i] != T{}) found.push_back(i);
    });
    tensor& y = call.output(0, data_type::int64, {static_cast<std::int64_t>(x.rank()), static_cast<std::int64_t>(found.size())});
    const auto stride = row_major_strides(x.shape());
    for (std::size_t a = 0; a < x.rank(); ++a)
        for (std::size_t i = 0; i < found.size(); ++i)
            y.as<std::int64_t>()[a * found.size() + i] =
                static_cast<std::int64_t>(found[i] / stride[a] % static_cast<std::size_t>(x.dim(a)));
}

// clang-format off
inline constexpr op_entry select_ops[] = {
    {"", "TopK", 1, through_float32<top_k>, nullptr, {follow_top_k}, {.places = all_but_first, .types = gives_beside<data_type::int64>}},
    {"", "Unique", 11, through_float32<unique>, nullptr,
     {follow_all_samples}, {.traits = moves_channels, .types = gives_beside<data_type::int64>}},
    {"", "NonZero", 9, non_zero, nullptr, {follow_all_samples}, {.traits = moves_channels, .types = gives_int64}},
};
// clang-format on

}  // namespace qk::graph::ops
