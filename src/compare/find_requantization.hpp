// SPDX-License-Identifier: Apache-2.0
// What makes codes of a device's integer sums: a float scale, or a multiplier and a shift.
#pragma once

#include <functional>
#include <optional>

#include "qk/compare/dot.hpp"

namespace qk::compare {

/// The codes of sums that a device is given as C, A and B being zeros; as it stores them.
using sum_codes = std::function<std::vector<std::uint64_t>(const std::vector<std::int64_t>& sums)>;

/// The thresholds of some codes are looked for, which bound the factor; what is left is told apart by sums on which it differs. Nothing
/// where the device gives its sums as they are, or codes that no requantization gives. At most some 5000 sums are asked for.
std::optional<requantization> find_requantization(int d_bits, std::uint64_t seed, const sum_codes& ask);

}  // namespace qk::compare
