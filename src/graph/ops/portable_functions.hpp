// SPDX-License-Identifier: Apache-2.0
// Computes calls of the functions of portable files from what they mean, with the kernels: the bits of the functions' bodies.
// docs/reference/portable_functions.md.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "graph/ops/portable_call.hpp"

namespace qk::graph::ops {

/// The values behind the planes of a constant, with the scales and zero points that were given beside them.
struct decoded_constant {
    tensor value;  ///< float32, in the shape of the call
    std::vector<float> scale;
    std::vector<std::int64_t> zero_point;
};

/// Returns what `held`, the inputs of a call from its codes on, decode to; nullopt where they are not what the call says of them. The codes
/// have layout 1 (docs/reference/layouts.md).
std::optional<decoded_constant> decoded_matrix_of(const portable_call& call, std::span<const tensor> held);

}  // namespace qk::graph::ops
