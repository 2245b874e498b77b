// SPDX-License-Identifier: Apache-2.0
// Finds the quantizer that a DequantizeLinear node stands for: the node's values lie on the same grid as those under such a quantizer of a
// plan.
#pragma once

#include <optional>
#include <string_view>

#include "graph/evaluate/execute/cache.hpp"
#include "graph/evaluate/execute/network.hpp"
#include "graph/model/code_types.hpp"
#include "graph/model/operator_name.hpp"

namespace qk::graph::execute {

/// Returns nullopt for another operator, blocks, codes that are not integers, and scales that are not constant float32. Inputs that are not
/// constant are passed as empty tensors.
inline std::optional<quantizer> quantizer_of_dequantize(const net_node& n, const tensor& codes, const tensor& scale,
                                                        const tensor& zero_point) {
    const operator_name op = operator_of(n.view);
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

/// Returns the cache's number of the quantizer that a DequantizeLinear node stands for; nullopt if the node stands for none.
inline std::optional<int> dequantized_by(cache& c, const net_node& n, const std::vector<slot>& in) {
    const auto constant = [&](std::size_t i) { return i < in.size() && in[i] < no_slot ? c.constant(in[i]) : tensor(); };
    if (n.outputs[0] < 0 || (in.size() > 2 && in[2] >= 0) || !operator_of(n.view).contains("DequantizeLinear")) return std::nullopt;
    const auto q = quantizer_of_dequantize(n, constant(0), constant(1), constant(2));
    return q ? std::optional(c.intern(*q)) : std::nullopt;
}

}  // namespace qk::graph::execute
