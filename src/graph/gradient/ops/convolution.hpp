// SPDX-License-Identifier: Apache-2.0
// Vector-Jacobian products of Conv, ConvTranspose and com.microsoft's FusedConv, with any number of spatial axes, groups, dilations and
// padding: by oneDNN if it is fast, else by matrix products over the same columns (im2col) as the forward pass.
#pragma once

#include <vector>

#include "graph/gradient/backward.hpp"
#include "graph/gradient/fast_convolution.hpp"
#include "graph/ops/conv.hpp"
#include "graph/ops/conv_transpose.hpp"
#include "graph/ops/fused.hpp"
#include "graph/ops/sums.hpp"

namespace qk::graph::gradient {

/// The transpose of gather_columns: adds columns[c * kernel + k][o] to x where the tap falls inside.
template <class T>
void scatter_columns(const T* columns, std::int64_t channels, const ops::window& w, T* x) {
    ops::for_each_column_run(w, channels, [&](const ops::column_run& r) {
        for (std::int64_t i = r.from; i < r.to; ++i) x[r.first + i * r.step] += columns[i];
        columns += r.length;
    });
}

/// Returns the gradient of a bias: g summed over samples and positions.
template <class T>
tensor bias_gradient(const tensor& g, const dims& shape, std::int64_t channels, std::int64_t places) {
    std::vector<double> sums(static_cast<std::size_t>(channels), 0.0);
    const T* from = g.as<T>().data();
    for (std::size_t row = 0; row < (places == 0 ? 0 : g.size() / static_cast<std::size_t>(places)); ++row, from += places) {
        sums[row % sums.size()] +=
            ops::lane_sum<double>(static_cast<std::size_t>(places), [&](std::size_t i) { return static_cast<double>(from[i]); });
    }
    return rounded_sums<T>(sums, shape);
}

/// A convolution by oneDNN, if there is one, with the prepared weights that all passes share.
struct quick_convolution {
    std::shared_ptr<const fast_convolution> way;
    tensor given;                         ///< keeps the memory that `weights` may point to
    std::shared_ptr<const void> weights;  ///< in the layout that by_input() reads

    quick_convolution(const ops::window& w, const tensor& x, const tensor& of, std::int64_t group, bool by_input)
        : way(fast_convolution::find(w, x.shape(), of.shape(), group)), given(of) {
        if (by_input && has_by_input()) weights = way->prepared(of.as<float>().data());
    }
    bool has_by_input() const { return way != nullptr && way->has_by_input(); }
    bool has_by_weights() const { return way != nullptr && way->has_by_weights(); }
};

/// Returns g without the frame that a kernel of one tap makes of padding (ops::has_frame), and takes the padding from the window.
template <class T>
tensor without_frame(const tensor& g, ops::window& w) {
    if (!ops::has_frame(w)) return g;
    tensor middle(type_of<T>, ops::image_shape(g.dim(0), g.dim(1), w.input));
    const std::vector<std::int64_t> outer(w.input.begin(), w.input.end() - 1);
    const std::int64_t places = ops::product(w.output), length = w.input.back();
    T* to = middle.as<T>().data();
    for (std::int64_t plane = 0; middle.size() != 0 && plane < g.dim(0) * g.dim(1); ++plane) {
        std::vector<std::int64_t> at(outer.size(), 0);
        do {
            std::int64_t from = 0;
            for (std::size_t i = 0; i < at.size(); ++i) from = from * w.output[i] + at[i] + w.pad_begin[i];
            from = from * w.output.back() + w.pad_begin.back();
            to = std::copy_n(g.as<T>().data() + plane * places + from, length, to);
        } while (ops::advance(at, outer));
    }
    w.output = w.input;
    std::fill(w.pad_begin.begin(), w.pad_begin.end(), 0), std::fill(w.pad_end.begin(), w.pad_end.end(), 0);
    return middle;
}

/// Computes the product of Conv from `given`, the gradient of its result.
template <class T>
void convolution_backward(backward_call& call, const tensor& given) {
    const tensor x = call.real<T>(0), weights = call.real<T>(1);
    const std::int64_t group = call.node().get_int("group", 1);
    ops::window w = ops::check_conv(call.node(), x.shape(), weights.shape(), nullptr, group);
    if (call.wants(2)) call.give(2, bias_gradient<T>(given, call.input(2).shape(), weights.dim(0), ops::product(w.output)));
    const tensor g = without_frame<T>(given, w);
    const std::int64_t n = x.dim(0), in = weights.dim(1), out = weights.dim(0) / group, taps = ops::product(w.kernel),
                       places = ops::product(w.output), size = ops::product(w.input), rows = in * taps;
    bool by_input = call.wants(0), by_weights = call.wants(1);
    if constexpr (std::is_same_v<T, float>) {
        const quick_convolution& quick = call.once<quick_convolution>([&] { return quick_convolution(w, x, weights, group, by_input); });
        const bool quick_input = by_input && quick.has_by_input(), quick_weights = by_weights && quick.has_by_weights();
        tensor dx = quick_input ? tensor(data_type::float32, x.shape()) : tensor(),
               dw = quick_weights ? tensor(data_type::float32, weights.shape()) : tensor();
        const float *px = x.as<float>().data(), *pg = g.as<float>().data();
        if (quick_input && quick_weights) quick.way->by_both(px, pg, quick.weights.get(), dx.as<float>().data(), dw.as<float>().data());
        else if (quick_input) quick.way->by_input(pg, quick.weights.get(), dx.as<float>().data());
        else if (quick_weights) quick.way->by_weights(px, pg, dw.as<float>().data());
        if (quick_input) call.give(0, dx);
        if (quick_weights) call.give(1, dw);
        by_input = by_input && !quick_input, by_weights = by_weights && !quick_weights;
    }
    if (!by_input && !by_weights) return;
    bool pointwise = true;  // the input already is the matrix of columns
    for (std::size_t i = 0; i < w.rank(); ++i)
        pointwise = pointwise && w.kernel[i] == 1 && w.stride[i] == 1 && w.pad_begin[i] == 0 && w.pad_end[i] == 0;
    tensor dx = by_input ? zeros<T>(x.shape()) : tensor(), dw = by_weights ? zeros<T>(weights.shape()) : tensor();
    tensor columns(type_of<T>, {pointwise ? 0 : rows, places}), part(type_of<T>, {out, rows});
    for (std::int64_t b = 0; b < n && g.size() != 0; ++b)
        for (std::int64_t k = 0; k < group; ++k) {
            const T* source = x.as<T>().data() + (b * group + k) * in * size;
            const T* from = g.as<T>().data() + (b * group + k) * out * places;
            if (by_weights) {
                if (!pointwise) ops::gather_columns(source, in, w, T{0}, columns.as<T>().data());
                ops::multiply(from, false, pointwise ? source : columns.as<T>().data(), true, part.as<T>().data(), out, rows, places);
                add_into(part.as<T>().data(), part.size(), dw.as<T>().data() + k * out * rows);
            }
            if (by_input) {
                T* to = dx.as<T>().data() + (b * group + k) * in * size;
                T* product = pointwise ? to : columns.as<T>().data();
                ops::multiply(weights.as<T>().data() + k * out * rows, true, from, false, product, rows, places, out);
                if (!pointwise) scatter_columns(columns.as<T>().data(), in, w, to);
            }
        }
    if (by_input) call.give(0, dx);
    if (by_weights) call.give(1, dw);
}

inline void conv_backward(backward_call& call) {
    with_gradient_type(call, [&]<class T>(T) { convolution_backward<T>(call, call.gradient()); });
}

inline void conv_transpose_backward(backward_call& call) {
    with_gradient_type(call, [&]<class T>(T) {
        const tensor &g = call.gradient(), x = call.real<T>(0), weights = call.real<T>(1);
        const std::int64_t group = call.node().get_int("group", 1);
        const ops::window w = ops::transposed_window(call.node(), x.shape(), {weights.shape().begin() + 2, weights.shape().end()});
        const std::int64_t n = x.dim(0), in = x.dim(1) / group, out = weights.dim(1), rows = out * ops::product(w.kernel),
                           places = ops::product(w.output), size = ops::product(w.input);
        if (call.wants(2)) call.give(2, bias_gradient<T>(g, call.input(2).shape(), out * group, size));
        if (!call.wants(0) && !call.wants(1)) return;
        tensor dx = zeros<T>(x.shape()), dw = zeros<T>(weights.shape());
        tensor columns(type_of<T>, {rows, places}), part(type_of<T>, {in, rows});
        for (std::int64_t b = 0; b < n && x.size() != 0; ++b)
            for (std::int64_t k = 0; k < group; ++k) {
                ops::gather_columns(g.as<T>().data() + (b * group + k) * out * size, out, w, T{0}, columns.as<T>().data());
                const std::int64_t at = (b * group + k) * in * places;
                ops::multiply(weights.as<T>().data() + k * in * rows, false, columns.as<T>().data(), false, dx.as<T>().data() + at, in,
                              places, rows);
                if (!call.wants(1)) continue;
                ops::multiply(x.as<T>().data() + at, false, columns.as<T>().data(), true, part.as<T>().data(), in, rows, places);
                add_into(part.as<T>().data(), part.size(), dw.as<T>().data() + k * in * rows);
            }
        call.give(0, dx);
        call.give(1, dw);
    });
}

/// Returns g times the slope of the activation that ends a fused node, computed from its result `y`.
template <class T>
tensor through_fused_activation(const backward_call& call, const tensor& y, double first, double second) {
    const std::string name = call.node().get_string("activation", "");
    const tensor& g = call.gradient();
    if (name.empty()) return g;
    tensor d(type_of<T>, g.shape());
    for (std::size_t i = 0; i < g.size(); ++i) {
        const T v = y.as<T>()[i];
        T slope = v > 0 ? T{1} : T{0};  // Relu
        if (name == "LeakyRelu") slope = v > 0 ? T{1} : static_cast<T>(first);
        if (name == "Tanh") slope = 1 - v * v;
        if (name == "Sigmoid") slope = v * (1 - v);
        if (name == "HardSigmoid") slope = v > 0 && v < 1 ? static_cast<T>(first) : T{0};
        if (name == "Clip") slope = v > static_cast<T>(first) && v < static_cast<T>(second) ? T{1} : T{0};
        d.as<T>()[i] = g.as<T>()[i] * slope;
    }
    return d;
}

inline void fused_conv_backward(backward_call& call) {
    with_gradient_type(call, [&]<class T>(T) {
        const auto p = call.node().get_floats("activation_params");
        const tensor g = through_fused_activation<T>(call, call.result<T>(0), p.empty() ? 0.01 : static_cast<double>(p[0]),
                                                     p.size() < 2 ? 0.5 : static_cast<double>(p[1]));
        if (call.wants(3)) call.give(3, g);
        convolution_backward<T>(call, g);
    });
}

inline constexpr backward_entry convolution_backward_rows[] = {
    {"", "Conv", 1, conv_backward},
    {"", "ConvTranspose", 1, conv_transpose_backward},
    {"com.microsoft", "FusedConv", 1, fused_conv_backward},
};

}  // namespace qk::graph::gradient
