// SPDX-License-Identifier: Apache-2.0
// Views a constant weight as a matrix with a row for each output and a column for each input, and finds the columns that a quantizer rounds
// together.
#pragma once

#include <onnx/onnx_pb.h>

#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "graph/base/kernel_calls.hpp"
#include "graph/ops/op.hpp"
#include "graph/plan/axis_view.hpp"
#include "qk/graph/base/tensor.hpp"
#include "qk/graph/calibrate/scales.hpp"
#include "qk/graph/plan/layers.hpp"

namespace qk::graph::detail {

/// The layout of such a matrix: at() says where element (row, column) of group g lies in the tensor. A grouped Conv or ConvTranspose is
/// `groups` products; everything else is one.
struct weight_rows {
    std::size_t groups = 1, rows = 0, columns = 0;
    std::size_t taps = 1;            ///< Conv, ConvTranspose: columns of one input channel
    bool columns_outermost = false;  ///< [columns, rows]: MatMul, Gemm without transB
    bool transposed = false;         ///< ConvTranspose: [groups * columns / taps, rows, taps]
    std::string refusal;             ///< why the weight is no such matrix; empty: it is one

    std::size_t at(std::size_t g, std::size_t row, std::size_t column) const {
        if (transposed) return ((g * (columns / taps) + column / taps) * rows + row) * taps + column % taps;
        return columns_outermost ? column * rows + row : (g * rows + row) * columns + column;
    }
};

inline std::string not_one_product(const onnx::NodeProto& n, const tensor& w) {
    return n.op_type() + " with weights " + to_string(w.shape()) + " is not one product of a matrix";
}

/// Returns the layout of the weights (input 1) of a product; each output of a ConvTranspose is a sum with a row, too.
inline weight_rows rows_of(const onnx::NodeProto& n, const tensor& w) {
    weight_rows r;
    const auto axes = product_axes_of(n);
    if (!axes || w.size() == 0 || (axes->windows ? w.rank() < 3 : w.rank() != 2)) {
        r.refusal = not_one_product(n, w);
        return r;
    }
    const std::size_t in_axis = resolve_axis(axes->in, w.rank()), out_axis = resolve_axis(axes->out, w.rank());
    const auto in = static_cast<std::size_t>(w.dim(in_axis)), out = static_cast<std::size_t>(w.dim(out_axis));
    r.groups = static_cast<std::size_t>(axes->groups);
    r.transposed = axes->transposed;
    r.columns_outermost = !axes->windows && in_axis < out_axis;
    if ((r.transposed ? in : out) % r.groups != 0) r.refusal = "its channels do not come in groups";
    if (!axes->windows && axes->sums == 0) r.refusal = "its input is read transposed";
    r.taps = w.size() / (in * out);
    r.rows = r.transposed ? out : out / r.groups;
    r.columns = (r.transposed ? in / r.groups : in) * r.taps;
    return r;
}

/// Refuses a ConvTranspose, too: what a place of its result is made of is no window of its input.
inline weight_rows window_rows_of(const onnx::NodeProto& n, const tensor& w) {
    weight_rows r = rows_of(n, w);
    if (r.transposed) r.refusal = not_one_product(n, w);
    return r;
}

/// Returns the groups of columns that a quantizer rounds together, in the order of the weight: single columns, or the blocks of a block
/// format. Empty when blocks run along another axis than the columns.
inline std::vector<std::vector<std::size_t>> blocks_of(const weight_rows& r, const quantizer& q, std::size_t rank) {
    std::vector<std::vector<std::size_t>> blocks;
    if (!is_block_format(q.format)) {
        for (std::size_t c = 0; c < r.columns; ++c) blocks.push_back({c});
        return blocks;
    }
    const std::size_t axis = resolve_axis(q.axis, rank), reduction = r.columns_outermost ? 0 : 1;
    if (!q.flatten && axis != reduction) return {};
    const std::size_t taps = q.flatten ? 1 : r.taps, length = r.columns / taps;
    const auto size = static_cast<std::size_t>(block_size(q.format));
    for (std::size_t first = 0; first < length; first += size)
        for (std::size_t t = 0; t < taps; ++t) {
            auto& block = blocks.emplace_back();
            for (std::size_t c = first; c < std::min(first + size, length); ++c) block.push_back(c * taps + t);
        }
    return blocks;
}

/// Rounds columns as a quantizer rounds the whole tensor: all rows at once, each element at the scale that it has in the tensor.
class column_rounder {
  public:
    column_rounder(const quantizer& q, const weight_rows& r, const tensor& w) : q_(&q), r_(&r) {
        if (is_block_format(q.format)) return;
        const along_axis a = seen_by_blocks(w.shape(), q.axis, q.flatten);
        const std::size_t run = q.block_size > 0 ? static_cast<std::size_t>(q.block_size) : 1;
        const std::size_t runs = (a.length + run - 1) / run;
        scale_.resize(w.size(), 1.0f);
        zero_point_.resize(w.size(), 0);
        for (std::size_t i = 0; i < w.size(); ++i) {
            const std::size_t k = i / a.inner % a.length;
            const std::size_t at = q.block_size > 0 ? (i / a.inner / a.length * runs + k / run) * a.inner + i % a.inner : k;
            if (!q.scale.empty()) scale_[i] = q.scale[q.scale.size() == 1 ? 0 : at];
            if (!q.zero_point.empty()) zero_point_[i] = q.zero_point[q.zero_point.size() == 1 ? 0 : at];
        }
    }

    /// Rounds `values` in place: values[row * block.size() + i] belongs to column block[i] of group g, and so does weights[i] in the
    /// objective of a searched scale (null: all 1).
    void round(std::size_t g, const std::vector<std::size_t>& block, std::span<float> values, const float* weights = nullptr) const {
        semantics searched = q_->semantics;
        searched.scale_weights = weights;
        if (has_floating_scales(q_->format))
            return kernel_calls::fake_quantize(q_->format, values, values, along_axis{r_->rows, block.size(), 1},
                                               affine{q_->scale.empty() ? 0.0f : q_->scale[0], 0}, searched);
        if (is_block_format(q_->format))
            return kernel_calls::fake_quantize(q_->format, values, values, along_axis{r_->rows, block.size(), 1}, searched);
        std::vector<float> scale(r_->rows);
        std::vector<std::int64_t> zero_point(r_->rows);
        for (std::size_t o = 0; o < r_->rows; ++o) {
            const std::size_t i = r_->at(g, o, block[0]);
            scale[o] = scale_[i], zero_point[o] = zero_point_[i];
        }
        kernel_calls::fake_quantize(q_->format, values, values, per_channel{scale, zero_point, {1, r_->rows, 1}}, q_->semantics);
    }

  private:
    const quantizer* q_;
    const weight_rows* r_;
    std::vector<float> scale_;
    std::vector<std::int64_t> zero_point_;
};

}  // namespace qk::graph::detail
