// SPDX-License-Identifier: Apache-2.0
// The options that convert, compare and vectors share: a format with choices of semantics, for a tensor of a given shape.
#pragma once

#include <optional>
#include <string>

#include "options/option_table.hpp"
#include "qk/codec.hpp"
#include "qk/compare/conversion.hpp"
#include "qk/formats/format.hpp"
#include "qk/graph/files.hpp"
#include "qk/parameters.hpp"
#include "qk/semantics.hpp"

namespace qk::tool {

/// The options as typed; empty or unset: not given.
struct quantize_options {
    std::string format;
    std::string semantics = "ocp";
    std::string rounding, scale_rule, scale_objective, integer_mode, overflow;
    std::string scale, zero_point;    ///< one value for the whole tensor
    std::string scales, zero_points;  ///< .npy files
    std::string random_words;         ///< .npy of uint32, or a hexadecimal word a line
    std::optional<int> axis, scale_axis;
    std::optional<int> scale_block, random_bits;
    std::optional<std::uint64_t> seed;
    bool zero_point_before = false, mxint_lowest = false, flush_inputs = false, flush_outputs = false;
};

/// Adds --format and the choices of semantics.
void add_format_options(option_table& verb, quantize_options& given);
/// Adds --axis and the options for scales and zero points.
void add_scale_options(option_table& verb, quantize_options& given);

/// These throw graph::error with the parser's sentence; parsed_format puts `before` in front of it.
qk::format parsed_format(const std::string& text, const std::string& before = "");
qk::format format_of(const quantize_options& given);
qk::semantics semantics_of(const quantize_options& given);

using compare::conversion;
using compare::expected_values;
using compare::fake_quantize;
using compare::parameters_of;
using compare::seen_along;

/// Returns the conversion that the options describe, checked against a shape; errors call the tensor `name`.
conversion resolve(const quantize_options& given, const graph::dims& shape, const std::string& name);

/// Finds the scales that --scale-axis and --scale-block ask for by a search, from the values, as for weights of a model; for formats for
/// which graph::searches_scales is true.
conversion resolve_searched(const quantize_options& given, const graph::tensor& x, const std::string& name);

/// Returns a float32 or float16 tensor, read from `file`, as float32; throws for other types.
graph::tensor float_tensor(graph::tensor t, const std::string& file);

}  // namespace qk::tool
