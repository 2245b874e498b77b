// SPDX-License-Identifier: Apache-2.0
// What distinguishes the functions of one export, and the bodies of those that quantize.
#pragma once

#include "qk/graph/export/portable/blocks.hpp"
#include "qk/graph/export/portable/elements.hpp"
#include "qk/graph/export/portable/layout.hpp"
#include "qk/graph/export/writer.hpp"

namespace qk::graph::detail {

/// Equal keys mean the same function.
struct function_key {
    qk::format format = fp32;
    qk::semantics semantics;
    block_layout layout = block_layout::whole;
    int scales = 0;             ///< inputs after x: 1 for a scale, 2 with a zero point
    bool one_scale = true;      ///< one for the whole tensor
    bool block_scales = false;  ///< integers and floats: a scale for each run of `block`
    int block = 0;
    bool dynamic = false;  ///< scale and zero point are computed from the values
    bool decodes = false;  ///< decodes stored codes to float32
    // Members for functions that decode:
    bool each_run = false;      ///< decodes in each run, with nothing that a runtime folds when it loads the model
    bool whole_bytes = false;   ///< no code straddles two bytes, and every byte is full
    bool whole_blocks = false;  ///< no block is shorter than the others
    bool zero_codes = false;    ///< zero points of blocks are packed like the elements, not floats
    friend bool operator==(const function_key&, const function_key&) = default;
};

/// Returns the body that quantizes and dequantizes.
inline onnx::FunctionProto fake_quantize_function(const function_key& k, const std::string& name, int opset) {
    function_builder f(name, opset, text_of(k.format) + ": float32 to the nearest value of the format");
    const operand x = f.input("x");
    element_scale s;
    if (k.scales > 0) s.scale = f.input("scale");
    if (k.scales > 1) s.zero_point = f.input("zero_point");
    if (is_block_format(k.format)) {
        const microexponent* parts = std::get_if<microexponent>(&k.format);
        return f.finish(in_blocks(f, x, k.layout, block_size(k.format), parts ? parts->sub_block_size : 0, [&](const operand& blocks) {
            if (const nvfloat* g = std::get_if<nvfloat>(&k.format)) return fake_quantize(f, *g, blocks, k.semantics, s.scale);
            if (const block_float* g = std::get_if<block_float>(&k.format)) return fake_quantize(f, *g, blocks, k.semantics);
            if (parts) return fake_quantize(f, *parts, blocks, k.semantics);
            return fake_quantize(f, std::get<microscaling>(k.format), blocks, k.semantics);
        }));
    }
    if (k.dynamic) s = range_scale(f, k.format, x);
    const auto elements = [&](const operand& v) {
        if (const floating* g = std::get_if<floating>(&k.format))
            return detail::fake_quantize(f, *g, v, s, k.semantics);  // qualified: qk::fake_quantize has the same parameters
        if (const table* g = std::get_if<table>(&k.format)) return detail::fake_quantize(f, *g, v, s, k.semantics);
        return detail::fake_quantize(f, std::get<integer>(k.format), v, s, k.one_scale, k.semantics);
    };
    if (!k.block_scales) return f.finish(elements(x));
    return f.finish(in_blocks(f, x, block_layout::any_length, k.block, 0, [&](const operand& blocks) {
        const operand inner = f.op("Slice", {f.op("Shape", {blocks}), f.integers({2}), f.integers({3}), f.integers({0})});
        const operand grid = f.concat({f.integers({-1, 1}), inner});
        s.scale = f.op("Reshape", {s.scale, grid});
        if (!s.zero_point.empty()) s.zero_point = f.op("Reshape", {s.zero_point, grid});
        return elements(blocks);
    }));
}

}  // namespace qk::graph::detail
