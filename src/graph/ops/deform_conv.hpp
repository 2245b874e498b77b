// SPDX-License-Identifier: Apache-2.0
// Implements DeformConv for any number of axes: a convolution whose taps are moved by offsets and weighted by a mask, with linear
// interpolation and zeros outside.
#pragma once

#include <cmath>
#include <vector>

#include "graph/ops/matrix.hpp"
#include "graph/ops/op.hpp"
#include "graph/ops/walk/rules.hpp"
#include "graph/ops/window.hpp"
#include "graph/ops/working_type.hpp"

namespace qk::graph::ops {

namespace detail {

/// Returns the value of one plane at a fractional position: the corners weighted linearly, zero outside.
template <class T>
T linear_sample(const T* plane, const std::vector<std::int64_t>& shape, const std::vector<T>& position) {
    T sum = 0;
    for (std::size_t corner = 0; corner < std::size_t{1} << shape.size(); ++corner) {
        T weight = 1;
        std::int64_t at = 0;
        for (std::size_t a = 0; a < shape.size() && weight != 0; ++a) {
            const T low = std::floor(position[a]), fraction = position[a] - low;
            const bool upper = (corner >> a & 1) != 0;
            const T place = low + (upper ? 1 : 0);
            if (!(place >= 0 && place < static_cast<T>(shape[a]))) {  // also true for NaN
                weight = 0;
                break;
            }
            at = at * shape[a] + static_cast<std::int64_t>(place);
            weight *= upper ? fraction : 1 - fraction;
        }
        if (weight != 0) sum += weight * plane[at];
    }
    return sum;
}

/// A tap's channel and the indices of its first offset and its mask. Offsets of the other axes follow at distances of `positions`.
struct deformed_tap {
    std::int64_t channel, first_offset, mask;
};

/// Calls f(tap, position) for channels [first, last) of sample n in the order of the im2col matrix: channel, kernel tap, output position.
template <class T, class F>
void each_deformed_tap(const window& w, const T* offset, std::int64_t n, std::int64_t first, std::int64_t last, std::int64_t channels,
                       std::int64_t offset_groups, F&& f) {
    const std::int64_t positions = product(w.output), taps = product(w.kernel), rank = static_cast<std::int64_t>(w.rank());
    std::vector<T> at(w.rank());
    for (std::int64_t c = first; c < last; ++c) {
        const std::int64_t group = n * offset_groups + c / (channels / offset_groups);
        std::vector<std::int64_t> k(w.rank(), 0);
        std::int64_t tap = 0;
        do {
            std::vector<std::int64_t> o(w.rank(), 0);
            std::int64_t p = 0;
            do {
                const std::int64_t which = group * taps + tap;
                const deformed_tap t{c, which * rank * positions + p, which * positions + p};
                for (std::size_t a = 0; a < w.rank(); ++a)
                    at[a] = static_cast<T>(o[a] * w.stride[a] - w.pad_begin[a] + k[a] * w.dilation[a]) +
                            offset[t.first_offset + static_cast<std::int64_t>(a) * positions];
                f(t, at);
                ++p;
            } while (advance(o, w.output));
            ++tap;
        } while (advance(k, w.kernel));
    }
}

}  // namespace detail

inline void run_deform_conv(op_context& call) {
    const node_view& node = call.node();
    const tensor &given = call.input(0), &given_w = call.input(1);
    if (given.rank() < 3 || given_w.rank() != given.rank())
        call.fail("X of shape " + to_string(given.shape()) + " and W of shape " + to_string(given_w.shape()) + " do not fit");
    const std::int64_t groups = node.get_int("group", 1), offset_groups = node.get_int("offset_group", 1);
    const std::int64_t channels = given.dim(1), outputs = given_w.dim(0), per_group = given_w.dim(1);
    if (misfit_groups(channels, per_group, groups) || outputs % groups != 0 ||
        misfit_groups(channels, channels / std::max<std::int64_t>(offset_groups, 1), offset_groups)) {
        call.fail("group and offset_group do not fit X of shape " + to_string(given.shape()) + " and W of shape " +
                  to_string(given_w.shape()));
    }
    const window win = make_window(node, given.shape(), {given_w.shape().begin() + 2, given_w.shape().end()});
    const std::int64_t positions = product(win.output), taps = product(win.kernel), plane = product(win.input), rows = outputs / groups;
    const auto rank = static_cast<std::int64_t>(win.rank());
    if (rank > 8) call.fail("more than 8 spatial axes: a position has 2^" + std::to_string(rank) + " neighbours");
    dims shape = image_shape(given.dim(0), offset_groups * taps * rank, win.output);
    if (call.input(2).shape() != shape) call.fail("offset has shape " + to_string(call.input(2).shape()) + ", not " + to_string(shape));
    shape[1] = offset_groups * taps;
    if (call.has_input(4) && call.input(4).shape() != shape)
        call.fail("mask has shape " + to_string(call.input(4).shape()) + ", not " + to_string(shape));
    if (call.has_input(3) && call.input(3).size() != static_cast<std::size_t>(outputs))
        call.fail("B needs one value for each output channel");
    shape[1] = outputs;
    with_working_type(given.type(), [&]<class T>(T) {
        const tensor x = input_as<T>(call, 0), w = input_as<T>(call, 1), offset = input_as<T>(call, 2), bias = optional_as<T>(call, 3),
                     mask = optional_as<T>(call, 4);
        working_output<T> y(call, 0, given.type(), shape);
        tensor columns = call.scratch(type_of<T>, {per_group * taps, positions});
        for (std::int64_t n = 0; n < given.dim(0); ++n)
            for (std::int64_t g = 0; g < groups; ++g) {
                T* column = columns.as<T>().data();
                const T* from = x.as<T>().data() + n * channels * plane;
                detail::each_deformed_tap(win, offset.as<T>().data(), n, g * per_group, (g + 1) * per_group, channels, offset_groups,
                                          [&](const detail::deformed_tap& t, const std::vector<T>& at) {
                                              T v = detail::linear_sample(from + t.channel * plane, win.input, at);
                                              if (!mask.empty()) v *= mask.as<T>()[static_cast<std::size_t>(t.mask)];
                                              *column++ = v;
                                          });
                T* out = y.data() + (n * outputs + g * rows) * positions;
                multiply(w.as<T>().data() + g * rows * per_group * taps, false, columns.as<T>().data(), false, out, rows, positions,
                         per_group * taps);
                for (std::int64_t r = 0; r < rows && !bias.empty(); ++r)
                    for (std::int64_t p = 0; p < positions; ++p)
                        out[r * positions + p] += bias.as<T>()[static_cast<std::size_t>(g * rows + r)];
            }
        y.store();
    });
}

inline constexpr op_entry deform_conv_ops[] = {{"", "DeformConv", 19, run_deform_conv, nullptr, {follow_deform_conv}}};

}  // namespace qk::graph::ops
