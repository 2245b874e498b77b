// SPDX-License-Identifier: Apache-2.0
// Finds how a device makes codes of its integer sums: by a float scale, or by a multiplier and a shift.
#pragma once

#include <functional>
#include <optional>

#include "qk/compare/dot.hpp"

namespace qk::compare {

/// Returns the codes, as the device stores them, of sums that it is given as C; A and B are zero.
using sum_codes = std::function<std::vector<std::uint64_t>(const std::vector<std::int64_t>& sums)>;

/// Finds the sums at which some codes begin, which bound the factor, then tells the remaining candidates apart by sums on which they
/// differ. Returns nullopt if the device gives its sums as they are, or codes that no requantization gives. Asks for some 5000 sums at
/// most.
std::optional<requantization> find_requantization(int d_bits, std::uint64_t seed, const sum_codes& ask);

}  // namespace qk::compare
