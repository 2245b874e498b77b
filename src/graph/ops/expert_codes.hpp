// SPDX-License-Identifier: Apache-2.0
// Where the codes of com.microsoft's QMoE lie, for its operator and for what reads it back into a plan.
#pragma once

#include <cstdint>
#include <string>

#include "qk/graph/base/tensor.hpp"

namespace qk::graph::ops::detail {

/// Returns the bytes of a row of codes, the last of which may be filled up.
constexpr std::int64_t bytes_of_codes(std::int64_t count, std::int64_t bits) { return (count * bits + 7) / 8; }

/// Returns code i of a row of bytes; codes follow each other from the lowest bit on, and those of 3 bits may lie in two bytes.
inline int code_in_row(const tensor& t, std::int64_t row, std::int64_t row_bytes, std::int64_t bits, std::int64_t i) {
    const std::uint8_t* bytes = t.as<std::uint8_t>().data() + row * row_bytes;
    const std::int64_t first = i * bits, at = first / 8, shift = first % 8;
    int both = bytes[at];
    if (shift + bits > 8) both |= bytes[at + 1] << 8;
    return (both >> shift) & ((1 << bits) - 1);
}

/// Returns the width of a layer's codes. Node is a node_view: the attribute of one layer wins over that of all.
template <class Node>
std::int64_t expert_bits(const Node& n, const std::string& projection) {
    return n.get_int((projection + "_expert_weight_bits").c_str(), n.get_int("expert_weight_bits", 4));
}

}  // namespace qk::graph::ops::detail
