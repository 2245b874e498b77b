// SPDX-License-Identifier: Apache-2.0
// Implements Concat and Split: both move pieces of `length x inner` elements with one memcpy each.
#pragma once

#include <cstring>

#include "graph/base/inner_loop.hpp"
#include "graph/ops/dispatch.hpp"
#include "graph/ops/layouts.hpp"
#include "graph/ops/walk/rules.hpp"

namespace qk::graph::ops {

/// Copies `count` pieces of `piece` bytes each. Their beginnings are `from_step` and `to_step` bytes apart.
inline void copy_pieces(const std::byte* from, std::size_t from_step, std::byte* to, std::size_t to_step, std::size_t count,
                        std::size_t piece) {
    for_each_range(count, piece / 4 + 4, [&](std::size_t first, std::size_t last) {
        for (std::size_t o = first; o < last; ++o) std::memcpy(to + o * to_step, from + o * from_step, piece);
    });
}

inline void concat(op_context& call) {
    const tensor& first = call.input(0);
    const bool old = call.node().version() < 4;
    if (!old && !call.node().has("axis")) call.fail("the attribute axis is missing");
    const std::size_t axis = normal_axis(call, call.node().get_int("axis", 1), first.rank());
    dims shape = first.shape();
    shape[axis] = 0;
    for (std::size_t k = 0; k < call.input_count(); ++k) {
        const tensor& x = call.input(k);
        dims rest = x.shape();
        if (x.type() != first.type()) call.fail("the inputs differ in type");
        if (x.rank() != first.rank()) call.fail("the inputs differ in rank");
        shape[axis] += rest[axis];
        rest[axis] = first.dim(axis);
        if (rest != first.shape())
            call.fail("input " + std::to_string(k) + " of shape " + to_string(x.shape()) + " does not fit " + to_string(first.shape()));
    }
    tensor& y = call.output(0, first.type(), shape);
    if (y.size() == 0) return;
    const axis_split s = split_at(shape, axis);
    const std::size_t width = size_of(first.type()), row = s.length * s.inner * width;
    std::byte* to = y.bytes();
    for (std::size_t k = 0; k < call.input_count(); ++k) {
        const tensor& x = call.input(k);
        const std::size_t piece = static_cast<std::size_t>(x.dim(axis)) * s.inner * width;
        if (piece != 0) copy_pieces(x.bytes(), piece, to, row, s.outer, piece);
        to += piece;
    }
}

/// Returns the parts' lengths: attribute `split` (opset 2 to 12), input 1 (opset 1 and 13 on), or equal parts with a smaller last one.
inline std::vector<std::int64_t> split_lengths(op_context& call, std::int64_t length) {
    if (call.has_input(1)) return int_values(call, call.input(1));
    if (call.node().has("split")) return call.node().get_ints("split");
    const auto parts = call.node().get_int("num_outputs", static_cast<std::int64_t>(call.output_count()));
    if (parts <= 0 || parts > 1 << 20) call.fail("the number of parts is " + std::to_string(parts));
    const std::int64_t each = (length + parts - 1) / parts;
    std::vector<std::int64_t> lengths;
    for (std::int64_t k = 0, left = length; k < parts; ++k, left -= lengths.back()) lengths.push_back(std::min(each, left));
    return lengths;
}

inline void split(op_context& call) {
    const tensor& x = call.input(0);
    const std::size_t axis = normal_axis(call, call.node().get_int("axis", 0), x.rank());
    const auto lengths = split_lengths(call, x.dim(axis));
    std::int64_t total = 0;
    for (const std::int64_t n : lengths) {
        if (n < 0 || n > x.dim(axis) - total)
            call.fail("a part of length " + std::to_string(n) + " does not fit the axis of " + std::to_string(x.dim(axis)));
        total += n;
    }
    if (total != x.dim(axis))
        call.fail("the parts' lengths add up to " + std::to_string(total) + ", the axis has " + std::to_string(x.dim(axis)));
    if (lengths.size() < call.output_count()) call.fail("there are more outputs than parts");
    const axis_split s = split_at(x.shape(), axis);
    const std::size_t width = size_of(x.type()), row = s.length * s.inner * width;
    const std::byte* from = x.bytes();
    for (std::size_t k = 0; k < lengths.size(); ++k) {
        const std::size_t piece = static_cast<std::size_t>(lengths[k]) * s.inner * width;
        if (call.wants(k)) {
            dims shape = x.shape();
            shape[axis] = lengths[k];
            tensor& y = call.output(k, x.type(), shape);
            if (piece != 0) copy_pieces(from, row, y.bytes(), piece, s.outer, piece);
        }
        from += piece;
    }
}

// clang-format off
inline constexpr op_entry concat_split_ops[] = {
    {"", "Concat", 1, concat, nullptr, {follow_concat, 0, ~0u}, {.traits = neighbour | exact | reckons | joins, .values = all_inputs, .layout = concat_layout}},
    {"", "Split", 1, split, nullptr, {follow_split}, {mover | exact | reckons, all_but_first}},
};
// clang-format on

}  // namespace qk::graph::ops
