// SPDX-License-Identifier: Apache-2.0
// The numbers in a tensor of any numeric type.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "qk/graph/base/tensor.hpp"

namespace qk::graph {

/// Returns the elements in row-major order; nothing for types without numbers (text, complex). Booleans are 0 and 1. As integers, floats
/// lose their fraction and a uint64 keeps its 64 bits.
std::optional<std::vector<float>> float_values(const tensor& t);
std::optional<std::vector<double>> double_values(const tensor& t);
std::optional<std::vector<std::int64_t>> integer_values(const tensor& t);

/// Returns whether the type is an integer of 2 to 64 bits.
bool is_integer(data_type t);

}  // namespace qk::graph
