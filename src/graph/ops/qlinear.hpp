// SPDX-License-Identifier: Apache-2.0
// Implements com.microsoft's QLinear operators: a float operator of the standard between a dequantization and a quantization.
#pragma once

#include <cmath>
#include <string_view>
#include <vector>

#include "graph/ops/broadcast.hpp"
#include "graph/ops/conv_integer.hpp"
#include "graph/ops/integer_product.hpp"
#include "graph/ops/op.hpp"
#include "graph/ops/quantize_linear.hpp"
#include "graph/ops/types.hpp"
#include "graph/ops/walk/rules.hpp"

namespace qk::graph::ops {

namespace detail {

/// Dequantizes inputs i, i + 1, i + 2: codes, scale and zero point, one each for the tensor.
inline tensor dequantized_input(op_context& call, std::size_t i) {
    const tensor& codes = call.input(i);
    const tensor scale = input_as<float>(call, i + 1);
    if (scale.size() != 1) call.fail("input " + std::to_string(i + 1) + " must be one value");
    tensor y = call.scratch(data_type::float32, codes.shape());
    scale_grid grid;
    grid.inner = codes.size();
    dequantize_elements(call, codes, grid, scale.as<float>(), zero_points(call, i + 2, codes.type()), y.as<float>());
    return y;
}

/// Quantizes `values` into output 0 with the scale of input i and the zero point of input i + 1. The type is the zero point's, or
/// `otherwise` if there is none.
inline void quantized_output(op_context& call, const tensor& values, std::size_t i, data_type otherwise) {
    const tensor scale = input_as<float>(call, i);
    if (scale.size() != 1) call.fail("input " + std::to_string(i) + " must be one value");
    scale_grid grid;
    grid.inner = values.size();
    const data_type type = call.has_input(i + 1) ? call.input(i + 1).type() : otherwise;
    tensor& y = call.output(0, type, values.shape());
    quantize_elements(call, values.as<float>(), grid, scale.as<float>(), zero_points(call, i + 1, type), y);
}

/// Rounds a value, in units of the scale and with the zero point added, to a code: ties to even, then clamped.
template <class T>
T nearest_code(float v) {
    constexpr auto lowest = static_cast<float>(std::numeric_limits<T>::min()), highest = static_cast<float>(std::numeric_limits<T>::max());
    return static_cast<T>(std::min(std::max(lowest, std::nearbyint(v)), highest));  // in this order NaN gives the lowest code
}

/// Runs operator `name` of the standard, of version `version`, with this node's attributes.
inline tensor run_standard(op_context& call, std::string_view name, int version, std::span<const tensor> inputs) {
    const op_entry* entry = find_op("", name, version);
    if (entry == nullptr) call.fail("needs " + std::string(name) + ", which is not in the table");
    const node_view view(call.node().proto(), version);
    tensor out;
    op_context inner = call.with(view, inputs, std::span<tensor>(&out, 1));
    entry->run(inner);
    return out;
}

/// Applies one float operator f. Inputs: x, x_scale, x_zero_point, y_scale, y_zero_point.
template <class F>
void through_floats(op_context& call, F f) {
    const tensor x = dequantized_input(call, 0);
    quantized_output(call, f(x), 3, call.input(0).type());
}

inline void no_channels_last(const op_context& call) {
    if (call.node().get_int("channels_last", 0) != 0)
        call.fail("channels_last=1 is not supported: save the model without layout optimisation");
}

/// Computes f(a, b) for inputs of two triples (codes, scale, zero point), then y_scale and y_zero_point. f returns y in units of y_scale
/// with the zero point added; it is rounded to even and clamped. `make` gets the scale and zero point of a, b and y and returns f.
template <class Make>
void qlinear_binary(op_context& call, Make make) {
    const tensor a = input_as<float>(call, 0), b = input_as<float>(call, 3);
    const auto f = make(optional_scalar(call, 1), optional_scalar(call, 2), optional_scalar(call, 4), optional_scalar(call, 5),
                        optional_scalar(call, 6), optional_scalar(call, 7));
    const tensor* both[] = {&a, &b};
    const dims shape = broadcast_shape(call, both);
    const data_type type = call.has_input(7) ? call.input(7).type() : call.input(0).type();
    tensor& y = call.output(0, type, shape);
    with_byte_type(call, type, [&]<class T>(T) {
        map_broadcast<float, float, T>(shape, a, b, y, [&](float u, float v) { return nearest_code<T>(f(u, v)); });
    });
}

}  // namespace detail

/// Uses fused multiply-adds in ONNX Runtime's order. With round scales many sums are ties, so that every rounding can be seen in the codes.
inline void run_qlinear_add(op_context& call) {
    detail::qlinear_binary(call, [](float sa, float za, float sb, float zb, float sy, float zy) {
        const float ra = sa / sy, rb = sb / sy;
        const auto wide = [](float v) { return static_cast<double>(v); };
        const auto fixed = static_cast<float>(wide(zy) - (wide(ra) * wide(za) + wide(rb) * wide(zb)));
        return [=](float a, float b) { return std::fma(a, ra, std::fma(b, rb, fixed)); };
    });
}
inline void run_qlinear_mul(op_context& call) {
    detail::qlinear_binary(call, [](float sa, float za, float sb, float zb, float sy, float zy) {
        const float ratio = sa * sb / sy;
        return [=](float a, float b) {
            const volatile float product = (a - za) * (b - zb) * ratio;  // two roundings: the compiler must not fuse them
            return product + zy;
        };
    });
}
inline void run_qlinear_sigmoid(op_context& call) {
    detail::through_floats(call, [&](const tensor& x) { return detail::run_standard(call, "Sigmoid", 13, std::span(&x, 1)); });
}
inline void run_qlinear_leaky_relu(op_context& call) {
    detail::through_floats(call, [&](const tensor& x) { return detail::run_standard(call, "LeakyRelu", 16, std::span(&x, 1)); });
}
inline void run_microsoft_qlinear_conv(op_context& call) {
    detail::no_channels_last(call);
    run_qlinear_conv(call);
}
inline void run_qlinear_average_pool(op_context& call) {
    detail::no_channels_last(call);
    const tensor x = detail::dequantized_input(call, 0), mean = detail::run_standard(call, "AveragePool", 22, std::span(&x, 1));
    const float scale = optional_scalar(call, 3), zero = optional_scalar(call, 4);
    const data_type type = call.has_input(4) ? call.input(4).type() : call.input(0).type();
    tensor& y = call.output(0, type, mean.shape());
    // The zero point is added before rounding, as in ONNX Runtime.
    with_byte_type(call, type, [&]<class T>(T) {
        for (std::size_t i = 0; i < y.size(); ++i) y.as<T>()[i] = detail::nearest_code<T>(mean.as<float>()[i] / scale + zero);
    });
}
/// Sums the codes and multiplies by one factor: x_scale / (y_scale * number of values).
inline void run_qlinear_global_average_pool(op_context& call) {
    detail::no_channels_last(call);
    const data_type codes = call.input(0).type();
    if (codes != data_type::int8 && codes != data_type::uint8)
        call.fail(std::string("the input is ") + name_of(codes) + ", no codes of 8 bits");
    const tensor x = input_as<std::int64_t>(call, 0), given_zero = zero_point_of<std::int64_t>(call, 2, codes);
    if (x.rank() < 2) call.fail("the input of shape " + to_string(x.shape()) + " has no channels");
    dims shape = x.shape();
    std::fill(shape.begin() + 2, shape.end(), 1);
    const data_type type = call.has_input(4) ? call.input(4).type() : codes;
    tensor& y = call.output(0, type, shape);
    const std::size_t n = y.size() == 0 ? 0 : x.size() / y.size();
    const std::int64_t x_zero = given_zero.size() == 0 ? 0 : given_zero.as<std::int64_t>()[0];
    const float factor = optional_scalar(call, 1) / (optional_scalar(call, 3) * static_cast<float>(n)), zero = optional_scalar(call, 4);
    with_byte_type(call, type, [&]<class T>(T) {
        for (std::size_t i = 0; i < y.size(); ++i) {
            std::int64_t sum = 0;
            for (std::size_t k = 0; k < n; ++k) sum += x.as<std::int64_t>()[i * n + k] - x_zero;
            y.as<T>()[i] = detail::nearest_code<T>(std::nearbyint(static_cast<float>(sum) * factor) + zero);
        }
    });
}
/// Runs the Softmax of the opset that the attribute `opset` names: before 13 it works on a flattened matrix.
inline void run_qlinear_softmax(op_context& call) {
    const auto version = static_cast<int>(std::clamp<std::int64_t>(call.node().get_int("opset", 13), 1, 28));
    detail::through_floats(call, [&](const tensor& x) { return detail::run_standard(call, "Softmax", version, std::span(&x, 1)); });
}

/// Inputs: y_scale, y_zero_point, then codes, scale and zero point of each tensor.
inline void run_qlinear_concat(op_context& call) {
    if (call.input_count() < 5 || (call.input_count() - 2) % 3 != 0)
        call.fail("inputs must be y_scale, y_zero_point, then triples of tensor, scale and zero point");
    std::vector<tensor> parts;
    for (std::size_t i = 2; i < call.input_count(); i += 3) parts.push_back(detail::dequantized_input(call, i));
    detail::quantized_output(call, detail::run_standard(call, "Concat", 13, parts), 0, call.input(2).type());
}

inline type_source concatenated_types(const onnx::NodeProto& n, int) { return {has_input(n, 1) ? 1 : 2}; }

// clang-format off
inline constexpr op_entry qlinear_ops[] = {
    {"com.microsoft", "QLinearAdd", 1, run_qlinear_add, nullptr,
     {follow_qlinear_elements}, {.traits = makes_codes | on_codes, .types = like_zero_point<7>}},
    {"com.microsoft", "QLinearMul", 1, run_qlinear_mul, nullptr, {follow_qlinear_elements}, {.traits = on_codes, .types = like_zero_point<7>}},
    {"com.microsoft", "QLinearSigmoid", 1, run_qlinear_sigmoid, nullptr, {follow_unary}, {.traits = on_codes, .types = like_zero_point<4>}},
    {"com.microsoft", "QLinearLeakyRelu", 1, run_qlinear_leaky_relu, nullptr, {follow_unary}, {.traits = on_codes, .types = like_zero_point<4>}},
    {"com.microsoft", "QLinearConv", 1, run_microsoft_qlinear_conv, nullptr,
     {follow_qlinear_conv}, {.traits = makes_codes | on_codes, .types = like_zero_point<7>}},
    {"com.microsoft", "QLinearAveragePool", 1, run_qlinear_average_pool, nullptr, {follow_pool}, {.traits = on_codes, .types = like_zero_point<4>}},
    {"com.microsoft", "QLinearGlobalAveragePool", 1, run_qlinear_global_average_pool, nullptr,
     {follow_pool}, {.traits = on_codes, .types = like_zero_point<4>}},
    {"com.microsoft", "QLinearSoftmax", 1, run_qlinear_softmax, nullptr, {follow_qlinear_softmax}, {.traits = on_codes, .types = like_zero_point<4>}},
    {"com.microsoft", "QLinearConcat", 1, run_qlinear_concat, nullptr, {follow_qlinear_concat}, {.traits = on_codes, .types = concatenated_types}},
};
// clang-format on

}  // namespace qk::graph::ops
