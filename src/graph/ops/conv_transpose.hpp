// SPDX-License-Identifier: Apache-2.0
// Implements ConvTranspose, the gradient of Conv, for any number of spatial axes: one matrix product per group, then columns are scattered.
#pragma once

#include <vector>

#include "graph/ops/dispatch.hpp"
#include "graph/ops/matrix.hpp"
#include "graph/ops/product_axes.hpp"
#include "graph/ops/walk/rules.hpp"
#include "graph/ops/window.hpp"

namespace qk::graph::ops {

/// Returns the window that maps the *output* of ConvTranspose back to its input: `input` is the size of the result, `output` that of x.
window transposed_window(const node_view& node, const dims& x, std::vector<std::int64_t> kernel);

template <class T>
void conv_transpose_of(op_context& c) {
    const tensor &x = c.input(0), &weights = c.input(1);
    const std::int64_t group = c.node().get_int("group", 1);
    if (weights.type() != x.type()) c.fail("input and weights must have one type");
    if (x.rank() < 3 || weights.rank() != x.rank() || weights.dim(0) != x.dim(1) ||
        misfit_groups(x.dim(1), x.dim(1) / std::max<std::int64_t>(group, 1), group))
        c.fail("input of shape " + to_string(x.shape()) + " does not fit weights of shape " + to_string(weights.shape()) + " in " +
               std::to_string(group) + " group(s)");
    const window w = transposed_window(c.node(), x.shape(), {weights.shape().begin() + 2, weights.shape().end()});
    const std::int64_t n = x.dim(0), in = x.dim(1) / group, out = weights.dim(1), taps = product(w.kernel), places = product(w.output),
                       size = product(w.input);
    tensor& y = c.output(0, x.type(), image_shape(n, out * group, w.input));
    T* yp = y.as<T>().data();
    if (c.has_input(2)) {
        if (c.input(2).type() != x.type() || c.input(2).size() != static_cast<std::size_t>(out * group))
            c.fail("the bias does not fit the output channels");
        const auto bias = c.input(2).as<T>();
        for (std::int64_t i = 0; i < n * out * group; ++i)
            std::fill(yp + i * size, yp + (i + 1) * size, bias[static_cast<std::size_t>(i % (out * group))]);
    } else {
        std::fill(yp, yp + y.size(), T(0));
    }
    if (x.size() == 0) return;
    tensor columns = c.scratch(x.type(), {out * taps, places});
    std::vector<std::int64_t> k(w.rank()), o(w.rank());
    for (std::int64_t b = 0; b < n; ++b)
        for (std::int64_t g = 0; g < group; ++g) {
            const T* source = x.as<T>().data() + (b * group + g) * in * places;
            multiply(weights.as<T>().data() + g * in * out * taps, true, source, false, columns.as<T>().data(), out * taps, places, in);
            const T* column = columns.as<T>().data();
            for (std::int64_t ch = 0; ch < out; ++ch) {
                T* plane = yp + ((b * group + g) * out + ch) * size;
                std::fill(k.begin(), k.end(), 0);
                do {
                    std::fill(o.begin(), o.end(), 0);
                    do {
                        std::int64_t at = 0;
                        bool inside = true;
                        for (std::size_t i = 0; inside && i < w.rank(); ++i) {
                            const std::int64_t p = o[i] * w.stride[i] - w.pad_begin[i] + k[i] * w.dilation[i];
                            inside = p >= 0 && p < w.input[i];
                            if (inside) at = at * w.input[i] + p;
                        }
                        if (inside) plane[at] += *column;
                        ++column;
                    } while (advance(o, w.output));
                } while (advance(k, w.kernel));
            }
        }
}

inline void conv_transpose(op_context& c) {
    run_by_type(c, float_types, "input of type ", "; ConvTranspose takes floating-point types",
                []<class T>(type_tag<T>, op_context& call) { conv_transpose_of<T>(call); });
}

// clang-format off
inline constexpr op_entry conv_transpose_ops[] = {
    {"", "ConvTranspose", 1, conv_transpose, nullptr, {follow_conv_transpose}, {.traits = layer | of_pictures | biased, .inputs = 2, .axes = conv_transpose_axes}}};
// clang-format on

}  // namespace qk::graph::ops
