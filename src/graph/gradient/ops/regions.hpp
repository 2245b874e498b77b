// SPDX-License-Identifier: Apache-2.0
// Vector-Jacobian products of RoiAlign and MaxRoiPool by X, and of DeformConv by every input. Regions count as constants: they get no
// gradient.
#pragma once

#include <cmath>
#include <vector>

#include "graph/gradient/backward.hpp"
#include "graph/gradient/ops/convolution.hpp"
#include "graph/gradient/reduce_to.hpp"
#include "graph/ops/deform_conv.hpp"
#include "graph/ops/regions.hpp"

namespace qk::graph::gradient {

inline void roi_align_backward(backward_call& call) {
    op_context context = call.context();
    const bool maximum = call.node().get_string("mode", "avg") == "max";
    with_gradient_type(call, [&]<class T>(T) {
        const tensor x = call.real<T>(0);
        const std::int64_t channels = x.dim(1), plane = x.dim(2) * x.dim(3), bins = call.gradient().dim(2) * call.gradient().dim(3);
        tensor d = zeros<T>(x.shape());
        const T* g = call.gradient().as<T>().data();
        ops::each_region_bin<T>(context, [&](std::int64_t r, std::int64_t image, std::int64_t place, const auto& samples) {
            for (std::int64_t c = 0; c < channels; ++c) {
                const std::int64_t first = (image * channels + c) * plane;
                const T *from = x.as<T>().data() + first, of = g[(r * channels + c) * bins + place];
                T *to = d.as<T>().data() + first, best = 0, weight = 0;
                std::int64_t chosen = -1;
                for (const auto& s : samples)
                    for (int i = 0; i < 4; ++i) {
                        if (!maximum) to[s.at[i]] += of * s.weight[i] / static_cast<T>(samples.size());
                        const T v = s.weight[i] * from[s.at[i]];
                        if (chosen < 0 || v > best) best = v, weight = s.weight[i], chosen = s.at[i];
                    }
                if (maximum && chosen >= 0) to[chosen] += of * weight;
            }
        });
        call.give(0, d);
    });
}

inline void max_roi_pool_backward(backward_call& call) {
    op_context context = call.context();
    with_gradient_type(call, [&]<class T>(T) {
        const tensor x = call.real<T>(0);
        const std::int64_t width = x.dim(3), plane = x.dim(2) * width;
        tensor d = zeros<T>(x.shape());
        const T* g = call.gradient().as<T>().data();
        ops::each_pooled_bin(context, [&](std::int64_t place, std::int64_t channel, const auto& rows, const auto& columns) {
            if (rows[0] >= rows[1] || columns[0] >= columns[1]) return;
            const T* from = x.as<T>().data() + channel * plane;
            std::int64_t best = rows[0] * width + columns[0];
            for (std::int64_t a = rows[0]; a < rows[1]; ++a)
                for (std::int64_t b = columns[0]; b < columns[1]; ++b)
                    if (from[a * width + b] > from[best]) best = a * width + b;
            d.as<T>().data()[channel * plane + best] += g[place];
        });
        call.give(0, d);
    });
}

/// Takes g back through ops::detail::linear_sample: adds to `dplane` the gradients of the corners, and to `along`, by axis, that of the
/// position.
template <class T>
void linear_sample_back(const T* plane, const std::vector<std::int64_t>& shape, const std::vector<T>& position, T g, T* dplane,
                        std::vector<T>& along) {
    std::vector<T> factor(shape.size());
    for (std::size_t corner = 0; corner < std::size_t{1} << shape.size(); ++corner) {
        T weight = 1;
        std::int64_t at = 0;
        bool inside = true;
        for (std::size_t a = 0; a < shape.size() && inside; ++a) {
            const T low = std::floor(position[a]), fraction = position[a] - low;
            const bool upper = (corner >> a & 1) != 0;
            const T place = low + (upper ? 1 : 0);
            inside = place >= 0 && place < static_cast<T>(shape[a]);
            if (!inside) break;
            at = at * shape[a] + static_cast<std::int64_t>(place);
            factor[a] = upper ? fraction : 1 - fraction;
            weight *= factor[a];
        }
        if (!inside) continue;
        dplane[at] += g * weight;
        for (std::size_t a = 0; a < shape.size(); ++a) {
            T others = 1;
            for (std::size_t b = 0; b < shape.size(); ++b)
                if (b != a) others *= factor[b];
            along[a] += g * plane[at] * others * ((corner >> a & 1) != 0 ? T{1} : T{-1});
        }
    }
}

template <class T>
void deform_conv_gradients(backward_call& call) {
    const node_view& node = call.node();
    const tensor x = call.real<T>(0), w = call.real<T>(1), offset = call.real<T>(2);
    const tensor mask = call.optional_real<T>(4);
    const ops::window win = ops::make_window(node, x.shape(), {w.shape().begin() + 2, w.shape().end()});
    const std::int64_t groups = node.get_int("group", 1), offset_groups = node.get_int("offset_group", 1), channels = x.dim(1),
                       outputs = w.dim(0), per_group = w.dim(1), positions = ops::product(win.output), taps = ops::product(win.kernel),
                       plane = ops::product(win.input), rows = outputs / groups;
    tensor dx = zeros<T>(x.shape()), dw = zeros<T>(w.shape()), doffset = zeros<T>(offset.shape());
    tensor dmask = mask.empty() ? tensor() : zeros<T>(mask.shape());
    const T* g = call.gradient().as<T>().data();
    std::vector<T> along(win.rank());
    tensor columns(type_of<T>, {per_group * taps, positions}), dcolumns(type_of<T>, {per_group * taps, positions});
    tensor part(type_of<T>, {rows, per_group * taps});
    for (std::int64_t n = 0; n < x.dim(0); ++n)
        for (std::int64_t group = 0; group < groups; ++group) {
            const T *of = g + (n * outputs + group * rows) * positions, *weights = w.as<T>().data() + group * rows * per_group * taps;
            ops::multiply(weights, true, of, false, dcolumns.as<T>().data(), per_group * taps, positions, rows);
            std::int64_t column = 0;
            ops::detail::each_deformed_tap(
                win, std::as_const(offset).as<T>().data(), n, group * per_group, (group + 1) * per_group, channels, offset_groups,
                [&](const ops::detail::deformed_tap& t, const std::vector<T>& at) {
                    const std::int64_t first = (n * channels + t.channel) * plane;
                    const T factor = mask.empty() ? T{1} : mask.as<T>().data()[t.mask], dv = std::as_const(dcolumns).as<T>().data()[column];
                    const T v = ops::detail::linear_sample(x.as<T>().data() + first, win.input, at);
                    columns.as<T>().data()[column++] = v * factor;
                    if (!dmask.empty()) dmask.as<T>().data()[t.mask] += dv * v;
                    std::fill(along.begin(), along.end(), T{0});
                    linear_sample_back(x.as<T>().data() + first, win.input, at, dv * factor, dx.as<T>().data() + first, along);
                    for (std::size_t a = 0; a < win.rank(); ++a)
                        doffset.as<T>().data()[t.first_offset + static_cast<std::int64_t>(a) * positions] += along[a];
                });
            ops::multiply(of, false, std::as_const(columns).as<T>().data(), true, part.as<T>().data(), rows, per_group * taps, positions);
            add_into(std::as_const(part).as<T>().data(), part.size(), dw.as<T>().data() + group * rows * per_group * taps);
        }
    call.give(0, dx);
    call.give(1, dw);
    call.give(2, doffset);
    if (!dmask.empty()) call.give(4, dmask);
    if (!call.wants(3)) return;
    dims channel(x.rank(), 1);
    channel[1] = outputs;
    call.give(3, reduced_to<T>(call.gradient(), channel));
}
inline void deform_conv_backward(backward_call& call) {
    with_gradient_type(call, [&]<class T>(T) { deform_conv_gradients<T>(call); });
}

inline constexpr backward_entry region_backward_rows[] = {
    {"", "RoiAlign", 10, roi_align_backward},
    {"", "MaxRoiPool", 1, max_roi_pool_backward},
    {"", "DeformConv", 19, deform_conv_backward},
};

}  // namespace qk::graph::gradient
