// SPDX-License-Identifier: Apache-2.0
// Channels-last buffers of N,C,H,W values: which operators can work on them (for all others they are converted back), conversion, pools and
// concatenation along channels.
#pragma once

#include <onnx/onnx_pb.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "graph/ops/op.hpp"
#include "graph/ops/window.hpp"
#include "qk/graph/base/tensor.hpp"

namespace qk::graph::execute {

/// A value of a run. `channels_last`: the shape reads N,C,H,W, the buffer holds N,H,W,C.
struct run_value {
    tensor t;
    bool channels_last = false;
};

/// y[c][r] = x[r][c]
template <class T>
void transpose(const T* x, std::size_t rows, std::size_t columns, T* y) {
    constexpr std::size_t tile = 16;
    for (std::size_t r0 = 0; r0 < rows; r0 += tile)
        for (std::size_t c0 = 0; c0 < columns; c0 += tile) {
            const std::size_t r1 = std::min(r0 + tile, rows), c1 = std::min(c0 + tile, columns);
            for (std::size_t c = c0; c < c1; ++c)
                for (std::size_t r = r0; r < r1; ++r) y[c * rows + r] = x[r * columns + c];
        }
}

/// Returns rows x columns values as columns x rows.
template <class T>
std::vector<T> transpose(std::span<const T> x, std::size_t rows, std::size_t columns) {
    std::vector<T> y(x.size());
    transpose(x.data(), rows, columns, y.data());
    return y;
}

/// Converts N,C,D1,D2,... to channels last, or back if not `to_last`; elements of 1, 2, 4 or 8 bytes.
inline tensor converted(const tensor& t, bool to_last, allocator& memory) {
    tensor y(t.type(), t.shape(), memory.allocate(t.size_bytes()));
    if (t.size() == 0) return y;
    const auto n = static_cast<std::size_t>(t.dim(0)), c = static_cast<std::size_t>(t.dim(1)), plane = t.size() / (n * c);
    const auto move = [&]<class T>(T) {
        const auto* from = reinterpret_cast<const T*>(t.bytes());
        auto* to = reinterpret_cast<T*>(y.bytes());
        for (std::size_t i = 0; i < n; ++i) transpose(from + i * c * plane, to_last ? c : plane, to_last ? plane : c, to + i * c * plane);
    };
    switch (size_of(t.type())) {
        case 1: move(std::uint8_t{}); break;
        case 2: move(std::uint16_t{}); break;
        case 4: move(std::uint32_t{}); break;
        default: move(std::uint64_t{}); break;
    }
    return y;
}

/// Turns a shape N,C,D1,D2,... into N,D1,D2,...,C; plain_shape turns it back.
inline dims last_shape(dims s) {
    std::rotate(s.begin() + 1, s.begin() + 2, s.end());
    return s;
}
inline dims plain_shape(dims s) {
    std::rotate(s.begin() + 1, s.end() - 1, s.end());
    return s;
}

/// Returns the inputs of a Slice or Pad of a channels-last value: x in the shape of its buffer, and axes (input 3) renumbered for it.
/// Returns none if the axes are invalid: the plain layout then reports the error.
inline std::vector<tensor> with_last_axes(std::vector<tensor> in, std::size_t axis_count) {
    const auto rank = static_cast<std::int64_t>(in[0].rank());
    std::vector<std::int64_t> axes;
    if (in.size() > 3 && !in[3].empty()) {
        if (in[3].type() == data_type::int64) axes.assign(in[3].as<std::int64_t>().begin(), in[3].as<std::int64_t>().end());
        else if (in[3].type() == data_type::int32) axes.assign(in[3].as<std::int32_t>().begin(), in[3].as<std::int32_t>().end());
        else return {};
    } else {
        for (std::size_t i = 0; i < axis_count; ++i) axes.push_back(static_cast<std::int64_t>(i));
    }
    for (std::int64_t& a : axes) {
        if (a < -rank || a >= rank) return {};
        if (a < 0) a += rank;
        a = a == 0 ? 0 : a == 1 ? rank - 1 : a - 1;
    }
    if (in.size() < 4) in.resize(4);
    in[0] = in[0].reshaped(last_shape(in[0].shape()));
    in[3] = make_tensor<std::int64_t>({static_cast<std::int64_t>(axes.size())}, axes);
    return in;
}

/// Writes the channels of `part` to the channels of y from `first` on; both are channels last, float32, of rank 4.
inline void put_channels(const tensor& part, tensor& y, std::size_t first) {
    const auto own = static_cast<std::size_t>(part.dim(1)), row = static_cast<std::size_t>(y.dim(1));
    const float* from = part.as<float>().data();
    float* to = y.as<float>().data() + first;
    for (std::size_t p = 0, places = part.size() / std::max<std::size_t>(own, 1); p < places; ++p)
        std::memcpy(to + p * row, from + p * own, own * sizeof(float));
}

/// Computes the largest or mean value of each window, channels last. Padding does not count; with `count_padding` it counts as zeros in the
/// mean.
inline void pool_channels_last(const float* x, std::size_t n, std::size_t c, const ops::window& w, bool mean, bool count_padding,
                               float* y) {
    const std::int64_t h = w.input[0], width = w.input[1];
    for (std::size_t b = 0; b < n; ++b)
        for (std::int64_t i = 0; i < w.output[0]; ++i) {
            const ops::tap_range down = ops::taps_of(w, 0, i);
            for (std::int64_t j = 0; j < w.output[1]; ++j, y += c) {
                const ops::tap_range across = ops::taps_of(w, 1, j);
                std::fill(y, y + c, mean ? 0.0f : -std::numeric_limits<float>::infinity());
                for (std::int64_t p = down.begin; p < down.end; ++p)
                    for (std::int64_t q = across.begin; q < across.end; ++q) {
                        const std::int64_t r = i * w.stride[0] - w.pad_begin[0] + p * w.dilation[0],
                                           s = j * w.stride[1] - w.pad_begin[1] + q * w.dilation[1];
                        const float* in = x + (b * static_cast<std::size_t>(h * width) + static_cast<std::size_t>(r * width + s)) * c;
                        if (mean)
                            for (std::size_t k = 0; k < c; ++k) y[k] += in[k];
                        else
                            for (std::size_t k = 0; k < c; ++k) y[k] = y[k] < in[k] ? in[k] : y[k];
                    }
                if (mean) {
                    const auto count = static_cast<float>(
                        std::max<std::int64_t>(count_padding ? down.padded * across.padded : down.size() * across.size(), 1));
                    for (std::size_t k = 0; k < c; ++k) y[k] /= count;
                }
            }
        }
}

/// Computes the mean over all places, with sums in double.
inline void global_mean_channels_last(const float* x, std::size_t n, std::size_t c, std::size_t plane, float* y) {
    std::vector<double> sum(c);
    for (std::size_t b = 0; b < n; ++b) {
        std::fill(sum.begin(), sum.end(), 0.0);
        for (std::size_t p = 0; p < plane; ++p, x += c)
            for (std::size_t k = 0; k < c; ++k) sum[k] += static_cast<double>(x[k]);
        for (std::size_t k = 0; k < c; ++k) *y++ = static_cast<float>(sum[k] / static_cast<double>(plane));
    }
}

inline tensor float_tensor(dims shape, allocator& memory) {
    const std::size_t bytes = element_count(shape) * sizeof(float);
    return tensor(data_type::float32, std::move(shape), memory.allocate(bytes));
}

/// Returns whether two pictures differ in their channels alone.
inline bool same_places(const tensor& a, const tensor& b) { return a.dim(0) == b.dim(0) && a.dim(2) == b.dim(2) && a.dim(3) == b.dim(3); }

/// Concatenates pictures along their channels, all channels last.
inline tensor joined_channels(std::span<const tensor> parts, allocator& memory) {
    std::int64_t channels = 0;
    for (const tensor& p : parts) channels += p.dim(1);
    const tensor& x = parts.front();
    tensor y = float_tensor({x.dim(0), channels, x.dim(2), x.dim(3)}, memory);
    std::size_t at = 0;
    for (const tensor& p : parts) put_channels(p, y, std::exchange(at, at + static_cast<std::size_t>(p.dim(1))));
    return y;
}

/// Runs AveragePool or MaxPool on a picture, channels last.
inline tensor pooled(const node_view& node, const tensor& x, bool average, allocator& memory) {
    const ops::window w = ops::make_window(node, x.shape(), node.get_ints("kernel_shape"), node.get_int("ceil_mode", 0) != 0);
    tensor y = float_tensor({x.dim(0), x.dim(1), w.output[0], w.output[1]}, memory);
    pool_channels_last(x.as<float>().data(), static_cast<std::size_t>(x.dim(0)), static_cast<std::size_t>(x.dim(1)), w, average,
                       node.get_int("count_include_pad", 0) != 0, y.as<float>().data());
    return y;
}

/// Runs GlobalAveragePool on a picture, channels last.
inline tensor global_mean(const tensor& x, allocator& memory) {
    tensor y = float_tensor({x.dim(0), x.dim(1), 1, 1}, memory);
    global_mean_channels_last(x.as<float>().data(), static_cast<std::size_t>(x.dim(0)), static_cast<std::size_t>(x.dim(1)),
                              static_cast<std::size_t>(x.dim(2) * x.dim(3)), y.as<float>().data());
    return y;
}

}  // namespace qk::graph::execute
