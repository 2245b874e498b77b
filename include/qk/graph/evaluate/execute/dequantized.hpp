// SPDX-License-Identifier: Apache-2.0
// The quantizer that a DequantizeLinear node stands for: its values lie on the same grid as those under a plan's quantizer.
#pragma once

#include <optional>
#include <string_view>

#include "qk/graph/evaluate/execute/network.hpp"
#include "qk/graph/model/code_types.hpp"

namespace qk::graph::execute {

/// Nothing: another operator, blocks, or codes that are not integers. Tensors that are not constant are empty.
inline std::optional<quantizer> quantizer_of_dequantize(const net_node& n, const tensor& codes, const tensor& scale,
                                                        const tensor& zero_point) {
    const std::string_view op = n.view.op_type();
    if (op != "DequantizeLinear" && op != "ExtendedDequantizeLinear" && op != "VitisDequantizeLinear") return std::nullopt;
    if (scale.empty() || scale.type() != data_type::float32 || scale.size() == 0 || n.view.get_int("block_size", 0) != 0)
        return std::nullopt;
    const auto format = qk::graph::detail::format_of_codes(!zero_point.empty() ? zero_point.type() : codes.type());
    if (!format || !is_integer_format(*format)) return std::nullopt;
    quantizer q;
    q.format = *format;
    q.axis = static_cast<int>(n.view.get_int("axis", 1));
    q.scale.assign(scale.as<float>().begin(), scale.as<float>().end());
    for (std::size_t i = 0; i < zero_point.size(); ++i) q.zero_point.push_back(qk::graph::detail::code_at(zero_point, i));
    return q;
}

}  // namespace qk::graph::execute
