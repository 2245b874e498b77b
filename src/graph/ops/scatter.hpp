// SPDX-License-Identifier: Apache-2.0
// Implements ScatterElements (and Scatter), ScatterND, TensorScatter: copies whose elements are replaced or combined in index order.
#pragma once

#include "graph/ops/gather.hpp"
#include "graph/ops/variadic.hpp"
#include "graph/ops/walk/rules.hpp"

namespace qk::graph::ops {

/// Combines the updates, in order, with runs of `length` elements of y that start at `places`, as attribute `reduction` says.
inline void combine_updates(const op_context& call, const std::vector<std::size_t>& places, std::size_t length, const tensor& updates,
                            tensor& y) {
    const std::string how = call.node().get_string("reduction", "none");
    if (how == "none") {
        const std::size_t bytes = length * size_of(y.type());
        for (std::size_t k = 0; k < places.size(); ++k)
            std::memcpy(y.bytes() + places[k] * size_of(y.type()), updates.bytes() + k * bytes, bytes);
        return;
    }
    dispatch(call, y.type(), element_types, [&]<class T>(type_tag<T>) {
        const auto each = [&](auto combine) {
            const T* update = updates.as<T>().data();
            for (const std::size_t place : places)
                for (T& to : y.as<T>().subspan(place, length)) to = combine(to, *update++);
        };
        if constexpr (std::is_same_v<T, bool>) {
            if (how == "add" || how == "max") return each([](bool a, bool b) { return a || b; });
            if (how == "mul" || how == "min") return each([](bool a, bool b) { return a && b; });
        } else {
            if (how == "add") return each(functions::add{});
            if (how == "mul") return each(functions::multiply{});
            if (how == "max") return each(functions::larger{});
            if (how == "min") return each(functions::smaller{});
        }
        call.fail("unknown reduction '" + how + "'");
    });
}

/// Makes output 0 a copy of x.
inline tensor& copied(op_context& call, const tensor& x) {
    tensor& y = call.output(0, x.type(), x.shape());
    if (x.size() != 0) std::memcpy(y.bytes(), x.bytes(), x.size_bytes());
    return y;
}

inline void scatter_elements(op_context& call) {
    const tensor &x = call.input(0), &indices = call.input(1), &updates = call.input(2);
    if (updates.shape() != indices.shape() || updates.type() != x.type()) call.fail("updates need the indices' shape and the data's type");
    tensor& y = copied(call, x);
    combine_updates(call, element_places(call, x, indices), 1, updates, y);
}

inline void scatter_nd(op_context& call) {
    const tensor &x = call.input(0), &indices = call.input(1), &updates = call.input(2);
    if (updates.type() != x.type()) call.fail("updates and data differ in type");
    tensor& y = copied(call, x);
    const slice_tuples slices = find_slices(call, x, indices, 0);
    if (updates.size() != slices.count * slices.inner)
        call.fail("updates of shape " + to_string(updates.shape()) + " do not fit indices of shape " + to_string(indices.shape()));
    combine_updates(call, slice_places(call, x, indices, 0), slices.inner, updates, y);
}

/// Copies a cache and writes `update` into it along `axis`, from write_indices[batch] on. In circular mode positions wrap.
inline void tensor_scatter(op_context& call) {
    const tensor &x = call.input(0), &update = call.input(1);
    const std::size_t axis = normal_axis(call, call.node().get_int("axis", -2), x.rank());
    if (axis == 0) call.fail("the axis is the batch's");
    if (update.rank() != x.rank() || update.type() != x.type()) call.fail("update and cache differ in rank or type");
    for (std::size_t a = 0; a < x.rank(); ++a)
        if (a == axis ? update.dim(a) > x.dim(a) : update.dim(a) != x.dim(a))
            call.fail("update of shape " + to_string(update.shape()) + " does not fit " + to_string(x.shape()));
    const bool circular = call.node().get_string("mode", "linear") == "circular";
    std::vector<std::int64_t> start;
    if (call.has_input(2)) start = int_values(call, call.input(2));
    if (call.has_input(2) && start.size() != static_cast<std::size_t>(x.dim(0))) call.fail("write_indices need one entry for each sample");
    tensor& y = copied(call, x);
    if (update.size() == 0) return;
    start.resize(static_cast<std::size_t>(x.dim(0)), 0);
    const axis_split to = split_at(x.shape(), axis), from = split_at(update.shape(), axis);
    const std::size_t bytes = to.inner * size_of(x.type()), per_sample = to.outer / start.size();
    const auto length = static_cast<std::int64_t>(to.length);
    for (std::size_t o = 0; o < to.outer; ++o)
        for (std::size_t i = 0; i < from.length; ++i) {
            const std::int64_t first = start[o / per_sample];
            if (!circular && (first < 0 || first >= length)) call.fail("position " + std::to_string(first) + " is outside the cache");
            std::int64_t at = first % length + static_cast<std::int64_t>(i);
            if (circular) at = (at % length + length) % length;
            if (at >= length) call.fail("position " + std::to_string(at) + " is outside the cache");
            std::memcpy(y.bytes() + (o * to.length + static_cast<std::size_t>(at)) * bytes, update.bytes() + (o * from.length + i) * bytes,
                        bytes);
        }
}

inline constexpr op_entry scatter_ops[] = {
    {"", "Scatter", 9, through_float32<scatter_elements>, nullptr, {follow_scatter_elements}, {.values = ~2u}},
    {"", "ScatterElements", 11, through_float32<scatter_elements>, nullptr, {follow_scatter_elements}, {.values = ~2u}},
    {"", "ScatterND", 11, through_float32<scatter_nd>, nullptr, {follow_scatter_nd, 0, 2}, {.values = ~2u}},
    {"", "TensorScatter", 24, tensor_scatter, nullptr, {follow_cache_write}},
};

}  // namespace qk::graph::ops
