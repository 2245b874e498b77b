// SPDX-License-Identifier: Apache-2.0
// ScatterElements (and the older Scatter), ScatterND, TensorScatter: a copy of the data with elements replaced or combined, in index order.
#pragma once

#include "qk/graph/ops/gather.hpp"
#include "qk/graph/ops/variadic.hpp"

namespace qk::graph::ops {

/// Calls f(combine) with what `reduction` says an update does to an element of type T.
template <class T, class F>
void with_reduction(const op_context& call, F&& f) {
    const std::string how = call.node().get_string("reduction", "none");
    if (how == "none") return f([](T, T update) { return update; });
    if constexpr (std::is_same_v<T, bool>) {
        if (how == "add" || how == "max") return f([](bool a, bool b) { return a || b; });
        if (how == "mul" || how == "min") return f([](bool a, bool b) { return a && b; });
    } else {
        if (how == "add") return f(functions::add{});
        if (how == "mul") return f(functions::multiply{});
        if (how == "max") return f(functions::larger{});
        if (how == "min") return f(functions::smaller{});
    }
    call.fail("unknown reduction '" + how + "'");
}

/// A copy of x as output 0.
inline tensor& copied(op_context& call, const tensor& x) {
    tensor& y = call.output(0, x.type(), x.shape());
    if (x.size() != 0) std::memcpy(y.bytes(), x.bytes(), x.size_bytes());
    return y;
}

inline void scatter_elements(op_context& call) {
    const tensor &x = call.input(0), &indices = call.input(1), &updates = call.input(2);
    if (updates.shape() != indices.shape() || updates.type() != x.type()) call.fail("updates need the indices' shape and the data's type");
    tensor& y = copied(call, x);
    dispatch(call, x.type(), element_types, [&]<class T>(type_tag<T>) {
        with_reduction<T>(call, [&](auto combine) {
            each_element_index(call, x, indices,
                               [&](std::size_t i, std::size_t to) { y.as<T>()[to] = combine(y.as<T>()[to], updates.as<T>()[i]); });
        });
    });
}

inline void scatter_nd(op_context& call) {
    const tensor &x = call.input(0), &indices = call.input(1), &updates = call.input(2);
    if (updates.type() != x.type()) call.fail("updates and data differ in type");
    tensor& y = copied(call, x);
    const slice_tuples slices = find_slices(call, x, indices, 0);
    if (updates.size() != slices.count * slices.inner)
        call.fail("updates of shape " + to_string(updates.shape()) + " do not fit indices of shape " + to_string(indices.shape()));
    dispatch(call, x.type(), element_types, [&]<class T>(type_tag<T>) {
        with_reduction<T>(call, [&](auto combine) {
            const T* update = updates.as<T>().data();
            each_slice(call, x, indices, 0, [&](std::size_t, std::size_t offset) {
                for (std::size_t j = 0; j < slices.inner; ++j) {
                    T& place = y.as<T>()[offset + j];
                    place = combine(place, *update++);
                }
            });
        });
    });
}

/// A cache with `update` written from write_indices[batch] on, along `axis`; in circular mode positions wrap.
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
    {"", "Scatter", 9, through_float32<scatter_elements>},
    {"", "ScatterElements", 11, through_float32<scatter_elements>},
    {"", "ScatterND", 11, through_float32<scatter_nd>},
    {"", "TensorScatter", 24, tensor_scatter},
};

}  // namespace qk::graph::ops
