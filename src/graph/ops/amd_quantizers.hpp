// SPDX-License-Identifier: Apache-2.0
// Implements AMD's operators (com.amd.quark, formerly com.vai.quantize): block formats, and Q/DQ with types that ONNX's lack.
// docs/reference/numerics.md, "Block float" and "Where blocks run".
#pragma once

#include <cmath>
#include <string>

#include "graph/base/block_rows.hpp"
#include "graph/base/kernel_calls.hpp"
#include "graph/ops/layouts.hpp"
#include "graph/ops/op.hpp"
#include "graph/ops/quantize_linear.hpp"
#include "graph/ops/types.hpp"
#include "graph/ops/walk/rules.hpp"

namespace qk::graph::ops {

namespace detail {

inline rounding amd_rounding(const op_context& call, std::int64_t mode) {
    switch (mode) {
        case 0: return rounding::half_away;
        case 1: return rounding::half_up;
        case 2: return rounding::half_even;
        default: call.fail("rounding_mode " + std::to_string(mode) + " is none of 0 (half away), 1 (half up), 2 (half even)");
    }
}

/// Returns an attribute that must be an int in [low, high]. Fails with its name otherwise.
inline int bounded_int(const op_context& call, std::string_view name, std::int64_t otherwise, std::int64_t low, std::int64_t high) {
    const std::int64_t v = call.node().get_int(name, otherwise);
    if (v < low || v > high) {
        call.fail("attribute " + std::string(name) + "=" + std::to_string(v) + " is outside [" + std::to_string(low) + ", " +
                  std::to_string(high) + "]");
    }
    return static_cast<int>(v);
}

/// Fake-quantizes input 0 to a block format along the node's axis. A vector uses its only axis; a single element passes unchanged.
inline void fake_quantize_blocks(op_context& call, const format& f, const semantics& how, bool through_bfloat16) {
    const tensor& given = call.input(0);
    if (given.size() == 1) {
        call.set_output(0, given);
        return;
    }
    if (!is_float_type(given.type())) call.fail(std::string("input 0 has type ") + name_of(given.type()) + ", not a float");
    tensor x = input_as<float>(call, 0);
    if (through_bfloat16) {
        tensor rounded = call.scratch(data_type::float32, x.shape());
        const auto from = x.as<float>();
        const auto to = rounded.as<float>();
        for (std::size_t i = 0; i < from.size(); ++i) to[i] = to_float(to_brain(from[i]));
        x = rounded;
    }
    const std::size_t axis = x.rank() <= 1 ? 0 : normal_axis(call, call.node().get_int("axis", 1), x.rank());
    const axis_split split = split_at(x.shape(), axis);
    format g = f;
    along_axis rows{split.outer, split.length, split.inner};
    as_one_row(g, rows, x.size());
    working_output<float> y(call, 0, given.type(), x.shape());
    kernel_calls::fake_quantize(g, x.as<float>(), y.values(), rows, how);
    y.store();
}

}  // namespace detail

/// Reads bfp_method: to_bfp is a block float with bit_width - 9 magnitude bits, to_bfp_prime is a microexponent format.
inline void run_bfp_quantize_dequantize(op_context& call) {
    const node_view& node = call.node();
    const std::string method = node.get_string("bfp_method", "to_bfp");
    const int mantissa = detail::bounded_int(call, "bit_width", 16, 10, 32) - 9;
    const int block = detail::bounded_int(call, "block_size", 8, 1, 1 << 20);
    semantics how = semantics::quark;
    how.rounding = detail::amd_rounding(call, node.get_int("rounding_mode", 0));
    const bool through_bfloat16 = node.get_int("convert_to_bfloat_before_bfp", 0) != 0;
    if (method == "to_bfp") {
        const block_float f{.block_size = block, .exponent_bits = 8, .mantissa_bits = mantissa};
        return detail::fake_quantize_blocks(call, f, how, through_bfloat16);
    }
    if (method != "to_bfp_prime" && method != "to_bfp_prime_shared")
        call.fail("bfp_method '" + method + "' is none of to_bfp, to_bfp_prime");
    const microexponent f{.block_size = block,
                          .sub_block_size = detail::bounded_int(call, "sub_block_size", 2, 1, block),
                          .exponent_bits = 8,
                          .shift_bits = detail::bounded_int(call, "sub_block_shift_bits", 1, 1, 7),
                          .mantissa_bits = mantissa};
    if (f.block_size % f.sub_block_size != 0) call.fail("block_size is not a multiple of sub_block_size");
    detail::fake_quantize_blocks(call, f, how, through_bfloat16);
}

inline void run_mx_quantize_dequantize(op_context& call) {
    static constexpr std::pair<std::string_view, floating> elements[] = {
        {"fp8_e4m3", fp8_e4m3fn}, {"fp8_e5m2", fp8_e5m2}, {"fp6_e3m2", fp6_e3m2}, {"fp6_e2m3", fp6_e2m3}, {"fp4_e2m1", fp4_e2m1}};
    const std::string element = call.node().get_string("element_dtype", "int8");
    microscaling f = mxint8;
    f.block_size = detail::bounded_int(call, "block_size", 32, 1, 1 << 20);
    semantics how = semantics::quark;
    if (element == "int8") {
        how.rounding = detail::amd_rounding(call, call.node().get_int("rounding_mode", 2));
        return detail::fake_quantize_blocks(call, f, how, false);
    }
    for (const auto& [name, format] : elements) {
        if (name != element) continue;
        f.element = format;
        f.integer_bits = 0;
        return detail::fake_quantize_blocks(call, f, how, false);  // rounding_mode is ignored for floats
    }
    call.fail("element_dtype '" + element + "' is none of fp8_e4m3, fp8_e5m2, fp6_e3m2, fp6_e2m3, fp4_e2m1, int8");
}

namespace detail {

/// Changes the codes of NaN, of both infinities and of quotients that no int64 holds to the lowest code, which a float-to-int conversion on
/// x86-64 returns.
template <class T>
void specials_to_lowest(std::span<const float> x, const scale_grid& grid, std::span<const float> scale, std::int64_t lowest,
                        std::span<T> y) {
    grid.for_each_run([&](std::size_t begin, std::size_t n, std::size_t s) {
        bool fits = true;
        for (std::size_t i = begin; i < begin + n; ++i) fits = fits && std::fabs(x[i] / scale[s]) < 0x1p63f;  // false for NaN
        for (std::size_t i = begin; !fits && i < begin + n; ++i)
            if (!(std::fabs(x[i] / scale[s]) < 0x1p63f)) y[i] = static_cast<T>(lowest);
    });
}

}  // namespace detail

/// Implements a QuantizeLinear whose zero point may also be int32, uint32, float16 (clips, no scale) or bfloat16 (overflows to Inf).
inline void run_extended_quantize_linear(op_context& call) {
    const tensor& given = call.input(0);
    const data_type type = call.has_input(2) ? call.input(2).type() : data_type::uint8;
    const tensor x = input_as<float>(call, 0);
    const auto from = x.as<float>();
    tensor& y = call.output(0, type, given.shape());
    if (type == data_type::float16) {
        const auto to = y.as<half>();
        for (std::size_t i = 0; i < from.size(); ++i) {
            float v = from[i];
            v = v > 65504.0f ? 65504.0f : v < -65504.0f ? -65504.0f : v;
            to[i] = to_half(v);
        }
        return;
    }
    const scale_grid grid =
        make_scale_grid(call, x.shape(), call.input(1), call.node().get_int("axis", 1), call.node().get_int("block_size", 0));
    const tensor scale = input_as<float>(call, 1);
    quantize_elements(call, from, grid, scale.as<float>(), zero_points(call, 2, type), y);
    if (!is_integer_type(type)) return;
    const std::int64_t lowest = lowest_code(type);
    switch (size_of(type)) {
        case 1: return detail::specials_to_lowest(from, grid, scale.as<float>(), lowest, y.as<std::uint8_t>());
        case 2: return detail::specials_to_lowest(from, grid, scale.as<float>(), lowest, y.as<std::uint16_t>());
        default: return detail::specials_to_lowest(from, grid, scale.as<float>(), lowest, y.as<std::uint32_t>());
    }
}

inline void run_extended_dequantize_linear(op_context& call) {
    const tensor& x = call.input(0);
    working_output<float> y(call, 0, call.input(1).type(), x.shape());
    if (x.type() == data_type::float16) {
        widen(x.as<half>(), y.values());
    } else {
        const scale_grid grid =
            make_scale_grid(call, x.shape(), call.input(1), call.node().get_int("axis", 1), call.node().get_int("block_size", 0));
        const tensor scale = input_as<float>(call, 1);
        dequantize_elements(call, x, grid, scale.as<float>(), zero_points(call, 2, x.type()), y.values());
    }
    y.store();
}

// clang-format off
/// Those of the old domain com.vai.quantize are the same.
inline constexpr op_entry amd_quantizer_ops[] = {
    {"com.amd.quark", "BFPQuantizeDequantize", 1, run_bfp_quantize_dequantize, nullptr, {follow_block_quantize}, {.traits = on_codes, .layout = block_layout}},
    {"com.amd.quark", "MXQuantizeDequantize", 1, run_mx_quantize_dequantize, nullptr, {follow_block_quantize}, {.traits = on_codes, .layout = block_layout}},
    {"com.amd.quark", "ExtendedQuantizeLinear", 1, run_extended_quantize_linear, nullptr, {follow_quantize}, {.traits = on_codes, .types = quantized_types, .layout = scaled_layout}},
    {"com.amd.quark", "ExtendedDequantizeLinear", 1, run_extended_dequantize_linear, nullptr, {follow_quantize}, {.traits = on_codes, .types = like<1>, .layout = scaled_layout}},
    {"com.amd.quark", "BFPFixNeuron", 1, run_bfp_quantize_dequantize, nullptr, {follow_block_quantize}, {.traits = on_codes, .layout = block_layout}},
    {"com.amd.quark", "MXFixNeuron", 1, run_mx_quantize_dequantize, nullptr, {follow_block_quantize}, {.traits = on_codes, .layout = block_layout}},
    {"com.amd.quark", "VitisQuantizeLinear", 1, run_extended_quantize_linear, nullptr, {follow_quantize}, {.traits = on_codes, .types = quantized_types, .layout = scaled_layout}},
    {"com.amd.quark", "VitisDequantizeLinear", 1, run_extended_dequantize_linear, nullptr, {follow_quantize}, {.traits = on_codes, .types = like<1>, .layout = scaled_layout}},
};
// clang-format on

}  // namespace qk::graph::ops
