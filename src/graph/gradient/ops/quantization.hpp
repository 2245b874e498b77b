// SPDX-License-Identifier: Apache-2.0
// Vector-Jacobian products of quantizers, straight-through: rounding counts as the identity, and the slope is 0 where a value is clipped. A
// scale's gradient is that of the straight-through form of scale * (clip(round(x / scale) + zero) - zero) (Esser et al. 2020, equation 3).
#pragma once

#include <cmath>
#include <vector>

#include "graph/gradient/backward.hpp"
#include "graph/ops/quantize_linear.hpp"

namespace qk::graph::gradient {

/// Calls f(element, scale), two indices, for every element of x, whose shape is `shape`.
template <class F>
void each_scaled(const backward_call& call, const dims& shape, F&& f) {
    const op_context context = call.context();
    const ops::scale_grid grid =
        ops::make_scale_grid(context, shape, call.input(1), call.node().get_int("axis", 1), call.node().get_int("block_size", 0));
    grid.for_each_run([&](std::size_t begin, std::size_t n, std::size_t s) {
        for (std::size_t i = begin; i < begin + n; ++i) f(i, s);
    });
}

inline double largest_code(data_type t) {
    if (ops::is_integer_type(t)) return static_cast<double>(ops::highest_code(t));
    if (t == data_type::float16) return 65504;
    if (t == data_type::bfloat16 || t == data_type::float32) return std::numeric_limits<double>::max();
    double most = 0;
    for (const float v : ops::small_float_table(t))
        if (std::isfinite(v)) most = std::max(most, static_cast<double>(v));
    return most;
}

inline void quantize_linear_backward(backward_call& call) {
    with_gradient_type(call, [&]<class T>(T) {
        const tensor x = call.real<T>(0), scale = call.real<T>(1);
        const data_type codes = call.output(0).type();
        const double high = largest_code(codes), low = ops::is_integer_type(codes) ? static_cast<double>(ops::lowest_code(codes)) : -high;
        const bool shifted = call.has_input(2) && ops::is_integer_type(codes);
        const tensor zero = shifted ? as_real<T>(call.input(2)) : tensor();
        tensor dx(type_of<T>, x.shape());
        std::vector<double> ds(scale.size(), 0.0);
        each_scaled(call, x.shape(), [&](std::size_t i, std::size_t s) {
            const double by = static_cast<double>(scale.as<T>()[s]), ratio = static_cast<double>(x.as<T>()[i]) / by;
            const double shift = shifted ? static_cast<double>(zero.as<T>()[zero.size() == 1 ? 0 : s]) : 0.0;
            const double code = ops::is_integer_type(codes) ? std::nearbyint(ratio) + shift : ratio;
            const bool inside = code >= low && code <= high;
            const double g = inside ? static_cast<double>(call.gradient().as<T>()[i]) / by : 0.0;
            dx.as<T>()[i] = static_cast<T>(g);
            ds[s] -= g * ratio;
        });
        call.give(0, dx);
        if (call.wants(1)) call.give(1, rounded_sums<T>(ds, scale.shape()));
    });
}

inline void dequantize_linear_backward(backward_call& call) {
    with_gradient_type(call, [&]<class T>(T) {
        const tensor x = as_real<T>(call.input(0)), scale = call.real<T>(1);
        const bool shifted = call.has_input(2) && ops::is_integer_type(call.input(2).type());
        const tensor zero = shifted ? as_real<T>(call.input(2)) : tensor();
        tensor dx(type_of<T>, x.shape());
        std::vector<double> ds(scale.size(), 0.0);
        each_scaled(call, x.shape(), [&](std::size_t i, std::size_t s) {
            const T g = call.gradient().as<T>()[i];
            dx.as<T>()[i] = g * scale.as<T>()[s];
            const double shift = shifted ? static_cast<double>(zero.as<T>()[zero.size() == 1 ? 0 : s]) : 0.0;
            ds[s] += static_cast<double>(g) * (static_cast<double>(x.as<T>()[i]) - shift);
        });
        call.give(0, dx);
        if (call.wants(1)) call.give(1, rounded_sums<T>(ds, scale.shape()));
    });
}

/// Handles block formats and their like: each block finds its own exponent, so nothing is clipped.
inline void straight_through_backward(backward_call& call) { call.give(0, call.gradient()); }

inline constexpr backward_entry quantization_backward_rows[] = {
    {"", "QuantizeLinear", 1, quantize_linear_backward},
    {"", "DequantizeLinear", 1, dequantize_linear_backward},
    {"com.microsoft", "QuantizeLinear", 1, quantize_linear_backward},
    {"com.microsoft", "DequantizeLinear", 1, dequantize_linear_backward},
};

/// Those of the old domain com.vai.quantize are the same.
inline constexpr backward_entry amd_backward_rows[] = {
    {"com.amd.quark", "ExtendedQuantizeLinear", 1, quantize_linear_backward},
    {"com.amd.quark", "ExtendedDequantizeLinear", 1, dequantize_linear_backward},
    {"com.amd.quark", "VitisQuantizeLinear", 1, quantize_linear_backward},
    {"com.amd.quark", "VitisDequantizeLinear", 1, dequantize_linear_backward},
    {"com.amd.quark", "BFPQuantizeDequantize", 1, straight_through_backward},
    {"com.amd.quark", "MXQuantizeDequantize", 1, straight_through_backward},
    {"com.amd.quark", "BFPFixNeuron", 1, straight_through_backward},
    {"com.amd.quark", "MXFixNeuron", 1, straight_through_backward},
};

}  // namespace qk::graph::gradient
