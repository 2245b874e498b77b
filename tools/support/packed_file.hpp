// SPDX-License-Identifier: Apache-2.0
// A packed tensor as a file: an .npz archive with a member for each plane of docs/reference/layouts.md, and members with what decoding
// needs.
#pragma once

#include <string>
#include <vector>

#include "options/format_options.hpp"

namespace qk::tool {

struct packed_tensor {
    conversion how;
    graph::dims shape;
    std::vector<std::byte> bytes;  ///< all planes, as layout_of cuts them
};

/// Encodes a tensor. Throws graph::error when the semantics gives results without a code.
packed_tensor pack(const conversion& c, const graph::tensor& x);
graph::tensor unpack(const packed_tensor& p);

/// Makes the archive. Its members are elements, scales, shifts, tensor_scale (uint8 planes, absent when empty); format (text as uint8),
/// layout, shape, axis; and scale, zero_point, scale_axis (with the block size) when the caller supplied scales.
std::string to_archive(const packed_tensor& p);
packed_tensor from_archive(const std::string& bytes, const std::string& file);

/// Is true when `bytes` begin like an archive.
bool is_archive(const std::string& bytes);

}  // namespace qk::tool
