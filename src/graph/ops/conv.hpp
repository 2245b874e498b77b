// SPDX-License-Identifier: Apache-2.0
// Implements Conv for any number of spatial axes: im2col for each group, then one matrix product; depthwise without im2col.
#pragma once

#include "graph/ops/dispatch.hpp"
#include "graph/ops/matrix.hpp"
#include "graph/ops/product_axes.hpp"
#include "graph/ops/walk/rules.hpp"
#include "graph/ops/window.hpp"

namespace qk::graph::ops {

/// Makes the im2col matrix columns[c * kernel + k][o] = x[c] at output position o and kernel position k, or `padding` outside of x.
template <class T>
void gather_columns(const T* x, std::int64_t channels, const window& w, T padding, T* columns) {
    for_each_column_run(w, channels, [&](const column_run& r) {
        std::fill(columns, columns + r.from, padding);
        if (r.step == 1) std::copy(x + r.first + r.from, x + r.first + r.to, columns + r.from);
        else
            for (std::int64_t i = r.from; i < r.to; ++i) columns[i] = x[r.first + i * r.step];
        std::fill(columns + r.to, columns + r.length, padding);
        columns += r.length;
    });
}

/// Convolves one channel with one kernel, row by row: y[o] += sum over k of kernel[k] * x. `y` holds the starting values.
template <class T>
void add_depthwise(const T* x, const T* kernel, const window& w, T* y) {
    const std::int64_t kh = w.kernel[0], kw = w.kernel[1], h = w.input[0], width = w.input[1], ow = w.output[1];
    for (std::int64_t i = 0; i < w.output[0]; ++i)
        for (std::int64_t a = 0; a < kh; ++a) {
            const std::int64_t r = i * w.stride[0] - w.pad_begin[0] + a * w.dilation[0];
            if (r < 0 || r >= h) continue;
            const T* row = x + r * width;
            T* out = y + i * ow;
            for (std::int64_t b = 0; b < kw; ++b) {
                const std::int64_t s = w.stride[1], first = b * w.dilation[1] - w.pad_begin[1];
                const auto [from, to] = outputs_inside(first, s, width, ow);
                const T f = kernel[a * kw + b];
                if (s == 1)
                    for (std::int64_t j = from; j < to; ++j) out[j] += f * row[first + j];
                else
                    for (std::int64_t j = from; j < to; ++j) out[j] += f * row[first + j * s];
            }
        }
}

/// Fails unless the shapes of Conv's inputs agree. Returns the window of the call.
window check_conv(const node_view& node, const dims& x, const dims& weights, const tensor* bias, std::int64_t group);

template <class T>
void conv_of(op_context& c) {
    const tensor &x = c.input(0), &weights = c.input(1);
    const tensor* bias = c.has_input(2) ? &c.input(2) : nullptr;
    if (weights.type() != x.type() || (bias != nullptr && bias->type() != x.type())) c.fail("input, weights and bias must have one type");
    const std::int64_t group = c.node().get_int("group", 1);
    const window w = check_conv(c.node(), x.shape(), weights.shape(), bias, group);
    const std::int64_t n = x.dim(0), in = weights.dim(1), out = weights.dim(0) / group, taps = product(w.kernel),
                       places = product(w.output), in_size = product(w.input);
    tensor& y = c.output(0, x.type(), image_shape(n, weights.dim(0), w.output));
    if (y.size() == 0) return;
    const T* xp = x.as<T>().data();
    const T* wp = weights.as<T>().data();
    T* yp = y.as<T>().data();
    const bool direct = w.rank() == 2 && in == 1;
    bool pointwise = true;  // the input already is the im2col matrix
    for (std::size_t i = 0; i < w.rank(); ++i)
        pointwise = pointwise && w.kernel[i] == 1 && w.stride[i] == 1 && w.pad_begin[i] == 0 && w.pad_end[i] == 0;
    tensor columns;
    if (!direct && !pointwise) columns = c.scratch(x.type(), {in * taps, places});
    for (std::int64_t b = 0; b < n; ++b)
        for (std::int64_t g = 0; g < group; ++g) {
            const T* source = xp + (b * group + g) * in * in_size;
            T* target = yp + (b * group + g) * out * places;
            if (direct) {
                std::fill(target, target + out * places, T(0));
                for (std::int64_t o = 0; o < out; ++o) add_depthwise(source, wp + (g * out + o) * taps, w, target + o * places);
            } else {
                if (!pointwise) gather_columns(source, in, w, T(0), columns.as<T>().data());
                multiply(wp + g * out * in * taps, false, pointwise ? source : columns.as<T>().data(), false, target, out, places,
                         in * taps);
            }
            if (bias != nullptr)
                for (std::int64_t o = 0; o < out; ++o) {
                    const T add = bias->as<T>()[static_cast<std::size_t>(g * out + o)];
                    for (std::int64_t p = 0; p < places; ++p) target[o * places + p] += add;
                }
        }
}

inline void conv(op_context& c) {
    run_by_type(c, float_types, "input of type ", "; Conv takes floating-point types",
                []<class T>(type_tag<T>, op_context& call) { conv_of<T>(call); });
}

// clang-format off
inline constexpr op_entry conv_ops[] = {
    {"", "Conv", 1, conv, nullptr, {follow_conv}, {.traits = layer | of_pictures | biased | sums_axes, .inputs = 2, .axes = conv_axes}}};
// clang-format on

}  // namespace qk::graph::ops
