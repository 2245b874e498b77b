// SPDX-License-Identifier: Apache-2.0
// Implements GridSample (any number of spatial axes; linear, nearest, cubic) and AffineGrid.
#pragma once

#include <cmath>
#include <vector>

#include "graph/ops/op.hpp"
#include "graph/ops/resize.hpp"
#include "graph/ops/walk/rules.hpp"
#include "graph/ops/working_type.hpp"

namespace qk::graph::ops {

namespace detail {

enum class grid_padding : std::uint8_t { zeros, border, reflection };

/// Mirrors x at low and high until it lies between them.
inline double reflected(double x, double low, double high) {
    const double range = high - low;
    if (range <= 0) return low;
    const double from_low = std::fabs(x - low);
    const double times = std::floor(from_low / range), rest = from_low - times * range;
    return std::fmod(times, 2.0) == 0 ? low + rest : high - rest;
}

/// The positions and weights by which one coordinate reads along one axis. A position of -1 reads zero.
struct grid_taps {
    std::size_t count = 0;
    std::int64_t index[4] = {};
    double weight[4] = {};
};

/// A pixel coordinate, and its derivative with respect to the normalized coordinate.
struct grid_position {
    double x = 0, slope = 0;
};

inline grid_position position_of(double normalized, std::int64_t length, bool align_corners, grid_padding padding, std::string_view mode) {
    const auto d = static_cast<double>(length);
    const double low = align_corners ? 0 : -0.5, high = align_corners ? d - 1 : d - 0.5;
    double x = align_corners ? (normalized + 1) / 2 * (d - 1) : ((normalized + 1) * d - 1) / 2;
    double slope = (align_corners ? d - 1 : d) / 2;
    if (!(std::fabs(x) < 1e9)) x = -1e9, slope = 0;  // NaN and absurd coordinates lie outside
    if (mode == "nearest") x = std::nearbyint(x), slope = 0;
    if (x < low || x > high) {
        if (padding == grid_padding::border) {
            if (x < 0 || x > d - 1) slope = 0;
            x = std::clamp(x, 0.0, d - 1);
        }
        if (padding == grid_padding::reflection) {
            if (std::fmod(std::floor(std::fabs(x - low) / std::max(high - low, 1e-300)), 2.0) != 0) slope = -slope;
            if (x < low) slope = -slope;
            if (high <= low) slope = 0;
            x = reflected(x, low, high);
        }
    }
    return {x, slope};
}

inline grid_taps taps_of(double normalized, std::int64_t length, bool align_corners, grid_padding padding, std::string_view mode) {
    const auto d = static_cast<double>(length);
    const double low = align_corners ? 0 : -0.5, high = align_corners ? d - 1 : d - 0.5;
    const double x = position_of(normalized, length, align_corners, padding, mode).x;
    const auto place = [&](std::int64_t i) -> std::int64_t {
        if (i >= 0 && i < length) return i;
        if (padding == grid_padding::zeros) return -1;
        if (padding == grid_padding::border) return std::clamp<std::int64_t>(i, 0, length - 1);
        return std::clamp<std::int64_t>(static_cast<std::int64_t>(reflected(static_cast<double>(i), low, high)), 0, length - 1);
    };
    grid_taps t;
    if (mode == "nearest") {
        t.count = 1;
        t.index[0] = place(static_cast<std::int64_t>(std::nearbyint(x)));
        t.weight[0] = 1;
        return t;
    }
    const auto base = static_cast<std::int64_t>(std::floor(x));
    const double fraction = x - static_cast<double>(base);
    const bool cubic = mode == "cubic";
    t.count = cubic ? 4 : 2;
    for (std::size_t i = 0; i < t.count; ++i) {
        const std::int64_t offset = static_cast<std::int64_t>(i) - (cubic ? 1 : 0);
        const double distance = fraction - static_cast<double>(offset);
        t.index[i] = place(base + offset);
        t.weight[i] = cubic ? cubic_weight(distance, -0.75) : 1 - std::fabs(distance);
    }
    return t;
}

}  // namespace detail

/// The attributes of GridSample.
struct grid_options {
    std::string mode;
    detail::grid_padding padding;
    bool align;
};

inline grid_options grid_options_of(const node_view& node) {
    grid_options o{node.get_string("mode", "linear"), detail::grid_padding::zeros, node.get_int("align_corners", 0) != 0};
    if (o.mode == "bilinear") o.mode = "linear";  // names before opset 20
    if (o.mode == "bicubic") o.mode = "cubic";
    if (o.mode != "linear" && o.mode != "nearest" && o.mode != "cubic")
        node.fail("mode '" + o.mode + "' is none of linear, nearest, cubic");
    const std::string padding = node.get_string("padding_mode", "zeros");
    if (padding == "border") o.padding = detail::grid_padding::border;
    else if (padding == "reflection") o.padding = detail::grid_padding::reflection;
    else if (padding != "zeros") node.fail("padding_mode '" + padding + "' is none of zeros, border, reflection");
    return o;
}

inline void run_grid_sample(op_context& call) {
    const tensor &given = call.input(0), &given_grid = call.input(1);
    if (given.rank() < 3 || given_grid.rank() != given.rank() || given_grid.shape().back() != static_cast<std::int64_t>(given.rank()) - 2 ||
        given_grid.dim(0) != given.dim(0)) {
        call.fail("X of shape " + to_string(given.shape()) + " and grid of shape " + to_string(given_grid.shape()) + " do not fit");
    }
    const grid_options options = grid_options_of(call.node());
    const std::size_t spatial = given.rank() - 2;
    const auto channels = static_cast<std::size_t>(given.dim(1));
    const std::size_t plane = product(given.shape(), 2, given.rank());
    dims shape{given.dim(0), given.dim(1)};
    shape.insert(shape.end(), given_grid.shape().begin() + 1, given_grid.shape().end() - 1);
    const std::size_t positions = product(shape, 2, shape.size());
    if (spatial > 8) call.fail("more than 8 spatial axes");  // each axis multiplies the number of taps
    if (plane == 0 && positions != 0) call.fail("X of shape " + to_string(given.shape()) + " has no pixels");
    const auto run = [&]<class T>(T) {
        const tensor x = input_as<T>(call, 0);
        const tensor grid = input_as<double>(call, 1);
        working_output<T> y(call, 0, given.type(), shape);
        std::vector<detail::grid_taps> taps(spatial);
        std::vector<std::size_t> offset;
        std::vector<T> weight;
        for (std::size_t n = 0; n < static_cast<std::size_t>(given.dim(0)); ++n)
            for (std::size_t p = 0; p < positions; ++p) {
                // The grid lists coordinates from the innermost axis to the outermost.
                const double* at = grid.as<double>().data() + (n * positions + p) * spatial;
                for (std::size_t a = 0; a < spatial; ++a)
                    taps[a] = detail::taps_of(at[spatial - 1 - a], given.dim(a + 2), options.align, options.padding, options.mode);
                offset.assign(1, 0);
                weight.assign(1, T{1});
                for (std::size_t a = 0; a < spatial; ++a) {
                    std::vector<std::size_t> next_offset;
                    std::vector<T> next_weight;
                    for (std::size_t i = 0; i < offset.size(); ++i)
                        for (std::size_t t = 0; t < taps[a].count; ++t) {
                            if (taps[a].index[t] < 0) continue;
                            next_offset.push_back(offset[i] * static_cast<std::size_t>(given.dim(a + 2)) +
                                                  static_cast<std::size_t>(taps[a].index[t]));
                            next_weight.push_back(weight[i] * static_cast<T>(taps[a].weight[t]));
                        }
                    offset.swap(next_offset);
                    weight.swap(next_weight);
                }
                for (std::size_t c = 0; c < channels; ++c) {
                    const T* from = x.as<T>().data() + (n * channels + c) * plane;
                    T sum = 0;
                    for (std::size_t i = 0; i < offset.size(); ++i) sum += from[offset[i]] * weight[i];
                    y.values()[(n * channels + c) * positions + p] = sum;
                }
            }
        y.store();
    };
    if (given.type() == data_type::float64 || is_integer_type(given.type())) run(double{});
    else run(float{});
}

inline void run_affine_grid(op_context& call) {
    const tensor& given = call.input(0);
    const std::vector<std::int64_t> size = integers(call, 1);
    if ((size.size() != 4 && size.size() != 5) || given.rank() != 3) call.fail("size needs 4 or 5 values and theta rank 3");
    const std::size_t spatial = size.size() - 2;
    const auto rank = static_cast<std::int64_t>(spatial);
    if (given.shape() != dims{size[0], rank, rank + 1})
        call.fail("theta has shape " + to_string(given.shape()) + ", not " + to_string(dims{size[0], rank, rank + 1}));
    const bool align = call.node().get_int("align_corners", 0) != 0;
    dims shape{size[0]};
    shape.insert(shape.end(), size.begin() + 2, size.end());
    shape.push_back(rank);
    with_working_type(given.type(), [&]<class T>(T) {
        const tensor theta = input_as<T>(call, 0);
        working_output<T> y(call, 0, given.type(), shape);
        T* to = y.data();
        const std::size_t positions = product(shape, 1, shape.size() - 1);
        T point[4];
        for (std::size_t n = 0; n < static_cast<std::size_t>(size[0]); ++n)
            for (std::size_t p = 0; p < positions; ++p) {
                std::size_t rest = p;
                for (std::size_t a = spatial; a-- > 0;) {  // innermost axis first, as the grid lists it
                    const auto length = static_cast<std::size_t>(size[a + 2]);
                    const T i = static_cast<T>(rest % length), l = static_cast<T>(length);
                    rest /= length;
                    point[spatial - 1 - a] = align ? (length == 1 ? T{-1} : 2 * i / (l - 1) - 1) : (2 * i + 1) / l - 1;
                }
                point[spatial] = 1;
                for (std::size_t r = 0; r < spatial; ++r) {
                    const T* row = theta.as<T>().data() + (n * spatial + r) * (spatial + 1);
                    T sum = 0;
                    for (std::size_t c = 0; c <= spatial; ++c) sum += row[c] * point[c];
                    *to++ = sum;
                }
            }
        y.store();
    });
}

inline constexpr op_entry grid_sample_ops[] = {
    {"", "GridSample", 16, run_grid_sample, nullptr, {follow_grid_sample}},
    {"", "AffineGrid", 20, run_affine_grid, nullptr, {follow_affine_grid, 2}, {0, all_but_first}},
};

}  // namespace qk::graph::ops
