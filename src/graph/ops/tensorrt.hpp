// SPDX-License-Identifier: Apache-2.0
// Implements TensorRT's dynamic quantizers (domain trt), whose codes and scales of blocks come from each run's values: NVFP4 under a scale
// that is known beforehand, MXFP8 under E8M0 scales in uint8. docs/reference/targets.md.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "graph/ops/layouts.hpp"
#include "graph/ops/op.hpp"
#include "graph/ops/quantize_linear.hpp"
#include "graph/ops/types.hpp"
#include "graph/ops/walk/rules.hpp"
#include "qk/reference/codes.hpp"

namespace qk::graph::ops {

namespace detail {

/// The axis that is cut into blocks, as [outer][blocks][block][inner].
struct dynamic_blocks {
    std::size_t axis = 0, outer = 1, blocks = 0, block = 0, inner = 1;
    dims scale_shape;
};

inline dynamic_blocks dynamic_blocks_of(op_context& call, const dims& shape, std::int64_t otherwise) {
    dynamic_blocks b;
    b.axis = normal_axis(call, call.node().get_int("axis", -1), shape.size());
    const std::int64_t block = call.node().get_int("block_size", otherwise), length = shape[b.axis];
    if (block < 1 || length % block != 0)
        call.fail("axis " + std::to_string(b.axis) + " of " + to_string(shape) + " is no multiple of block_size " + std::to_string(block));
    b.block = static_cast<std::size_t>(block), b.blocks = static_cast<std::size_t>(length / block);
    b.outer = product(shape, 0, b.axis), b.inner = product(shape, b.axis + 1, shape.size());
    b.scale_shape = shape;
    b.scale_shape[b.axis] = length / block;
    return b;
}

/// Calls f(places of a block's elements, place of its scale) for every block.
template <class F>
void for_each_block(const dynamic_blocks& b, F&& f) {
    std::vector<std::size_t> places(b.block);
    for (std::size_t o = 0; o < b.outer; ++o)
        for (std::size_t k = 0; k < b.blocks; ++k)
            for (std::size_t in = 0; in < b.inner; ++in) {
                for (std::size_t j = 0; j < b.block; ++j) places[j] = ((o * b.blocks + k) * b.block + j) * b.inner + in;
                f(places, (o * b.blocks + k) * b.inner + in);
            }
}

/// Returns the code of x / scale; that of 0 under a scale of 0.
inline std::uint8_t code_under(const floating& f, float x, float scale) {
    const float quotient = scale == 0 ? 0.0f : x / scale;
    return static_cast<std::uint8_t>(
        reference::code_of(f, reference::to_grid(f, quotient, reference::element_semantics(semantics::ocp), 0)));
}

}  // namespace detail

inline void run_fp4_dynamic_quantize(op_context& call) {
    const tensor x = input_as<float>(call, 0), whole = input_as<float>(call, 1);
    if (whole.size() != 1) call.fail("input 1 has " + std::to_string(whole.size()) + " values, and is the scale of the tensor");
    const detail::dynamic_blocks b = detail::dynamic_blocks_of(call, x.shape(), 16);
    tensor& codes = call.output(0, data_type::float4e2m1, x.shape());
    tensor& scales = call.output(1, data_type::float8e4m3fn, b.scale_shape);
    const auto from = x.as<float>();
    const float t = whole.as<float>()[0];
    detail::for_each_block(b, [&](const std::vector<std::size_t>& places, std::size_t at) {
        float most = 0;
        for (const std::size_t i : places) most = std::max(most, std::fabs(from[i]));
        const float scale = reference::block_scale(nvfp4, most, t);
        scales.as<std::uint8_t>()[at] = static_cast<std::uint8_t>(reference::code_of(nvfp4.scale, scale));
        for (const std::size_t i : places) codes.as<std::uint8_t>()[i] = detail::code_under(fp4_e2m1, from[i], scale * t);
    });
}

inline void run_mxfp8_dynamic_quantize(op_context& call) {
    const tensor x = input_as<float>(call, 0);
    const detail::dynamic_blocks b = detail::dynamic_blocks_of(call, x.shape(), 32);
    tensor& codes = call.output(0, data_type::float8e4m3fn, x.shape());
    tensor& scales = call.output(1, data_type::uint8, b.scale_shape);
    const auto from = x.as<float>();
    semantics how = semantics::ocp;
    how.scale_rule = scale_rule::rceil;
    detail::for_each_block(b, [&](const std::vector<std::size_t>& places, std::size_t at) {
        float most = 0;
        for (const std::size_t i : places) most = std::max(most, std::fabs(from[i]));
        const int exponent = most == 0 ? -127 : std::clamp(reference::scale_exponent(mxfp8_e4m3, most, how), -127, 127);
        scales.as<std::uint8_t>()[at] = static_cast<std::uint8_t>(exponent + 127);
        for (const std::size_t i : places)
            codes.as<std::uint8_t>()[i] = detail::code_under(fp8_e4m3fn, from[i], static_cast<float>(power_of_two(exponent)));
    });
}

/// DequantizeLinear by blocks whose scales are E8M0 codes in uint8.
inline void run_mxfp8_dequantize_linear(op_context& call) {
    const tensor &x = call.input(0), &codes = call.input(1);
    if (size_of(codes.type()) != 1) call.fail(std::string("input 1 has type ") + name_of(codes.type()) + ", not uint8");
    tensor scale(data_type::float32, codes.shape());
    for (std::size_t i = 0; i < scale.size(); ++i)
        scale.as<float>()[i] = static_cast<float>(reference::value_of(e8m0, static_cast<std::uint8_t>(codes.bytes()[i])));
    auto type = static_cast<data_type>(call.node().get_int("output_dtype", 0));
    if (type == data_type::undefined) type = data_type::float32;
    const scale_grid grid = make_scale_grid(call, x.shape(), scale, call.node().get_int("axis", -1), call.node().get_int("block_size", 32));
    working_output<float> y(call, 0, type, x.shape());
    dequantize_elements(call, x, grid, scale.as<float>(), {}, y.values());
    y.store();
}

inline type_source fp4_types(const onnx::NodeProto&, int output) {
    return {-1, output == 0 ? data_type::float4e2m1 : data_type::float8e4m3fn};
}
inline type_source mxfp8_types(const onnx::NodeProto&, int output) {
    return {-1, output == 0 ? data_type::float8e4m3fn : data_type::uint8};
}
inline type_source widened_types(const onnx::NodeProto& n, int) {
    const auto said = static_cast<data_type>(graph::detail::int_attribute(n, "output_dtype", 0));
    return {-1, said == data_type::undefined ? data_type::float32 : said};
}

// clang-format off
inline constexpr op_entry tensorrt_ops[] = {
    {"trt", "TRT_FP4DynamicQuantize", 1, run_fp4_dynamic_quantize, nullptr, {}, {.types = fp4_types}},
    {"trt", "TRT_MXFP8DynamicQuantize", 1, run_mxfp8_dynamic_quantize, nullptr, {}, {.types = mxfp8_types}},
    {"trt", "TRT_MXFP8DequantizeLinear", 1, run_mxfp8_dequantize_linear, nullptr, {}, {.types = widened_types}},
    {"trt", "DequantizeLinear", 1, run_dequantize_linear, nullptr, {follow_quantize}, {.traits = exact | on_codes, .types = dequantized_types, .layout = scaled_layout}},
};
// clang-format on

}  // namespace qk::graph::ops
