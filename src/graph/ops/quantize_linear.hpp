// SPDX-License-Identifier: Apache-2.0
// Implements QuantizeLinear and DequantizeLinear (per tensor, per axis, blocked; every type) and DynamicQuantizeLinear.
// docs/reference/numerics.md, "Elementwise".
#pragma once

#include <cmath>
#include <string>

#include "graph/base/kernel_calls.hpp"
#include "graph/ops/cast.hpp"
#include "graph/ops/elements.hpp"
#include "graph/ops/layouts.hpp"
#include "graph/ops/op.hpp"
#include "graph/ops/types.hpp"
#include "graph/ops/walk/rules.hpp"
#include "graph/ops/working_type.hpp"

namespace qk::graph::ops {

// Maps elements to their scales: per tensor, per axis or blocked, as QuantizeLinear's documentation defines them.

/// A tensor seen as [outer][length][inner]. The scale of element (o, k, i) has the index `index(o, k, i)`.
struct scale_grid {
    std::size_t outer = 1, length = 1, inner = 1;
    std::size_t block = 0;   ///< elements along `length` under one scale; 0: one scale for the whole tensor
    std::size_t blocks = 1;  ///< scales along `length`
    bool blocked = false;    ///< the scale also varies over outer and inner

    std::size_t index(std::size_t o, std::size_t k, std::size_t i) const {
        if (block == 0) return 0;
        return blocked ? (o * blocks + k / block) * inner + i : k;
    }

    /// Calls f(begin, count, scale index) for runs of contiguous elements that share a scale.
    template <class F>
    void for_each_run(F&& f) const {
        if (block == 0) return f(std::size_t{0}, outer * length * inner, std::size_t{0});
        for (std::size_t o = 0; o < outer; ++o) {
            if (blocked && inner == 1) {
                for (std::size_t k = 0; k < length; k += block) f(o * length + k, std::min(block, length - k), index(o, k, 0));
                continue;
            }
            for (std::size_t k = 0; k < length; ++k) {
                const std::size_t begin = (o * length + k) * inner;
                if (!blocked) f(begin, inner, k);
                else
                    for (std::size_t i = 0; i < inner; ++i) f(begin + i, std::size_t{1}, index(o, k, i));
            }
        }
    }
};

/// Makes the grid that the shapes of x and its scale describe. Errors name the node.
inline scale_grid make_scale_grid(const op_context& call, const dims& x, const tensor& scale, std::int64_t axis_attribute,
                                  std::int64_t block_size) {
    scale_grid g;
    if (scale.rank() == 0 || scale.size() == 1) {
        g.inner = product(x, 0, x.size());
        return g;
    }
    // The scales of a vector run along its only axis, whatever the attribute says.
    const std::size_t axis = x.size() == 1 ? 0 : normal_axis(call, axis_attribute, x.size());
    g.outer = product(x, 0, axis);
    g.length = static_cast<std::size_t>(x[axis]);
    g.inner = product(x, axis + 1, x.size());
    if (block_size < 0) call.fail("block_size " + std::to_string(block_size) + " is negative");
    if (scale.rank() == 1 && block_size == 0) {
        if (scale.size() != g.length) {
            call.fail("a scale of shape " + to_string(scale.shape()) + " does not fit axis " + std::to_string(axis) + " of " +
                      to_string(x));
        }
        g.block = 1;
        g.blocks = g.length;
        return g;
    }
    g.blocked = true;
    const std::size_t given = scale.rank() == x.size() ? static_cast<std::size_t>(scale.dim(axis)) : 0;
    if (given == 0) call.fail("a scale of shape " + to_string(scale.shape()) + " does not fit " + to_string(x));
    g.block = block_size > 0 ? static_cast<std::size_t>(block_size) : (g.length + given - 1) / given;
    g.block = std::max<std::size_t>(g.block, 1);
    g.blocks = (g.length + g.block - 1) / g.block;
    dims expected = x;
    expected[axis] = static_cast<std::int64_t>(g.blocks);
    if (scale.shape() != expected) {
        call.fail("blocks of " + std::to_string(g.block) + " along axis " + std::to_string(axis) + " of " + to_string(x) +
                  " need a scale of shape " + to_string(expected) + ", not " + to_string(scale.shape()));
    }
    return g;
}

namespace detail {

/// Computes round(x / scale) + zero_point, clamped. NaN becomes the lowest code, as in ONNX Runtime. T has at most 16 bits, so the bounds
/// minus the zero point are exact floats and the clamp may come before the addition.
template <class T>
void quantize_run(const float* x, std::size_t n, float scale, std::int64_t zero_point, std::int64_t lowest, std::int64_t highest, T* y) {
    const auto low = static_cast<float>(lowest - zero_point);
    const auto high = static_cast<float>(highest - zero_point);
    const auto shift = static_cast<std::int32_t>(zero_point);
    for (std::size_t i = 0; i < n; ++i) {
        float q = std::nearbyint(x[i] / scale);
        q = q > low ? q : low;
        q = q < high ? q : high;
        y[i] = static_cast<T>(static_cast<std::int32_t>(q) + shift);
    }
}

inline float round_to_half(data_type t, float x) { return t == data_type::float16 ? to_float(to_half(x)) : to_float(to_brain(x)); }

}  // namespace detail

/// Quantizes x under a grid of scales into codes of y's type: an integer of at most 32 bits, or a small float. For a small float
/// `float_zero` is added to the quotients; -0 changes nothing.
void quantize_elements(const op_context& call, std::span<const float> x, const scale_grid& grid, std::span<const float> scale,
                       std::span<const std::int64_t> zero_point, tensor& y, bool saturate = true, float float_zero = -0.0f);

/// Computes y = (x - zero_point) * scale as float. The integer difference is exact; it is rounded to float once, then multiplied.
void dequantize_elements(const op_context& call, const tensor& x, const scale_grid& grid, std::span<const float> scale,
                         std::span<const std::int64_t> zero_point, std::span<float> y);

/// Returns the zero points of codes of type `codes`: one, or as many as there are scales (input 1). Small floats have only the zero point
/// 0, so the result is empty.
inline std::vector<std::int64_t> zero_points(op_context& call, std::size_t i, data_type codes) {
    if (!call.has_input(i) || !is_integer_type(codes)) return {};
    const tensor given = zero_point_of<std::int64_t>(call, i, codes);
    const auto zero = given.as<std::int64_t>();
    if (zero.size() != 1 && zero.size() != call.input(1).size())
        call.fail("the zero point has " + std::to_string(zero.size()) + " elements, the scale " + std::to_string(call.input(1).size()));
    return {zero.begin(), zero.end()};
}

/// Returns the zero point that is added before rounding to float4e2m1 or float6 types: a given 0 turns -0 into +0. Other types: -0.
inline float small_float_zero(op_context& call, std::size_t i, data_type type) {
    if (!call.has_input(i) || is_integer_type(type) || call.input(i).size() == 0 || format_of(type).specials != specials::none)
        return -0.0f;
    return input_as<float>(call, i).as<float>()[0];
}

inline void run_quantize_linear(op_context& call) {
    const node_view& node = call.node();
    const tensor& x = call.input(0);
    const tensor& y_scale = call.input(1);
    auto type = static_cast<data_type>(node.get_int("output_dtype", 0));
    if (call.has_input(2)) {
        if (type != data_type::undefined && type != call.input(2).type()) {
            call.fail(std::string("output_dtype ") + name_of(type) + " and a zero point of type " + name_of(call.input(2).type()) +
                      " disagree");
        }
        type = call.input(2).type();
    }
    if (type == data_type::undefined) type = data_type::uint8;
    const scale_grid grid = make_scale_grid(call, x.shape(), y_scale, node.get_int("axis", 1), node.get_int("block_size", 0));

    tensor values = input_as<float>(call, 0);
    tensor scale = input_as<float>(call, 1);
    auto precision = static_cast<data_type>(node.get_int("precision", 0));
    // Without `precision` the division is done in the scale's type; a float32 x makes it float32.
    if (precision == data_type::undefined && is_narrow_float(y_scale.type()) && x.type() == y_scale.type()) precision = y_scale.type();
    if (!is_narrow_float(precision)) {
        tensor& y = call.output(0, type, x.shape());
        quantize_elements(call, values.as<float>(), grid, scale.as<float>(), zero_points(call, 2, type), y,
                          node.get_int("saturate", 1) != 0, small_float_zero(call, 2, type));
        return;
    }
    // A quotient of two numbers of at most 11 bits, rounded to 24 and then to 11 bits, equals the quotient rounded once.
    tensor quotient = call.scratch(data_type::float32, x.shape());
    const auto to = quotient.as<float>();
    const auto from = values.as<float>();
    const auto by = scale.as<float>();
    grid.for_each_run([&](std::size_t begin, std::size_t n, std::size_t s) {
        const float divisor = detail::round_to_half(precision, by[s]);
        for (std::size_t i = begin; i < begin + n; ++i) {
            to[i] = detail::round_to_half(precision, detail::round_to_half(precision, from[i]) / divisor);
        }
    });
    const std::vector<float> ones(scale.size(), 1.0f);
    tensor& y = call.output(0, type, x.shape());
    quantize_elements(call, to, grid, ones, zero_points(call, 2, type), y, node.get_int("saturate", 1) != 0,
                      small_float_zero(call, 2, type));
}

inline void run_dequantize_linear(op_context& call) {
    const node_view& node = call.node();
    const tensor& x = call.input(0);
    const tensor& x_scale = call.input(1);
    auto type = static_cast<data_type>(node.get_int("output_dtype", 0));
    if (type == data_type::undefined) type = is_small_float(x_scale.type()) ? data_type::float32 : x_scale.type();
    const scale_grid grid = make_scale_grid(call, x.shape(), x_scale, node.get_int("axis", 1), node.get_int("block_size", 0));
    const tensor scale = input_as<float>(call, 1);
    working_output<float> y(call, 0, type, x.shape());
    dequantize_elements(call, x, grid, scale.as<float>(), zero_points(call, 2, x.type()), y.values());
    y.store();
}

struct dynamic_scale {
    float scale;
    std::uint8_t zero;
};
/// Computes scale = (max(x, 0) - min(x, 0)) / 255 and zero = round(-min(x, 0) / scale).
inline dynamic_scale dynamic_scale_of(std::span<const float> x) {
    float low = 0, high = 0;
    for (const float v : x) {
        low = std::min(low, v);
        high = std::max(high, v);
    }
    const float scale = high == low ? 1.0f : (high - low) / 255.0f;
    const float place = -low / scale;
    return {scale, static_cast<std::uint8_t>(place > 0 ? std::nearbyint(std::min(place, 255.0f)) : 0.0f)};  // an infinite range: NaN, 0
}

inline void run_dynamic_quantize_linear(op_context& call) {
    const tensor x = input_as<float>(call, 0);
    const dynamic_scale s = dynamic_scale_of(x.as<float>());
    call.output(1, data_type::float32, {}).as<float>()[0] = s.scale;
    call.output(2, data_type::uint8, {}).as<std::uint8_t>()[0] = s.zero;
    tensor& y = call.output(0, data_type::uint8, x.shape());
    detail::quantize_run(x.as<float>().data(), x.size(), s.scale, s.zero, 0, 255, y.as<std::uint8_t>().data());
}

/// Attribute output_dtype names the type, else the zero point has it, else it is uint8.
inline type_source quantized_types(const onnx::NodeProto& n, int) {
    if (const auto said = static_cast<data_type>(graph::detail::int_attribute(n, "output_dtype", 0)); said != data_type::undefined)
        return {-1, said};
    return has_input(n, 2) ? type_source{2} : type_source{-1, data_type::uint8};
}
/// Attribute output_dtype names the type, else it is that of the scale. Scales of 8 bits give float32.
inline type_source dequantized_types(const onnx::NodeProto& n, int) {
    if (const auto said = static_cast<data_type>(graph::detail::int_attribute(n, "output_dtype", 0)); said != data_type::undefined)
        return {-1, said};
    return {1, data_type::undefined, [](data_type scale) { return is_small_float(scale) ? data_type::float32 : scale; }};
}
inline type_source dynamic_types(const onnx::NodeProto&, int output) { return {-1, output == 1 ? data_type::float32 : data_type::uint8}; }

// clang-format off
inline constexpr op_entry quantize_linear_ops[] = {
    {"", "QuantizeLinear", 10, run_quantize_linear, nullptr,
     {follow_quantize}, {.traits = exact | makes_codes | repeats | on_codes, .types = quantized_types, .inputs = 2, .layout = scaled_layout}},
    {"", "DequantizeLinear", 10, run_dequantize_linear, nullptr,
     {follow_quantize}, {.traits = exact | repeats | on_codes, .types = dequantized_types, .inputs = 2, .layout = scaled_layout}},
    {"", "DynamicQuantizeLinear", 11, run_dynamic_quantize_linear, nullptr,
     {follow_dynamic_quantize}, {.traits = makes_codes | on_codes, .types = dynamic_types, .outputs = 3}},
    {"com.microsoft", "QuantizeLinear", 1, run_quantize_linear, nullptr,
     {follow_quantize}, {.traits = exact | makes_codes | repeats | on_codes, .types = quantized_types, .layout = scaled_layout}},
    {"com.microsoft", "DequantizeLinear", 1, run_dequantize_linear, nullptr,
     {follow_quantize}, {.traits = exact | repeats | on_codes, .types = dequantized_types, .layout = scaled_layout}},
};
// clang-format on

}  // namespace qk::graph::ops
