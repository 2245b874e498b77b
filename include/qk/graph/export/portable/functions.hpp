// SPDX-License-Identifier: Apache-2.0
// The model-local functions of one export: one for each format, semantics and way of seeing blocks, whatever the number of tensors.
#pragma once

#include <functional>
#include <vector>

#include "qk/graph/export/portable/blocks.hpp"
#include "qk/graph/export/portable/elements.hpp"
#include "qk/graph/export/portable/layout.hpp"
#include "qk/graph/export/writer.hpp"

namespace qk::graph::detail {

/// What tells functions apart.
struct function_key {
    qk::format format = fp32;
    qk::semantics semantics;
    block_layout layout = block_layout::whole;
    int scales = 0;           ///< inputs after x: 1 a scale, 2 a zero point as well
    bool one_scale = true;    ///< for the whole tensor
    bool block_scales = false;///< integers and floats: a scale for each run of `block`
    int block = 0;
    bool dynamic = false;     ///< scale and zero point from the values
    bool decodes = false;     ///< stored codes to float32
    friend bool operator==(const function_key&, const function_key&) = default;
};

/// A name that ONNX allows: letters, digits and underscores.
inline std::string identifier(std::string text) {
    for (char& c : text)
        if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
    return text;
}

/// The body that quantizes and dequantizes.
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
        if (const floating* g = std::get_if<floating>(&k.format)) return fake_quantize(f, *g, v, s, k.semantics);
        return fake_quantize(f, std::get<integer>(k.format), v, s, k.one_scale, k.semantics);
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

class function_set {
  public:
    explicit function_set(graph_writer& g) : g_(g) {
        for (const auto& f : g.target().proto().functions())
            if (f.domain() == function_domain) taken_.push_back(f.name());
    }

    /// The name of the function for a key, the same for the same key.
    const std::string& name(const function_key& key) {
        for (const auto& [k, name] : functions_)
            if (k == key) return name;
        g_.require_opset(12, "functions of standard operators");
        g_.import(function_domain, 1);
        const std::string stem = (key.decodes ? "decode_" : "") + identifier(text_of(key.format));
        std::string unique = stem;
        for (int i = 2; std::find(taken_.begin(), taken_.end(), unique) != taken_.end(); ++i) unique = stem + "_" + std::to_string(i);
        taken_.push_back(unique);
        return functions_.emplace_back(key, unique).second;
    }

    /// Writes the bodies, for the opset that the model will have.
    void finish() {
        const int opset = std::max(g_.target().opset(""), g_.required_opset());
        for (const auto& [key, name] : functions_) *g_.target().proto().add_functions() = fake_quantize_function(key, name, opset);
    }

  private:
    graph_writer& g_;
    std::vector<std::string> taken_;
    std::vector<std::pair<function_key, std::string>> functions_;
};

}  // namespace qk::graph::detail
