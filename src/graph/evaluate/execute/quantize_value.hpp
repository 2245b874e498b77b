// SPDX-License-Identifier: Apache-2.0
// Applies a plan's quantizer to a value of the evaluator: finds axis and scales, then calls qk::fake_quantize.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "graph/base/block_rows.hpp"
#include "graph/base/inner_loop.hpp"
#include "graph/base/kernel_calls.hpp"
#include "graph/ops/op.hpp"
#include "qk/graph/base/tensor.hpp"
#include "qk/graph/plan/plan.hpp"
#include "qk/portable/range_scale.hpp"

namespace qk::graph::execute {

/// Returns [outer][length][inner] around one axis of a shape. A negative axis counts from the end; rank 0 is one element; rank 1 has only
/// axis 0. With `flatten` all axes from 1 on count as one.
inline along_axis axis_of(const dims& shape, int axis, bool flatten) {
    along_axis a{1, 1, 1};
    if (shape.empty()) return a;
    const int rank = static_cast<int>(shape.size());
    if (flatten && rank > 1) {
        a.outer = static_cast<std::size_t>(shape[0]);
        for (int i = 1; i < rank; ++i) a.length *= static_cast<std::size_t>(shape[static_cast<std::size_t>(i)]);
        return a;
    }
    int at = rank == 1 ? 0 : axis < 0 ? axis + rank : axis;
    if (at < 0 || at >= rank) throw error("axis " + std::to_string(axis) + " is outside of shape " + to_string(shape));
    for (int i = 0; i < rank; ++i)
        (i < at ? a.outer : i == at ? a.length : a.inner) *= static_cast<std::size_t>(shape[static_cast<std::size_t>(i)]);
    return a;
}

/// Returns the smallest and the largest finite value, with zero among them.
std::pair<float, float> finite_range(std::span<const float> x);

/// Returns scale and zero point for one tensor's own range (dynamic quantization); docs/reference/numerics.md, "Calibration".
inline affine range_scale(const format& f, std::span<const float> x) {
    const auto [low, high] = finite_range(x);
    const auto* e = std::get_if<floating>(&f);
    return e != nullptr && !is_scaled(*e) ? affine{} : scale_of_range(f, low, high);
}

/// Returns whether there is one scale for all elements, or none, so that an element's result does not depend on its position.
inline bool has_one_scale(const quantizer& q) {
    return !is_block_format(q.format) && (q.dynamic || (q.block_size == 0 && q.scale.size() <= 1));
}

/// Applies a quantizer that has_one_scale().
inline void quantize_elements(const quantizer& q, std::span<const float> x, std::span<float> y) {
    const bool scaled = q.dynamic || !q.scale.empty();
    if (!scaled && is_integer_format(q.format)) throw error("an integer format has no scale: calibrate first");
    affine by;
    if (q.dynamic) by = range_scale(q.format, x);
    else if (scaled) by = {q.scale[0], q.zero_point.empty() ? 0 : q.zero_point[0]};
    for_each_range(x.size(), 2, [&](std::size_t begin, std::size_t end) {
        const auto from = x.subspan(begin, end - begin);
        const auto to = y.subspan(begin, end - begin);
        if (scaled) kernel_calls::fake_quantize(q.format, from, to, by, from_element(q.semantics, begin));
        else kernel_calls::fake_quantize(q.format, from, to, from_element(q.semantics, begin));
    });
}

/// Applies a quantizer. `channels_last`: the buffer holds N, D1, D2, ..., C though the shape reads N, C, D1, D2, ...; the axis must be 1 or
/// none.
inline void quantize_value(const quantizer& q, const dims& shape, bool channels_last, std::span<const float> x, std::span<float> y) {
    along_axis axis = axis_of(shape, q.axis, q.flatten);
    if (channels_last) axis = {static_cast<std::size_t>(shape[0]) * axis.inner, axis.length, 1};
    if (x.empty()) return;
    if (has_one_scale(q)) return quantize_elements(q, x, y);
    if (is_block_format(q.format)) {
        format f = q.format;
        as_one_row(f, axis, x.size());
        if (has_floating_scales(f))
            return kernel_calls::fake_quantize(f, x, y, axis, affine{q.scale.empty() || q.dynamic ? 0.0f : q.scale[0], 0}, q.semantics);
        return kernel_calls::fake_quantize(f, x, y, axis, q.semantics);
    }
    if (const std::size_t wanted = scales_along(q, axis); q.scale.size() != wanted)
        throw error("a quantizer has " + std::to_string(q.scale.size()) + " scales for " + std::to_string(wanted) +
                    (q.block_size > 0 ? " blocks" : " channels") + " of shape " + to_string(shape));
    if (q.block_size > 0)
        return kernel_calls::fake_quantize(q.format, x, y, per_block{q.scale, q.zero_point, axis, static_cast<std::size_t>(q.block_size)},
                                           q.semantics);
    kernel_calls::fake_quantize(q.format, x, y, per_channel{q.scale, q.zero_point, axis}, q.semantics);
}

/// Does what quantize_value() does, with the same bits, in parts if a run has idle threads.
void quantize_in_parts(const quantizer& q, const dims& shape, bool channels_last, std::span<const float> x, std::span<float> y);

/// Returns whether quantize_value() can take a channels-last buffer as it is, without being slow.
inline bool works_channels_last(const quantizer& q, const dims& shape) {
    const bool has_axis = is_block_format(q.format) || q.block_size > 0 || q.scale.size() > 1;
    if (!has_axis) return true;
    if (is_block_format(q.format) && shape[1] % block_size(q.format) != 0 && (shape[1] > block_size(q.format) || shape[1] % 8 != 0))
        return false;  // rows of partial blocks are slow
    return !q.flatten && q.block_size == 0 && (q.axis == 1 || q.axis == 1 - static_cast<int>(shape.size()));
}

/// Returns a value under a quantizer as a new tensor. float16, bfloat16 and float64 pass through float32; other types are returned as they
/// are.
tensor quantized(const quantizer& q, const tensor& value, bool channels_last, allocator& memory);

}  // namespace qk::graph::execute
