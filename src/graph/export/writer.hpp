// SPDX-License-Identifier: Apache-2.0
// The interface that every export style implements: it turns one quantizer into operators.
#pragma once

#include <string>
#include <vector>

#include "graph/export/graph_writer.hpp"
#include "graph/model/tensor_proto.hpp"
#include "qk/formats/parse.hpp"
#include "qk/graph/export/export.hpp"
#include "qk/parameters.hpp"

namespace qk::graph::detail {

/// A tensor that a plan quantizes for some of its readers.
struct quantized_value {
    std::string name;
    quantizer how;
    dims shape = {};           ///< of a constant
    std::size_t rank = 0;      ///< 0: not known
    std::int64_t length = -1;  ///< of axis how.axis; -1: not known
    std::int64_t inner = -1;   ///< elements behind one place of that axis; -1: not known
    bool nbits =
        false;  ///< onnxruntime would make MatMulNBits of DequantizeLinear and the product, with 8-bit activations that nobody requested
    bool fine_codes = false;   ///< beside `nbits`: weights of 8 bits, beside which the rounding of activations costs 3 to 5 dB
    bool guard = false;        ///< a DequantizeLinear right before its readers would be fused into what the plan does not say (fusing.hpp)
    bool as_unsigned = false;  ///< codes of a signed format are stored in the unsigned type, half its range higher
};

/// Returns the format's text, for messages.
inline std::string text_of(const qk::format& f) { return std::string(qk::to_text(f).view()); }

class quantizer_writer {
  public:
    quantizer_writer(graph_writer& g, const export_options& options, std::vector<std::string>& notes)
        : g_(g), options_(options), notes_(notes) {}
    virtual ~quantizer_writer() = default;

    /// Is called before all edges.
    virtual void begin(const model& /*source*/, const precision_plan& /*plan*/) {}
    /// Returns whether the style writes this reader of a constant as a whole, at once or in finish(); the constant then needs no operators
    /// for it. `own` is the model's float type.
    virtual bool takes(const quantized_value& /*weight*/, const tensor& /*value*/, data_type /*own*/, model::use /*reader*/) {
        return false;
    }
    /// Adds operators that quantize the tensor `v.name`; returns the name of the result.
    virtual std::string activation(const quantized_value& v) = 0;
    /// Does the same for a constant: adds codes or rounded floats, and what turns them into float32.
    virtual std::string weight(const quantized_value& v, const tensor& value) = 0;
    /// Returns whether `weight` ends in a DequantizeLinear (of 8 bits or fewer, or of an int32 bias).
    virtual bool dequantizes(const quantizer& weight) const = 0;
    /// Returns whether `activation` ends in a DequantizeLinear.
    virtual bool dequantizes_activation(const quantizer&) const { return true; }
    /// Returns whether nodes that read constants alone must stand before all others: onnxruntime then runs such a node right before its
    /// reader, and not all of them at once, whose results it would hold together.
    virtual bool wants_constants_first() const { return false; }
    /// Is called after all edges, for rewrites that look at whole layers.
    virtual void finish() {}

  protected:
    [[noreturn]] void cannot_hold(const quantized_value& v, const std::string& why) const {
        throw error("tensor '" + v.name + "': " + text_of(v.how.format) + " " + why);
    }
    graph_writer& g_;
    const export_options& options_;
    std::vector<std::string>& notes_;
};

/// Returns the axis counted from 0. Tensors of rank 0 and 1 have axis 0; a negative axis of unknown rank stays.
inline std::int64_t positive_axis(int axis, std::size_t rank) {
    if (rank == 1) return 0;
    return axis < 0 && rank > 0 ? axis + static_cast<int>(rank) : axis;
}

/// Returns the array's shape along an axis, as kernels see it.
inline along_axis view_along(const dims& shape, int axis, bool flatten) {
    along_axis a{1, 1, 1};
    if (shape.empty()) return a;
    const auto at = static_cast<std::size_t>(positive_axis(axis, shape.size()));
    if (at >= shape.size()) throw error("axis " + std::to_string(axis) + " of a tensor " + to_string(shape));
    for (std::size_t i = 0; i < shape.size(); ++i) {
        const auto d = static_cast<std::size_t>(shape[i]);
        if (flatten) (i == 0 ? a.outer : a.length) *= d;
        else (i < at ? a.outer : i == at ? a.length : a.inner) *= d;
    }
    return a;
}

}  // namespace qk::graph::detail
