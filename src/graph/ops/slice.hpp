// SPDX-License-Identifier: Apache-2.0
// Implements Slice, Expand and Tile as copies of strided views of the input.
#pragma once

#include <algorithm>

#include "graph/ops/broadcast.hpp"
#include "graph/ops/layouts.hpp"
#include "graph/ops/strided.hpp"
#include "graph/ops/walk/rules.hpp"

namespace qk::graph::ops {

/// The bounds are attributes before opset 10, inputs since then. They clamp as in Python's slices, with one exception: a start before the
/// first element becomes the first element also if the step is negative.
inline void slice(op_context& call) {
    const tensor& x = call.input(0);
    std::vector<std::int64_t> starts, ends, axes, steps;
    if (call.node().version() < 10) {
        starts = call.node().get_ints("starts");
        ends = call.node().get_ints("ends");
        axes = call.node().get_ints("axes");
    } else {
        starts = int_values(call, call.input(1));
        ends = int_values(call, call.input(2));
        if (call.has_input(3)) axes = int_values(call, call.input(3));
        if (call.has_input(4)) steps = int_values(call, call.input(4));
    }
    if (axes.empty())
        for (std::size_t i = 0; i < starts.size(); ++i) axes.push_back(static_cast<std::int64_t>(i));
    if (steps.empty()) steps.assign(starts.size(), 1);
    if (ends.size() != starts.size() || axes.size() != starts.size() || steps.size() != starts.size())
        call.fail("starts, ends, axes and steps differ in length");

    dims shape = x.shape();
    auto stride = signed_strides(x.shape());
    const auto input_stride = stride;
    std::ptrdiff_t begin = 0;
    std::vector<bool> seen(x.rank());
    for (std::size_t k = 0; k < starts.size(); ++k) {
        const std::size_t a = normal_axis(call, axes[k], x.rank());
        if (seen[a]) call.fail("axes name axis " + std::to_string(a) + " twice");
        seen[a] = true;
        const std::int64_t n = x.dim(a), step = steps[k];
        if (step == 0) call.fail("a step is zero");
        const std::int64_t lowest = step > 0 ? 0 : -1, highest = step > 0 ? n : n - 1;
        const auto clamp = [&](std::int64_t at) { return std::clamp(at < 0 ? at + n : at, lowest, highest); };
        const std::int64_t from = n == 0 ? clamp(starts[k]) : std::max<std::int64_t>(clamp(starts[k]), 0), to = clamp(ends[k]);
        const std::int64_t distance = step > 0 ? to - from : from - to;
        const std::uint64_t stride_length = step > 0 ? static_cast<std::uint64_t>(step) : -static_cast<std::uint64_t>(step);
        shape[a] = distance <= 0 ? 0 : static_cast<std::int64_t>((static_cast<std::uint64_t>(distance) - 1) / stride_length + 1);
        if (shape[a] > 0) begin += from * input_stride[a];
        // With one element the step is never taken; it may be as large as int64 allows.
        stride[a] = shape[a] > 1 ? input_stride[a] * step : input_stride[a];
    }
    tensor& y = call.output(0, x.type(), shape);
    const auto to = signed_strides(shape);
    std::vector<copy_axis> copy;
    for (std::size_t i = 0; i < shape.size(); ++i) copy.push_back({static_cast<std::size_t>(shape[i]), stride[i], to[i]});
    if (y.size() != 0) strided_copy(call, x, begin, y, 0, copy);
}

/// Broadcasts x to `shape`, which must fit.
inline void expand_to(op_context& call, const tensor& x, const dims& shape, tensor& y) {
    const auto from = signed_strides(x.shape()), to = signed_strides(shape);
    const std::size_t skip = shape.size() - x.rank();
    std::vector<copy_axis> copy;
    for (std::size_t i = 0; i < shape.size(); ++i)
        copy.push_back({static_cast<std::size_t>(shape[i]), i < skip || x.dim(i - skip) == 1 ? 0 : from[i - skip], to[i]});
    if (y.size() != 0) strided_copy(call, x, 0, y, 0, copy);
}

inline void expand(op_context& call) {
    const tensor& x = call.input(0);
    const dims wanted = int_values(call, call.input(1));
    element_count(wanted);  // throws for negative and absurd dimensions
    dims shape = wanted;
    if (shape.size() < x.rank()) shape.insert(shape.begin(), x.rank() - shape.size(), 1);
    const std::size_t skip = shape.size() - x.rank();
    for (std::size_t i = 0; i < x.rank(); ++i) {
        std::int64_t& d = shape[skip + i];
        if (d == 1) d = x.dim(i);
        else if (x.dim(i) != 1 && x.dim(i) != d) call.fail("cannot expand " + to_string(x.shape()) + " to " + to_string(wanted));
    }
    if (shape == x.shape()) {
        call.set_output(0, x);
        return;
    }
    expand_to(call, x, shape, call.output(0, x.type(), shape));
}

/// Every axis becomes two axes of a copy: the repeats, with stride 0 in the input, then the axis itself.
inline void tile(op_context& call) {
    const tensor& x = call.input(0);
    std::vector<std::int64_t> repeats;
    if (call.node().version() >= 6) {
        repeats = int_values(call, call.input(1));
    } else {  // a number of tiles along one axis, both in floats
        const std::int64_t tiles = scalar_value<std::int64_t>(call, call.input(1));
        repeats.assign(x.rank(), 1);
        repeats[normal_axis(call, scalar_value<std::int64_t>(call, call.input(2)), x.rank())] = tiles;
    }
    if (repeats.size() != x.rank())
        call.fail("there are " + std::to_string(repeats.size()) + " repeats for an input of shape " + to_string(x.shape()));
    dims shape = x.shape();
    for (std::size_t i = 0; i < shape.size(); ++i) {
        if (repeats[i] < 0) call.fail("a repeat is negative");
        element_count(dims{shape[i], repeats[i]});
        shape[i] *= repeats[i];
    }
    tensor& y = call.output(0, x.type(), shape);
    const auto from = signed_strides(x.shape()), to = signed_strides(shape);
    std::vector<copy_axis> copy;
    for (std::size_t i = 0; i < shape.size(); ++i) {
        copy.push_back({static_cast<std::size_t>(repeats[i]), 0, to[i] * x.dim(i)});
        copy.push_back({static_cast<std::size_t>(x.dim(i)), from[i], to[i]});
    }
    if (y.size() != 0) strided_copy(call, x, 0, y, 0, copy);
}

// clang-format off
inline constexpr op_entry slice_ops[] = {
    {"", "Slice", 1, slice, nullptr, {follow_slice, 2 + 4 + 8 + 16}, {.traits = mover | exact | reckons, .places = all_but_first, .layout = slice_layout}},
    {"", "Expand", 8, expand, nullptr, {follow_expand, 2, 1}, {mover | exact | reckons | moves_channels, all_but_first}},
    {"", "Tile", 1, tile, nullptr, {follow_tile, 2}, {mover | reckons, all_but_first}},
};
// clang-format on

}  // namespace qk::graph::ops
