// SPDX-License-Identifier: Apache-2.0
// "This format, with these choices, on a tensor of this shape": the options that convert, compare and vectors share.
#pragma once

#include <optional>
#include <string>

#include "options/option_table.hpp"
#include "qk/codec.hpp"
#include "qk/compare/conversion.hpp"
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
void add_format_options(option_table& verb, quantize_options& given);
/// --axis, and the scales.
void add_scale_options(option_table& verb, quantize_options& given);

/// Throw graph::error with the sentence of the parser, behind `before`.
qk::format parsed_format(const std::string& text, const std::string& before = "");
qk::format format_of(const quantize_options& given);
qk::semantics semantics_of(const quantize_options& given);

using compare::conversion;
using compare::expected_values;
using compare::fake_quantize;
using compare::parameters_of;
using compare::seen_along;

/// The conversion that was asked for, checked against a shape. `name` is the tensor's, for errors.
conversion resolve(const quantize_options& given, const graph::dims& shape, const std::string& name);

/// float32 of a float32 or float16 tensor read from `file`; other types are an error.
graph::tensor float_tensor(graph::tensor t, const std::string& file);

}  // namespace qk::tool
