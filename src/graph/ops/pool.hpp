// SPDX-License-Identifier: Apache-2.0
// Implements MaxPool, AveragePool, LpPool and their global forms for any number of spatial axes.
#pragma once

#include <cmath>
#include <limits>
#include <vector>

#include "graph/ops/dispatch.hpp"
#include "graph/ops/layouts.hpp"
#include "graph/ops/types.hpp"
#include "graph/ops/walk/rules.hpp"
#include "graph/ops/window.hpp"

namespace qk::graph::ops {

/// Calls, for each window: start(); then visit(offset in the plane) for every tap inside the input; then finish(output position, taps
/// inside the input, taps inside the padded input).
template <class Start, class Visit, class Finish>
void for_each_window(const window& w, const Start& start, const Visit& visit, const Finish& finish) {
    const std::size_t rank = w.rank();
    std::vector<std::int64_t> o(rank, 0), k(rank, 0), first(rank, 0), taps(rank, 0);
    std::int64_t place = 0;
    do {
        start();
        std::int64_t inside = 1, padded = 1;
        for (std::size_t i = 0; i < rank; ++i) {
            const tap_range t = taps_of(w, i, o[i]);
            first[i] = o[i] * w.stride[i] - w.pad_begin[i] + t.begin * w.dilation[i];
            taps[i] = t.size();
            inside *= t.size();
            padded *= t.padded;
        }
        std::fill(k.begin(), k.end(), 0);
        if (inside != 0) do {
                std::int64_t at = 0;
                for (std::size_t i = 0; i < rank; ++i) at = at * w.input[i] + first[i] + k[i] * w.dilation[i];
                visit(at);
            } while (advance(k, taps));
        finish(place++, inside, padded);
    } while (advance(o, w.output));
}

inline std::vector<std::int64_t> pool_kernel(op_context& c) {
    auto kernel = c.node().get_ints("kernel_shape");
    if (kernel.empty()) c.fail("attribute 'kernel_shape' is missing");
    return kernel;
}

template <class T>
void max_pool_of(op_context& c) {
    const tensor& x = c.input(0);
    const window w = make_window(c.node(), x.shape(), pool_kernel(c), c.node().get_int("ceil_mode", 0) != 0);
    tensor& y = c.output(0, x.type(), image_shape(x.dim(0), x.dim(1), w.output));
    const std::int64_t planes = x.dim(0) * x.dim(1), in_size = product(w.input), out_size = product(w.output);
    const T* xp = x.as<T>().data();
    T* yp = y.as<T>().data();
    if (y.size() == 0) return;
    constexpr T lowest = std::numeric_limits<T>::has_infinity ? -std::numeric_limits<T>::infinity() : std::numeric_limits<T>::lowest();
    if (!c.wants(1) && w.rank() == 2 && w.kernel[1] <= 2 * w.input[1] + 16) {  // row by row, unless a huge kernel has mostly padded taps
        for (std::int64_t p = 0; p < planes; ++p)
            for (std::int64_t i = 0; i < w.output[0]; ++i) {
                T* out = yp + p * out_size + i * w.output[1];
                std::fill(out, out + w.output[1], lowest);
                const tap_range rows = taps_of(w, 0, i);
                for (std::int64_t a = rows.begin; a < rows.end; ++a) {
                    const T* row = xp + p * in_size + (i * w.stride[0] - w.pad_begin[0] + a * w.dilation[0]) * w.input[1];
                    for (std::int64_t b = 0; b < w.kernel[1]; ++b) {
                        const std::int64_t s = w.stride[1], first = b * w.dilation[1] - w.pad_begin[1];
                        const auto [from, to] = outputs_inside(first, s, w.input[1], w.output[1]);
                        for (std::int64_t j = from; j < to; ++j) out[j] = std::max(out[j], row[first + j * s]);
                    }
                }
            }
        return;
    }
    // Indices count through the whole input tensor in row-major order; with storage_order 1 each plane is column-major.
    const bool column_major = c.node().get_int("storage_order", 0) != 0;
    std::int64_t* indices = c.wants(1) ? c.output(1, data_type::int64, y.shape()).template as<std::int64_t>().data() : nullptr;
    for (std::int64_t p = 0; p < planes; ++p) {
        T best = lowest;
        std::int64_t where = 0;
        for_each_window(
            w, [&] { best = lowest, where = -1; },
            [&](std::int64_t at) {
                if (const T v = xp[p * in_size + at]; where < 0 || v > best) best = v, where = at;
            },
            [&](std::int64_t place, std::int64_t, std::int64_t) {
                yp[p * out_size + place] = best;
                if (indices == nullptr) return;
                std::int64_t at = where;
                if (column_major && where >= 0) {
                    std::int64_t rest = where;
                    at = 0;
                    for (std::size_t i = w.rank(); i-- > 0;) {
                        std::int64_t step = 1;
                        for (std::size_t j = 0; j < i; ++j) step *= w.input[j];
                        at += rest % w.input[i] * step;
                        rest /= w.input[i];
                    }
                }
                indices[p * out_size + place] = p * in_size + at;
            });
    }
}

inline void max_pool(op_context& c) {
    run_by_type(c, float_types + type_list<std::int8_t, std::uint8_t>{}, "input of type ", " is not a type of MaxPool",
                []<class T>(type_tag<T>, op_context& call) { max_pool_of<T>(call); });
}

template <class T>
void average_pool_of(op_context& c) {
    const tensor& x = c.input(0);
    const window w = make_window(c.node(), x.shape(), pool_kernel(c), c.node().get_int("ceil_mode", 0) != 0);
    const bool count_padding = c.node().get_int("count_include_pad", 0) != 0;
    tensor& y = c.output(0, x.type(), image_shape(x.dim(0), x.dim(1), w.output));
    if (y.size() == 0) return;
    const std::int64_t planes = x.dim(0) * x.dim(1), in_size = product(w.input), out_size = product(w.output);
    const T* xp = x.as<T>().data();
    T* yp = y.as<T>().data();
    for (std::int64_t p = 0; p < planes; ++p) {
        T sum = 0;
        for_each_window(
            w, [&] { sum = 0; }, [&](std::int64_t at) { sum += xp[p * in_size + at]; },
            [&](std::int64_t place, std::int64_t inside, std::int64_t padded) {
                yp[p * out_size + place] = sum / static_cast<T>(std::max<std::int64_t>(count_padding ? padded : inside, 1));
            });
    }
}

/// Returns attribute p of LpPool and GlobalLpPool.
inline double pool_norm(const node_view& node) {
    return node.version() < 2 ? static_cast<double>(node.get_float("p", 2.0f)) : static_cast<double>(node.get_int("p", 2));
}

template <class T>
void lp_pool_of(op_context& c) {
    const tensor& x = c.input(0);
    const window w = make_window(c.node(), x.shape(), pool_kernel(c), c.node().get_int("ceil_mode", 0) != 0);
    const double p = pool_norm(c.node());
    tensor& y = c.output(0, x.type(), image_shape(x.dim(0), x.dim(1), w.output));
    if (y.size() == 0) return;
    const std::int64_t planes = x.dim(0) * x.dim(1), in_size = product(w.input), out_size = product(w.output);
    const T* xp = x.as<T>().data();
    T* yp = y.as<T>().data();
    for (std::int64_t i = 0; i < planes; ++i) {
        double sum = 0;
        for_each_window(
            w, [&] { sum = 0; }, [&](std::int64_t at) { sum += std::pow(std::abs(static_cast<double>(xp[i * in_size + at])), p); },
            [&](std::int64_t place, std::int64_t, std::int64_t) { yp[i * out_size + place] = static_cast<T>(std::pow(sum, 1.0 / p)); });
    }
}

enum class global_pool { average, maximum, norm };

template <class T, global_pool Kind>
void global_pool_of(op_context& c) {
    const tensor& x = c.input(0);
    if (x.rank() < 2) c.fail("input of shape " + to_string(x.shape()) + " needs a batch axis, a channel axis and spatial axes");
    dims shape(x.rank(), 1);
    shape[0] = x.dim(0), shape[1] = x.dim(1);
    tensor& y = c.output(0, x.type(), shape);
    const double p = Kind != global_pool::norm ? 0 : pool_norm(c.node());
    if (y.size() == 0) return;
    const std::size_t plane = x.size() / y.size();
    for (std::size_t i = 0; i < y.size(); ++i) {
        const auto in = x.as<T>().subspan(i * plane, plane);
        double sum = 0;  // double, so that accuracy does not depend on the number of values
        T best = plane == 0 ? T(0) : in[0];
        for (const T v : in) {
            if constexpr (Kind == global_pool::average) sum += static_cast<double>(v);
            if constexpr (Kind == global_pool::maximum) best = std::max(best, v);
            if constexpr (Kind == global_pool::norm) sum += std::pow(std::abs(static_cast<double>(v)), p);
        }
        if constexpr (Kind == global_pool::average) best = static_cast<T>(sum / static_cast<double>(plane));
        if constexpr (Kind == global_pool::norm) best = static_cast<T>(std::pow(sum, 1.0 / p));
        y.as<T>()[i] = best;
    }
}

/// Calls Single for float32, Double for float64; float16 and bfloat16 are computed in float32.
template <void (*Single)(op_context&), void (*Double)(op_context&)>
void floating_only(op_context& c) {
    switch (c.input(0).type()) {
        case data_type::float32: return Single(c);
        case data_type::float64: return Double(c);
        case data_type::float16:
        case data_type::bfloat16: return through_float32<Single>(c);
        default: c.fail(std::string("input of type ") + name_of(c.input(0).type()) + " is not a floating-point type");
    }
}

// clang-format off
inline constexpr op_entry pool_ops[] = {
    {"", "MaxPool", 1, max_pool, nullptr, {follow_pool}, {.traits = mover | exact | of_pictures | channels_second, .types = gives_beside<data_type::int64>, .layout = max_pool_layout}},
    {"", "AveragePool", 1, floating_only<average_pool_of<float>, average_pool_of<double>>, nullptr,
     {follow_pool}, {.traits = neighbour | of_pictures | channels_second, .layout = lies<layout_rule::average_pool>}},
    {"", "LpPool", 1, floating_only<lp_pool_of<float>, lp_pool_of<double>>, nullptr, {follow_pool}},
    {"", "GlobalAveragePool", 1,
     floating_only<global_pool_of<float, global_pool::average>, global_pool_of<double, global_pool::average>>, nullptr,
     {follow_pool}, {.traits = neighbour | of_pictures | channels_second, .layout = lies<layout_rule::global_average>}},
    {"", "GlobalMaxPool", 1,
     floating_only<global_pool_of<float, global_pool::maximum>, global_pool_of<double, global_pool::maximum>>, nullptr,
     {follow_pool}, {mover | of_pictures | channels_second}},
    {"", "GlobalLpPool", 1,
     floating_only<global_pool_of<float, global_pool::norm>, global_pool_of<double, global_pool::norm>>, nullptr,
     {follow_pool}},
};
// clang-format on

}  // namespace qk::graph::ops
