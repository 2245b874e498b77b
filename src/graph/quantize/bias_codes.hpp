// SPDX-License-Identifier: Apache-2.0
// Codes of int32 biases.
#pragma once

namespace qk::graph::detail {

/// Largest magnitude of a bias code that survives rounding in float32: the largest float below 2^31.
inline constexpr double largest_bias_code = 2147483520.0;

}  // namespace qk::graph::detail
