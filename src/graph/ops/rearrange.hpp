// SPDX-License-Identifier: Apache-2.0
// Implements DepthToSpace, SpaceToDepth and ReverseSequence.
#pragma once

#include <cstring>

#include "graph/ops/transpose.hpp"
#include "graph/ops/walk/rules.hpp"

namespace qk::graph::ops {

struct block_mode {
    std::int64_t size;
    bool depth_first;
};

inline block_mode find_block_mode(const op_context& call) {
    const std::string mode = call.node().get_string("mode", "DCR");
    if (mode != "DCR" && mode != "CRD") call.fail("mode must be DCR or CRD");
    const block_mode b{call.node().get_int("blocksize", 0), mode == "DCR"};
    if (b.size <= 0 || b.size > 1 << 20) call.fail("blocksize must be positive, and sensible");
    if (call.input(0).rank() != 4) call.fail("the input is not of the form N,C,H,W");
    return b;
}

/// The channels are (block row, block column, depth) in DCR order and (depth, block row, block column) in CRD order.
inline void depth_to_space(op_context& call) {
    const tensor& x = call.input(0);
    const auto [b, depth_first] = find_block_mode(call);
    const std::int64_t n = x.dim(0), c = x.dim(1), h = x.dim(2), w = x.dim(3);
    if (c % (b * b) != 0) call.fail("the channels do not divide into blocks");
    const std::int64_t d = c / (b * b);
    const std::size_t block_last[] = {0, 3, 4, 1, 5, 2}, depth_last[] = {0, 1, 4, 2, 5, 3};
    const tensor y = depth_first ? transposed(call, x.reshaped({n, b, b, d, h, w}), block_last)
                                 : transposed(call, x.reshaped({n, d, b, b, h, w}), depth_last);
    call.set_output(0, y.reshaped({n, d, h * b, w * b}));
}

inline void space_to_depth(op_context& call) {
    const tensor& x = call.input(0);
    const auto [b, depth_first] = find_block_mode(call);
    const std::int64_t n = x.dim(0), c = x.dim(1), h = x.dim(2), w = x.dim(3);
    if (h % b != 0 || w % b != 0) call.fail("height and width do not divide into blocks");
    element_count(dims{c, b * b});  // throws for absurd products
    const std::size_t block_first[] = {0, 3, 5, 1, 2, 4}, depth_lead[] = {0, 1, 3, 5, 2, 4};
    const tensor y = transposed(call, x.reshaped({n, c, h / b, b, w / b, b}), depth_first ? std::span(block_first) : std::span(depth_lead));
    call.set_output(0, y.reshaped({n, c * b * b, h / b, w / b}));
}

inline void reverse_sequence(op_context& call) {
    const tensor& x = call.input(0);
    const std::int64_t batch_axis = call.node().get_int("batch_axis", 1), time_axis = call.node().get_int("time_axis", 0);
    if (x.rank() < 2 || !((batch_axis == 0 && time_axis == 1) || (batch_axis == 1 && time_axis == 0)))
        call.fail("batch_axis and time_axis must be 0 and 1");
    const auto batches = x.dim(static_cast<std::size_t>(batch_axis)), times = x.dim(static_cast<std::size_t>(time_axis));
    const auto lengths = int_values(call, call.input(1));
    if (lengths.size() != static_cast<std::size_t>(batches)) call.fail("sequence_lens need one entry for each sequence");
    tensor& y = call.output(0, x.type(), x.shape());
    const std::size_t bytes = product(x.shape(), 2, x.rank()) * size_of(x.type());
    for (std::int64_t b = 0; b < batches; ++b) {
        const std::int64_t n = lengths[static_cast<std::size_t>(b)];
        if (n < 0 || n > times) call.fail("a sequence length of " + std::to_string(n));
        for (std::int64_t t = 0; bytes != 0 && t < times; ++t) {
            const std::int64_t source = t < n ? n - 1 - t : t;
            const auto at = [&](std::int64_t time) {
                return static_cast<std::size_t>(batch_axis == 0 ? b * times + time : time * batches + b) * bytes;
            };
            std::memcpy(y.bytes() + at(t), x.bytes() + at(source), bytes);
        }
    }
}

inline constexpr op_entry rearrange_ops[] = {
    {"", "DepthToSpace", 1, depth_to_space, nullptr, {follow_blocks}, {mover | keeps_all}},
    {"", "SpaceToDepth", 1, space_to_depth, nullptr, {follow_blocks}, {mover | keeps_all}},
    {"", "ReverseSequence", 10, reverse_sequence, nullptr, {follow_reverse_sequence}},
};

}  // namespace qk::graph::ops
