// SPDX-License-Identifier: Apache-2.0
// The precision plan: which format every edge of a model carries. Only plans travel between requests, evaluator, search and export.
#pragma once

#include <algorithm>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "qk/formats/format.hpp"
#include "qk/parameters.hpp"
#include "qk/semantics.hpp"

namespace qk::graph {

/// A use of a tensor: input `index` of node `consumer`. consumer == "" is the model's own output number `index`.
struct edge {
    std::string tensor;
    std::string consumer;
    int index = 0;
    friend auto operator<=>(const edge&, const edge&) = default;
};

/// How one value is quantized: everything that fake_quantize needs, nothing that it can derive.
struct quantizer {
    qk::format format = fp32;  ///< fp32: left alone
    int axis = -1;  ///< block formats, per_block: the axis blocks run along; per channel: the channel axis (counted from 0, or negative)
    bool flatten = false;      ///< grouped Conv weights: blocks over all axes but the first, flattened
    std::vector<float> scale;  ///< integer, scaled floats: 1 value per tensor, or one a channel, or a grid (block_size > 0); nvfp4: the
                               ///< tensor scale, or empty
    std::vector<std::int64_t> zero_point;  ///< empty: all 0
    int block_size = 0;  ///< integer and scaled floats with a scale for each run along `axis`; 0: per tensor or per channel
    qk::semantics semantics = qk::semantics::ocp;
    bool dynamic = false;  ///< scale and zero point are computed from each run's own value, where the format has them
    friend bool operator==(const quantizer&, const quantizer&) = default;
};

/// Returns whether some zero point is not 0. Where it is false, zero_point may as well be empty.
inline bool is_shifted(const quantizer& q) {
    return std::ranges::any_of(q.zero_point, [](std::int64_t z) { return z != 0; });
}
/// Returns the scales that a quantizer with many has on this axis: one for each run of block_size elements, or for each channel.
inline std::size_t scales_along(const quantizer& q, const along_axis& a) {
    if (q.block_size == 0) return a.length;
    const auto block = static_cast<std::size_t>(q.block_size);
    return a.outer * ((a.length + block - 1) / block) * a.inner;
}

/// Returns whether scales are chosen for a format: not for those of 16 bits and more, whose exponents reach far enough, nor for e8m0.
constexpr bool is_scaled(floating f) { return bits(f) < 16 && has_zero(f); }

/// Elements of a constant that planning changed, as where weights are rounded elsewhere than to nearest or a bias is corrected: their
/// numbers and values.
struct moved_values {
    std::vector<std::int64_t> place;
    std::vector<float> value;
    friend bool operator==(const moved_values&, const moved_values&) = default;
};

/// Channels of a tensor that planning divided by factors, and the layers whose weights it multiplied by them.
struct scaled_channels {
    std::string tensor;
    std::vector<std::string> layers;
    std::vector<float> factors;
    std::string weights;  ///< a hash of the layers' weights before
    friend bool operator==(const scaled_channels&, const scaled_channels&) = default;
};

/// The quantizers of tensors and of single edges, where an edge's own entry wins over its tensor's; and for layers what multiplies them.
struct precision_plan {
    std::map<std::string, quantizer> tensors;
    std::map<edge, quantizer> edges;
    std::map<std::string, std::string> accumulators;  ///< by layer: a device's name or an accumulator's text
    // What else planning changed in the model. The model that was planned has it already; quantize/model_changes.hpp puts it into the model
    // that a saved plan was made for.
    bool rotated = false;                         ///< the residual streams (rotate_streams())
    std::vector<scaled_channels> scaled{};        ///< in this order, behind the rotation
    std::map<std::string, moved_values> moved{};  ///< by constant, a bias of zeros that planning added among them

    /// Returns the quantizer on an edge, or nullptr for float32.
    const quantizer* find(const edge& e) const {
        if (const auto i = edges.find(e); i != edges.end()) return is_identity(i->second.format) ? nullptr : &i->second;
        if (const auto i = tensors.find(e.tensor); i != tensors.end()) return is_identity(i->second.format) ? nullptr : &i->second;
        return nullptr;
    }
    /// Returns the entry that an edge has, its own or its tensor's, to be changed; nullptr if it has none.
    quantizer* entry_of(const edge& e) {
        if (const auto i = edges.find(e); i != edges.end()) return &i->second;
        const auto i = tensors.find(e.tensor);
        return i == tensors.end() ? nullptr : &i->second;
    }
    friend bool operator==(const precision_plan&, const precision_plan&) = default;
};

}  // namespace qk::graph
