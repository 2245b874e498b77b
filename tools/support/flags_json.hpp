// SPDX-License-Identifier: Apache-2.0
// Counts of a conversion's flags as JSON, for compare --json and convert --count.
#pragma once

#include <nlohmann/json.hpp>

#include "qk/compare/flags.hpp"
#include "qk/dot/numbers.hpp"

namespace qk::tool {

inline nlohmann::ordered_json json_of(const compare::flag_counts& n) {
    return {{"values", n.values},   {"overflow", n.overflow}, {"saturation", n.saturation}, {"underflow", n.underflow},
            {"inexact", n.inexact}, {"nan", n.nan},           {"invalid", n.invalid}};
}
/// Counts of the flags of dot products as JSON.
inline nlohmann::ordered_json json_of(const dot_counts& n) {
    return {{"overflow", n.overflow}, {"underflow", n.underflow}, {"inexact", n.inexact}, {"nan", n.nan}, {"saturation", n.saturation}};
}

}  // namespace qk::tool
