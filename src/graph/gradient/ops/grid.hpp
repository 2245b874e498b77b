// SPDX-License-Identifier: Apache-2.0
// Vector-Jacobian products of GridSample, by X and by the grid, of AffineGrid and of Col2Im.
#pragma once

#include <cmath>
#include <vector>

#include "graph/gradient/backward.hpp"
#include "graph/ops/grid_sample.hpp"
#include "graph/ops/unpool.hpp"

namespace qk::graph::gradient {

/// Returns the derivative of ops::cubic_weight by its first argument.
inline double cubic_slope(double x, double a) {
    const double at = std::fabs(x), sign = x < 0 ? -1 : 1;
    if (at <= 1) return sign * at * (3 * (a + 2) * at - 2 * (a + 3));
    if (at < 2) return sign * ((3 * a * at - 10 * a) * at + 8 * a);
    return 0;
}

/// The taps of one coordinate, and the derivatives of their weights by the coordinate.
struct moving_taps {
    ops::detail::grid_taps taps;
    double slope[4] = {};

    moving_taps(double normalized, std::int64_t length, const ops::grid_options& o)
        : taps(ops::detail::taps_of(normalized, length, o.align, o.padding, o.mode)) {
        const auto [x, moves] = ops::detail::position_of(normalized, length, o.align, o.padding, o.mode);
        const double fraction = x - std::floor(x);
        for (std::size_t t = 0; t < taps.count && o.mode != "nearest"; ++t) {
            const double distance = fraction - static_cast<double>(t) + (o.mode == "cubic" ? 1 : 0);
            slope[t] = moves * (o.mode == "cubic" ? cubic_slope(distance, -0.75) : t == 0 ? -1.0 : 1.0);
        }
    }
};

/// A pixel that a position of the grid reads: its weight, and by axis the derivative of the weight by the coordinate.
struct read_pixel {
    std::size_t offset = 0;
    double weight = 1;
    std::vector<double> slope;
};

inline std::vector<read_pixel> pixels_of(const double* at, const tensor& x, const ops::grid_options& o) {
    const std::size_t spatial = x.rank() - 2;
    std::vector<read_pixel> pixels(1);
    for (std::size_t a = 0; a < spatial; ++a) {
        const moving_taps axis(at[spatial - 1 - a], x.dim(a + 2), o);  // the grid lists the innermost axis first
        std::vector<read_pixel> next;
        for (const read_pixel& p : pixels)
            for (std::size_t t = 0; t < axis.taps.count; ++t) {
                if (axis.taps.index[t] < 0) continue;
                read_pixel q{p.offset * static_cast<std::size_t>(x.dim(a + 2)) + static_cast<std::size_t>(axis.taps.index[t]),
                             p.weight * axis.taps.weight[t], p.slope};
                for (double& s : q.slope) s *= axis.taps.weight[t];
                q.slope.push_back(p.weight * axis.slope[t]);
                next.push_back(std::move(q));
            }
        pixels.swap(next);
    }
    return pixels;
}

inline void grid_sample_backward(backward_call& call) {
    const ops::grid_options o = ops::grid_options_of(call.node());
    with_gradient_type(call, [&]<class T>(T) {
        const tensor x = call.real<T>(0), grid = call.real<double>(1);
        const std::size_t spatial = x.rank() - 2, channels = static_cast<std::size_t>(x.dim(1)),
                          plane = ops::product(x.shape(), 2, x.rank()), positions = ops::product(grid.shape(), 1, grid.rank() - 1);
        tensor dx = zeros<T>(x.shape());
        tensor dgrid = tensor(data_type::float64, grid.shape());
        std::fill(dgrid.as<double>().begin(), dgrid.as<double>().end(), 0.0);
        const T* g = call.gradient().as<T>().data();
        for (std::size_t n = 0; n < static_cast<std::size_t>(x.dim(0)); ++n)
            for (std::size_t p = 0; p < positions; ++p) {
                const std::size_t row = (n * positions + p) * spatial;
                for (const read_pixel& q : pixels_of(grid.as<double>().data() + row, x, o)) {
                    double along = 0;
                    for (std::size_t c = 0; c < channels; ++c) {
                        const T of = g[(n * channels + c) * positions + p];
                        const std::size_t pixel = (n * channels + c) * plane + q.offset;
                        dx.as<T>()[pixel] += of * static_cast<T>(q.weight);
                        along += static_cast<double>(of) * static_cast<double>(std::as_const(x).as<T>()[pixel]);
                    }
                    for (std::size_t a = 0; a < spatial; ++a) dgrid.as<double>()[row + spatial - 1 - a] += along * q.slope[a];
                }
            }
        call.give(0, dx);
        if (call.wants(1)) call.give(1, dgrid);
    });
}

/// The grid is linear in theta: run on a theta of zeros and ones, the operator gives the points that theta's columns multiply.
inline void affine_grid_backward(backward_call& call) {
    with_gradient_type(call, [&]<class T>(T) {
        const dims shape = call.input(0).shape();
        const auto batch = static_cast<std::size_t>(shape[0]), rows = static_cast<std::size_t>(shape[1]), columns = rows + 1;
        tensor ones = zeros<T>(shape);
        for (std::size_t n = 0; n < batch; ++n)
            for (std::size_t r = 0; r < rows; ++r) ones.as<T>()[(n * rows + r) * columns + r] = 1;
        const std::vector<tensor> in{ones, call.input(1)};
        const tensor points = as_real<T>(call.forward(in)[0]);
        tensor d = zeros<T>(shape);
        const T *g = call.gradient().as<T>().data(), *at = std::as_const(points).as<T>().data();
        const std::size_t positions = batch == 0 ? 0 : points.size() / (batch * rows);
        for (std::size_t n = 0; n < batch; ++n)
            for (std::size_t p = n * positions; p < (n + 1) * positions; ++p)
                for (std::size_t r = 0; r < rows; ++r)
                    for (std::size_t c = 0; c < columns; ++c)
                        d.as<T>()[(n * rows + r) * columns + c] += g[p * rows + r] * (c < rows ? at[p * rows + c] : T{1});
        call.give(0, d);
    });
}

inline void col2im_backward(backward_call& call) {
    op_context context = call.context();
    const ops::column_places places = ops::places_of_columns(context);
    with_gradient_type(call, [&]<class T>(T) {
        tensor d = zeros<T>(call.input(0).shape());
        const T* g = call.gradient().as<T>().data();
        places.each([&](std::size_t from, std::size_t to) { d.as<T>()[from] = g[to]; });
        call.give(0, d);
    });
}

inline constexpr backward_entry grid_backward_rows[] = {
    {"", "Col2Im", 18, col2im_backward},
    {"", "GridSample", 16, grid_sample_backward},
    {"", "AffineGrid", 20, affine_grid_backward},
};

}  // namespace qk::graph::gradient
