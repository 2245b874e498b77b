// SPDX-License-Identifier: Apache-2.0
// Implements Gather, GatherElements, GatherND and Compress. Indices may count from the end; those out of range are an error.
#pragma once

#include <cstring>

#include "graph/ops/dispatch.hpp"
#include "graph/ops/walk/rules.hpp"

namespace qk::graph::ops {

/// Maps an index in [-n, n) to [0, n).
inline std::size_t normal_index(const op_context& call, std::int64_t index, std::int64_t n) {
    if (index < -n || index >= n) call.fail("index " + std::to_string(index) + " is outside a length of " + std::to_string(n));
    return static_cast<std::size_t>(index < 0 ? index + n : index);
}

inline void gather(op_context& call) {
    const tensor &x = call.input(0), &indices = call.input(1);
    const std::size_t axis = normal_axis(call, call.node().get_int("axis", 0), x.rank());
    const axis_split s = split_at(x.shape(), axis);
    std::vector<std::size_t> at;
    for (const std::int64_t i : int_values(call, indices)) at.push_back(normal_index(call, i, x.dim(axis)));
    dims shape(x.shape().begin(), x.shape().begin() + static_cast<std::ptrdiff_t>(axis));
    shape.insert(shape.end(), indices.shape().begin(), indices.shape().end());
    shape.insert(shape.end(), x.shape().begin() + static_cast<std::ptrdiff_t>(axis) + 1, x.shape().end());
    tensor& y = call.output(0, x.type(), shape);
    if (y.size() == 0) return;
    if (s.inner == 1)
        dispatch_width(call, x.type(), [&]<class T>(type_tag<T>) {
            const T* from = x.as<T>().data();
            T* to = y.as<T>().data();
            for (std::size_t o = 0; o < s.outer; ++o, from += s.length)
                for (const std::size_t i : at) *to++ = from[i];
        });
    else {
        const std::size_t bytes = s.inner * size_of(x.type());
        std::byte* to = y.bytes();
        for (std::size_t o = 0; o < s.outer; ++o)
            for (const std::size_t i : at) std::memcpy(to, x.bytes() + (o * s.length + i) * bytes, bytes), to += bytes;
    }
}

/// Returns, for each element of `indices`, the offset of its position in `data` with the axis coordinate replaced by the index.
inline std::vector<std::size_t> element_places(const op_context& call, const tensor& data, const tensor& indices) {
    if (indices.rank() != data.rank()) call.fail("data and indices differ in rank");
    const std::size_t axis = normal_axis(call, call.node().get_int("axis", 0), data.rank());
    for (std::size_t a = 0; a < data.rank(); ++a)
        if (a != axis && indices.dim(a) > data.dim(a))
            call.fail("indices of shape " + to_string(indices.shape()) + " do not fit into " + to_string(data.shape()));
    const auto values = int_values(call, indices);
    const auto stride = row_major_strides(data.shape());
    std::vector<std::size_t> at(data.rank());
    std::vector<std::size_t> places(values.size());
    std::size_t offset = 0;  // of the position, without its coordinate on the axis
    for (std::size_t i = 0; i < values.size(); ++i) {
        places[i] = offset + normal_index(call, values[i], data.dim(axis)) * stride[axis];
        for (std::size_t a = data.rank(); a-- > 0;) {
            if (a != axis) offset += stride[a];
            if (++at[a] < static_cast<std::size_t>(indices.dim(a))) break;
            if (a != axis) offset -= at[a] * stride[a];
            at[a] = 0;
        }
    }
    return places;
}

inline void gather_elements(op_context& call) {
    const tensor &x = call.input(0), &indices = call.input(1);
    tensor& y = call.output(0, x.type(), indices.shape());
    const std::vector<std::size_t> places = element_places(call, x, indices);
    dispatch_width(call, x.type(), [&]<class T>(type_tag<T>) {
        const T* from = x.as<T>().data();
        T* to = y.as<T>().data();
        for (std::size_t i = 0; i < places.size(); ++i) to[i] = from[places[i]];
    });
}

/// How index tuples (the last axis of `indices`) select slices of `data`. The first `batch` axes of both correspond.
struct slice_tuples {
    std::size_t count, depth, inner;  ///< tuples, indices in each, elements of a slice
};
inline slice_tuples find_slices(const op_context& call, const tensor& data, const tensor& indices, std::size_t batch) {
    if (indices.rank() == 0 || indices.rank() <= batch) call.fail("indices need a rank above batch_dims");
    const auto depth = static_cast<std::size_t>(indices.shape().back());
    if (batch + depth > data.rank())
        call.fail("indices of shape " + to_string(indices.shape()) + " reach beyond data of shape " + to_string(data.shape()));
    for (std::size_t a = 0; a < batch; ++a)
        if (indices.dim(a) != data.dim(a)) call.fail("the batch dimensions of data and indices differ");
    return {product(indices.shape(), 0, indices.rank() - 1), depth, product(data.shape(), batch + depth, data.rank())};
}

/// Returns where the slice of each index tuple begins in `data`. The result is empty if slices have no elements.
inline std::vector<std::size_t> slice_places(const op_context& call, const tensor& data, const tensor& indices, std::size_t batch) {
    const auto [tuples, depth, inner] = find_slices(call, data, indices, batch);
    if (inner == 0) return {};
    const auto values = int_values(call, indices);
    const auto stride = row_major_strides(data.shape());
    const std::size_t batches = product(data.shape(), 0, batch);
    const std::size_t per_batch = batches == 0 ? 0 : tuples / batches, batch_size = product(data.shape(), batch, data.rank());
    std::vector<std::size_t> places(tuples);
    for (std::size_t k = 0; k < tuples; ++k) {
        std::size_t& offset = places[k];
        offset = per_batch == 0 ? 0 : k / per_batch * batch_size;
        for (std::size_t d = 0; d < depth; ++d)
            offset += normal_index(call, values[k * depth + d], data.dim(batch + d)) * stride[batch + d];
    }
    return places;
}

inline void gather_nd(op_context& call) {
    const tensor &x = call.input(0), &indices = call.input(1);
    const std::int64_t batch_dims = call.node().get_int("batch_dims", 0);
    if (batch_dims < 0 || indices.rank() == 0) call.fail("batch_dims is negative or indices have no dimension");
    const auto batch = static_cast<std::size_t>(batch_dims);
    const std::size_t bytes = find_slices(call, x, indices, batch).inner * size_of(x.type());
    dims shape(indices.shape().begin(), indices.shape().end() - 1);
    shape.insert(shape.end(), x.shape().begin() + static_cast<std::ptrdiff_t>(batch) + indices.shape().back(), x.shape().end());
    tensor& y = call.output(0, x.type(), shape);
    std::byte* to = y.bytes();
    for (const std::size_t place : slice_places(call, x, indices, batch)) {
        std::memcpy(to, x.bytes() + place * size_of(x.type()), bytes);
        to += bytes;
    }
}

/// Keeps the slices where the condition is true. The condition may be shorter than the axis.
inline void compress(op_context& call) {
    tensor x = call.input(0);
    std::int64_t axis = 0;
    if (call.node().has("axis")) axis = call.node().get_int("axis", 0);
    else x = x.reshaped({static_cast<std::int64_t>(x.size())});
    const std::size_t a = normal_axis(call, axis, x.rank());
    const auto condition = int_values(call, call.input(1));
    std::vector<std::size_t> chosen;
    for (std::size_t i = 0; i < condition.size() && i < static_cast<std::size_t>(x.dim(a)); ++i)
        if (condition[i]) chosen.push_back(i);
    dims shape = x.shape();
    shape[a] = static_cast<std::int64_t>(chosen.size());
    tensor& y = call.output(0, x.type(), shape);
    const axis_split s = split_at(x.shape(), a);
    const std::size_t bytes = s.inner * size_of(x.type());
    std::byte* to = y.bytes();
    for (std::size_t o = 0; bytes != 0 && o < s.outer; ++o)
        for (const std::size_t i : chosen) std::memcpy(to, x.bytes() + (o * s.length + i) * bytes, bytes), to += bytes;
}

// clang-format off
inline constexpr op_entry gather_ops[] = {
    {"", "Gather", 1, gather, nullptr, {follow_gather, 0, 2}, {mover | exact | reckons | moves_channels | chooses | picks_rows, all_but_first}},
    {"", "GatherElements", 11, gather_elements, nullptr, {follow_gather_elements}, {0, all_but_first}},
    {"", "GatherND", 11, gather_nd, nullptr,
     {follow_gather_nd, 0, 2}, {.traits = moves_channels | chooses, .places = all_but_first, .values = first_input}},
    {"", "Compress", 9, compress, nullptr, {follow_compress}, {moves_channels}},
};
// clang-format on

}  // namespace qk::graph::ops
