// SPDX-License-Identifier: Apache-2.0
// A plan's quantizer on a value of the evaluator: which axis, which scales, then qk::fake_quantize.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "qk/graph/base/block_rows.hpp"
#include "qk/graph/base/kernel_calls.hpp"
#include "qk/graph/base/tensor.hpp"
#include "qk/graph/ops/op.hpp"
#include "qk/graph/plan/plan.hpp"

namespace qk::graph::execute {

/// [outer][length][inner] around one axis of a shape. A negative axis counts from the end; rank 0 is one element; rank 1 has only axis 0.
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

/// Scale and zero point of one tensor's own range (dynamic quantization): docs/reference/numerics.md, calibration.
inline affine range_scale(const format& f, std::span<const float> x) {
    float low = 0, high = 0;
    for (const float v : x)
        if (std::isfinite(v)) low = std::min(low, v), high = std::max(high, v);
    const float largest = std::max(-low, high);
    affine a;
    if (const auto* g = std::get_if<integer>(&f)) {
        const double qlow = static_cast<double>(qmin(*g)), qhigh = static_cast<double>(qmax(*g));
        double scale = 0;
        if (g->symmetric || g->pow2) {
            scale = g->is_signed ? static_cast<double>(largest) / qhigh : 2.0 * static_cast<double>(largest) / (qhigh - qlow);
            a.zero_point = g->is_signed ? 0 : std::int64_t{1} << (used_bits(*g) - 1);
            if (g->pow2 && scale > 0) scale = std::exp2(std::ceil(std::log2(scale)));
        } else {
            scale = (static_cast<double>(high) - static_cast<double>(low)) / (qhigh - qlow);
            if (scale > 0)
                a.zero_point = static_cast<std::int64_t>(std::clamp(std::nearbyint(qlow - static_cast<double>(low) / scale), qlow, qhigh));
        }
        a.scale = static_cast<float>(scale);
    } else if (const auto* e = std::get_if<floating>(&f); e != nullptr && is_scaled(*e)) {
        a.scale = static_cast<float>(static_cast<double>(largest) / max_value(*e));
    }
    if (!(a.scale >= std::numeric_limits<float>::min())) a = {1.0f, 0};  // all zeros, or too small to divide by
    return a;
}

/// `channels_last`: the buffer holds N, D1, D2, ..., C though the shape reads N, C, D1, D2, ...; the axis must be 1 or none.
inline void quantize_value(const quantizer& q, const dims& shape, bool channels_last, std::span<const float> x, std::span<float> y) {
    along_axis axis = axis_of(shape, q.axis, q.flatten);
    if (channels_last) axis = {static_cast<std::size_t>(shape[0]) * axis.inner, axis.length, 1};
    const std::size_t length = std::max<std::size_t>(axis.length, 1);
    if (x.empty()) return;
    if (is_block_format(q.format)) {
        format f = q.format;
        as_one_row(f, axis, x.size());
        if (std::holds_alternative<nvfloat>(f))
            return kernel_calls::fake_quantize(f, x, y, axis, affine{q.scale.empty() || q.dynamic ? 0.0f : q.scale[0], 0}, q.semantics);
        return kernel_calls::fake_quantize(f, x, y, axis, q.semantics);
    }
    if (q.dynamic) return kernel_calls::fake_quantize(q.format, x, y, range_scale(q.format, x), q.semantics);
    if (q.block_size > 0) {
        const std::size_t blocks = (length + static_cast<std::size_t>(q.block_size) - 1) / static_cast<std::size_t>(q.block_size);
        if (q.scale.size() != axis.outer * blocks * axis.inner)
            throw error("a quantizer has " + std::to_string(q.scale.size()) + " scales for " +
                        std::to_string(axis.outer * blocks * axis.inner) + " blocks of shape " + to_string(shape));
        return kernel_calls::fake_quantize(q.format, x, y, per_block{q.scale, q.zero_point, axis, static_cast<std::size_t>(q.block_size)},
                                           q.semantics);
    }
    if (q.scale.size() > 1) {
        if (q.scale.size() != length)
            throw error("a quantizer has " + std::to_string(q.scale.size()) + " scales for " + std::to_string(length) +
                        " channels of shape " + to_string(shape));
        return kernel_calls::fake_quantize(q.format, x, y, per_channel{q.scale, q.zero_point, axis}, q.semantics);
    }
    if (q.scale.empty() && is_integer_format(q.format)) throw error("an integer format has no scale: calibrate first");
    if (q.scale.empty()) return kernel_calls::fake_quantize(q.format, x, y, q.semantics);
    return kernel_calls::fake_quantize(q.format, x, y, affine{q.scale[0], q.zero_point.empty() ? 0 : q.zero_point[0]}, q.semantics);
}

/// True if the quantizer gives the same on a channels-last buffer read as such.
inline bool works_channels_last(const quantizer& q, const dims& shape) {
    const bool has_axis = is_block_format(q.format) || q.block_size > 0 || q.scale.size() > 1;
    if (!has_axis) return true;
    if (is_block_format(q.format) && shape[1] % block_size(q.format) != 0 && (shape[1] > block_size(q.format) || shape[1] % 8 != 0))
        return false;  // ragged rows are slow
    return !q.flatten && q.block_size == 0 && (q.axis == 1 || q.axis == 1 - static_cast<int>(shape.size()));
}

/// A value under a quantizer: a new tensor; float16 and bfloat16 pass through float32, other types stay as they are.
tensor quantized(const quantizer& q, const tensor& value, bool channels_last, allocator& memory);

}  // namespace qk::graph::execute
