// SPDX-License-Identifier: Apache-2.0
// "This format, with these choices, on a tensor of this shape": the options that convert, compare and vectors share.
#pragma once

#include <CLI/CLI.hpp>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "qk/codec.hpp"
#include "qk/formats/format.hpp"
#include "qk/graph/base/tensor.hpp"
#include "qk/parameters.hpp"
#include "qk/semantics.hpp"

namespace qk::tool {

/// As typed; empty or unset: not given.
struct quantize_options {
    std::string format;
    std::string semantics = "ocp";
    std::string rounding, scale_rule, integer_mode, overflow;
    std::string scale, zero_point;    ///< one for the tensor
    std::string scales, zero_points;  ///< .npy files
    std::optional<int> axis, scale_axis;
    std::optional<int> scale_block;
    std::optional<std::uint64_t> seed;
    bool zero_point_before = false, mxint_lowest = false, flush_inputs = false, flush_outputs = false;
};

/// --format and the choices of semantics.
void add_format_options(CLI::App& verb, quantize_options& given);
/// --axis, and the scales.
void add_scale_options(CLI::App& verb, quantize_options& given);

/// Throws graph::error with the sentence of the parser.
qk::format format_of(const quantize_options& given);
qk::semantics semantics_of(const quantize_options& given);

/// Everything that a call of fake_quantize or encode needs, checked against a shape.
struct conversion {
    qk::format format;
    qk::semantics how;
    int axis = -1;      ///< from 0; -1 for a scalar
    along_axis blocks;  ///< the array seen along `axis`
    enum class granularity { none, tensor, channel, block } given = granularity::none;
    std::vector<float> scale;
    std::vector<std::int64_t> zero_point;  ///< empty: all 0
    int scale_axis = 0;
    along_axis scale_blocks;               ///< the array seen along --scale-axis
    std::size_t scale_block = 0;

    affine one() const;
    per_channel channels() const { return {scale, zero_point, scale_blocks}; }
    per_block grid() const { return {scale, zero_point, scale_blocks, scale_block}; }
};

/// `name` is the tensor's, for errors.
conversion resolve(const quantize_options& given, const graph::dims& shape, const std::string& name);

/// The array seen along axis `axis` (0 <= axis < rank, or rank 0).
along_axis seen_along(const graph::dims& shape, int axis);

/// float32 of a float32 or float16 tensor read from `file`; other types are an error.
graph::tensor float_tensor(graph::tensor t, const std::string& file);

void fake_quantize(const conversion& c, std::span<const float> x, std::span<float> y);
/// The same by the scalar oracle of qk/reference.hpp: what a device is held against.
void expected_values(const conversion& c, std::span<const float> x, std::span<float> y);

}  // namespace qk::tool
