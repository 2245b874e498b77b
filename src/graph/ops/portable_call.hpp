// SPDX-License-Identifier: Apache-2.0
// What a call of a function of a portable file means, read from its attributes (qk/portable/function.hpp).
#pragma once

#include <onnx/onnx_pb.h>

#include <limits>
#include <optional>
#include <string_view>

#include "graph/model/check.hpp"
#include "qk/formats/format.hpp"
#include "qk/formats/parse.hpp"
#include "qk/graph/base/tensor.hpp"
#include "qk/graph/model/attribute.hpp"
#include "qk/portable/function.hpp"

namespace qk::graph::ops {

struct portable_call {
    qk::format format = fp32;
    qk::semantics semantics;
    portable::scale_source scales = portable::scale_source::none;
    portable::result_shape result = portable::result_shape::input;
    int axis = -1;
    int block = 0;  ///< values along the axis that share a scale; 0: no blocks
    bool flatten = false;
    dims shape;  ///< of the result of what decodes, of the matrix of a product, of a table
    // Of products:
    bool turned = false, bias = false;
    portable::sums sums = portable::sums::floats;
};

/// Returns what the attributes of a call say; nullopt where they are missing, those of a later version, or say what no call can mean.
inline std::optional<portable_call> portable_call_of(const onnx::NodeProto& n) {
    namespace own = portable::attribute;
    const auto text = [&](const char* name) -> std::string_view {
        const onnx::AttributeProto* a = graph::detail::find_attribute(n, name);
        return a == nullptr ? std::string_view() : std::string_view(a->s());
    };
    const auto number = [&](const char* name, std::int64_t otherwise) { return graph::detail::int_attribute(n, name, otherwise); };
    const std::int64_t version = number(own::version, 0);
    if (version < 1 || version > portable::version) return std::nullopt;
    const auto format = parse_rounded_format(text(own::format));
    const auto rule = parse_scale_rule(text(own::scale_rule));
    const auto scales = parse_option("scales", text(own::scales), portable::scale_source_names);
    const auto result = parse_option("result", text(own::result), portable::result_shape_names);
    if (!format || !rule || !scales || !result) return std::nullopt;
    const auto semantics = portable::parse_semantics_text(text(own::semantics), *rule);
    const std::int64_t axis = number(own::axis, -1), block = number(own::block, 0);
    constexpr std::int64_t most = std::numeric_limits<int>::max();
    if (!semantics || axis < -most || axis > most || block < 0 || block > most) return std::nullopt;
    portable_call c;
    c.format = *format, c.semantics = *semantics, c.scales = *scales, c.result = *result;
    c.axis = static_cast<int>(axis), c.block = static_cast<int>(block), c.flatten = number(own::flatten, 0) != 0;
    const bool blocked = is_block_format(c.format);
    if (blocked != (c.scales == portable::scale_source::own) || (blocked && block != block_size(c.format))) return std::nullopt;
    if (c.scales == portable::scale_source::blocks && block < 1) return std::nullopt;
    if (is_integer_format(c.format) && c.scales == portable::scale_source::none) return std::nullopt;
    if (c.result == portable::result_shape::input) return c;
    if (const onnx::AttributeProto* a = graph::detail::find_attribute(n, own::shape)) c.shape.assign(a->ints().begin(), a->ints().end());
    std::int64_t size = 1;
    for (const std::int64_t d : c.shape)
        if (d < 0 || __builtin_mul_overflow(size, d, &size) || size > std::int64_t{1} << 40) return std::nullopt;
    if (c.result == portable::result_shape::shape) return c;
    if (c.result == portable::result_shape::rows) return c.shape.size() == 2 && size != 0 ? std::optional(c) : std::nullopt;
    const auto sums = parse_option("sums", text(own::sums), portable::sums_names);
    if (!sums || c.shape.size() != 2 || size == 0) return std::nullopt;
    if (*sums == portable::sums::integers && !portable::takes_integer_sums(c.format, c.scales, axis, block)) return std::nullopt;
    c.turned = number(own::turned, 0) != 0, c.bias = number(own::bias, 0) != 0, c.sums = *sums;
    return c;
}

/// Returns the rows of the table by which the evaluator computes calls of a function that qk wrote: "quantize", "decode", "product",
/// "rows". Null where the call does not say what it means, or means what only the body does: constants that are decoded once.
const char* portable_row_of(const onnx::NodeProto& call);

}  // namespace qk::graph::ops
