// SPDX-License-Identifier: Apache-2.0
// What a kernel is given besides the format: where blocks run, and the scales that the caller supplies.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace qk {

/// One scale for the tensor. Integers: y = (q - zero_point) * scale. Floating formats: y = scale * cast(x / scale), zero_point unused.
/// NVFP4: `scale` is the tensor scale t; 0 computes it from the data.
struct affine {
    float scale = 1.0f;
    std::int64_t zero_point = 0;
};

/// The array seen as [outer][length][inner], row-major; blocks (or channels) run along `length`.
/// The last axis of a matrix of r rows and c columns is {r, c, 1}. `inner` == 0 stands for "the whole span is one row".
struct along_axis {
    std::size_t outer = 1;
    std::size_t length = 0;
    std::size_t inner = 0;
};

/// A scale for each index along an axis (per channel): scale.size() == axis.length; zero_point empty means all 0.
struct per_channel {
    std::span<const float> scale;
    std::span<const std::int64_t> zero_point;
    along_axis axis;
};

/// A scale for each run of `block_size` along an axis, as ONNX's blocked QuantizeLinear lays them out:
/// scale is [outer][ceil(length / block_size)][inner]; zero_point likewise, or empty.
struct per_block {
    std::span<const float> scale;
    std::span<const std::int64_t> zero_point;
    along_axis axis;
    std::size_t block_size = 0;
};

}  // namespace qk
