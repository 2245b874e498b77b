// SPDX-License-Identifier: Apache-2.0
// Vector-Jacobian products of pools. MaxPool's gradient goes to the first of equal largest values in row-major order.
#pragma once

#include <cmath>
#include <limits>
#include <type_traits>

#include "graph/gradient/backward.hpp"
#include "graph/ops/pool.hpp"

namespace qk::graph::gradient {

/// Returns the window of a pool, read from a context whose inputs are real.
inline ops::window pool_window(const backward_call& call) {
    op_context context = call.context();
    return ops::make_window(call.node(), call.input(0).shape(), ops::pool_kernel(context), call.node().get_int("ceil_mode", 0) != 0);
}

/// Calls f(plane, place of the window, number of taps inside, number of taps inside the padded input, offsets of those inside) for every
/// window.
template <class F>
void each_pool_window(const backward_call& call, const ops::window& w, F&& f) {
    const std::int64_t planes = call.input(0).dim(0) * call.input(0).dim(1);
    if (call.output(0).size() == 0) return;
    std::vector<std::int64_t> taps;
    for (std::int64_t p = 0; p < planes; ++p)
        ops::for_each_window(
            w, [&] { taps.clear(); }, [&](std::int64_t at) { taps.push_back(at); },
            [&](std::int64_t place, std::int64_t inside, std::int64_t padded) { f(p, place, inside, padded, taps); });
}

/// Returns for each element of the result the offset, in its plane, of the first largest element of its window, or -1 if the window has
/// none. y holds the largest values.
template <class T>
std::vector<std::int32_t> largest_places(const backward_call& call, const tensor& x, const tensor& y) {
    const ops::window w = pool_window(call);
    const std::int64_t in = ops::product(w.input), out = ops::product(w.output);
    if (in > std::numeric_limits<std::int32_t>::max()) call.fail("planes of " + std::to_string(in) + " elements have no gradient");
    std::vector<std::int32_t> best(y.size(), -1);
    if (w.rank() != 2 || w.kernel[1] > 2 * w.input[1] + 16) {  // most taps of so large a kernel are padding
        each_pool_window(call, w,
                         [&](std::int64_t p, std::int64_t place, std::int64_t, std::int64_t, const std::vector<std::int64_t>& taps) {
                             const T* plane = x.as<T>().data() + p * in;
                             std::int32_t& at = best[static_cast<std::size_t>(p * out + place)];
                             for (const std::int64_t t : taps)
                                 if (at < 0 || plane[t] > plane[at]) at = static_cast<std::int32_t>(t);
                         });
        return best;
    }
    const std::int64_t width = w.output[1], step = w.stride[1];
    for (std::int64_t p = 0; !best.empty() && p < x.dim(0) * x.dim(1); ++p)
        for (std::int64_t i = 0; i < w.output[0]; ++i) {  // a row of windows at a time, the last tap first: the first of equal values stays
            std::int32_t* at = best.data() + p * out + i * width;
            const T* top = y.as<T>().data() + p * out + i * width;
            const ops::tap_range rows = ops::taps_of(w, 0, i);
            for (std::int64_t a = rows.end; a-- > rows.begin;) {
                const std::int64_t row = (i * w.stride[0] - w.pad_begin[0] + a * w.dilation[0]) * w.input[1];
                for (std::int64_t b = w.kernel[1]; b-- > 0;) {
                    const std::int64_t shift = b * w.dilation[1] - w.pad_begin[1];
                    const auto [from, to] = ops::outputs_inside(shift, step, w.input[1], width);
                    const T* v = x.as<T>().data() + p * in + row + shift;
                    const auto first = static_cast<std::int32_t>(row + shift), begin = static_cast<std::int32_t>(from),
                               end = static_cast<std::int32_t>(to);
                    const auto mark = [=](auto s) {  // vectorises if the stride is a constant
                        for (std::int32_t j = begin; j < end; ++j) at[j] = v[j * s] == top[j] ? first + j * s : at[j];
                    };
                    if (step == 1) mark(std::integral_constant<std::int32_t, 1>());
                    else if (step == 2) mark(std::integral_constant<std::int32_t, 2>());
                    else mark(static_cast<std::int32_t>(step));
                }
            }
        }
    return best;
}

inline void max_pool_backward(backward_call& call) {
    with_gradient_type(call, [&]<class T>(T) {
        const tensor x = call.real<T>(0);
        const auto& best = call.once<std::vector<std::int32_t>>([&] { return largest_places<T>(call, x, call.result<T>(0)); });
        tensor dx = zeros<T>(x.shape());
        const std::size_t planes = static_cast<std::size_t>(x.dim(0) * x.dim(1)), in = planes == 0 ? 0 : x.size() / planes,
                          out = planes == 0 ? 0 : best.size() / planes;
        const T* g = call.gradient().as<T>().data();
        for (std::size_t p = 0; p < planes; ++p) {
            T* to = dx.as<T>().data() + p * in;
            for (std::size_t i = p * out; i < (p + 1) * out; ++i)
                if (best[i] >= 0) to[best[i]] += g[i];
        }
        call.give(0, dx);
    });
}

inline void average_pool_backward(backward_call& call) {
    const bool count_padding = call.node().get_int("count_include_pad", 0) != 0;
    with_gradient_type(call, [&]<class T>(T) {
        const ops::window w = pool_window(call);
        tensor dx = zeros<T>(call.input(0).shape());
        const std::int64_t in = ops::product(w.input), out = ops::product(w.output);
        const T* g = call.gradient().as<T>().data();
        each_pool_window(
            call, w,
            [&](std::int64_t p, std::int64_t place, std::int64_t inside, std::int64_t padded, const std::vector<std::int64_t>& taps) {
                const T share = g[p * out + place] / static_cast<T>(std::max<std::int64_t>(count_padding ? padded : inside, 1));
                for (const std::int64_t at : taps) dx.as<T>()[static_cast<std::size_t>(p * in + at)] += share;
            });
        call.give(0, dx);
    });
}

/// Returns the slope of the p-norm y by its element x.
template <class T>
T norm_slope(T x, T y, double p) {
    if (y == 0 || x == 0) return 0;
    return static_cast<T>(
        std::copysign(std::pow(std::abs(static_cast<double>(x)) / static_cast<double>(y), p - 1), static_cast<double>(x)));
}

inline void lp_pool_backward(backward_call& call) {
    with_gradient_type(call, [&]<class T>(T) {
        const ops::window w = pool_window(call);
        const tensor x = call.real<T>(0), y = call.result<T>(0);
        tensor dx = zeros<T>(x.shape());
        const std::int64_t in = ops::product(w.input), out = ops::product(w.output);
        const double norm = ops::pool_norm(call.node());
        const T* g = call.gradient().as<T>().data();
        each_pool_window(call, w,
                         [&](std::int64_t p, std::int64_t place, std::int64_t, std::int64_t, const std::vector<std::int64_t>& taps) {
                             for (const std::int64_t tap : taps) {
                                 const auto at = static_cast<std::size_t>(p * in + tap), to = static_cast<std::size_t>(p * out + place);
                                 dx.as<T>()[at] += g[to] * norm_slope(x.as<T>()[at], y.as<T>()[to], norm);
                             }
                         });
        call.give(0, dx);
    });
}

/// Calls f(gradient, result, the plane's elements, their gradients) for every plane.
template <class F>
void each_plane(backward_call& call, F f) {
    with_gradient_type(call, [&]<class T>(T) {
        const tensor x = call.real<T>(0), y = call.result<T>(0);
        tensor dx = zeros<T>(x.shape());
        const std::size_t plane = y.size() == 0 ? 0 : x.size() / y.size();
        for (std::size_t i = 0; i < y.size(); ++i)
            f(call.gradient().as<T>()[i], y.as<T>()[i], x.as<T>().subspan(i * plane, plane), dx.as<T>().subspan(i * plane, plane));
        call.give(0, dx);
    });
}
inline void global_average_pool_backward(backward_call& call) {
    each_plane(call, []<class T>(T g, T, std::span<const T> x, std::span<T> dx) {
        for (T& v : dx) v = g / static_cast<T>(x.size());
    });
}
inline void global_max_pool_backward(backward_call& call) {
    each_plane(call, []<class T>(T g, T, std::span<const T> x, std::span<T> dx) {
        if (!x.empty()) dx[static_cast<std::size_t>(std::max_element(x.begin(), x.end()) - x.begin())] = g;
    });
}
inline void global_lp_pool_backward(backward_call& call) {
    const double p = ops::pool_norm(call.node());
    each_plane(call, [p]<class T>(T g, T y, std::span<const T> x, std::span<T> dx) {
        for (std::size_t i = 0; i < x.size(); ++i) dx[i] = g * norm_slope(x[i], y, p);
    });
}

inline constexpr backward_entry pooling_backward_rows[] = {
    {"", "MaxPool", 1, max_pool_backward},
    {"", "AveragePool", 1, average_pool_backward},
    {"", "LpPool", 1, lp_pool_backward},
    {"", "GlobalAveragePool", 1, global_average_pool_backward},
    {"", "GlobalMaxPool", 1, global_max_pool_backward},
    {"", "GlobalLpPool", 1, global_lp_pool_backward},
};

}  // namespace qk::graph::gradient
