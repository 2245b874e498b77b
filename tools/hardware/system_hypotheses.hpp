// SPDX-License-Identifier: Apache-2.0
// Other systems' rules as hypotheses of `qk compare`: a device that does not do what the format says may do what one of them does.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "qk/formats/format.hpp"
#include "qk/graph/files.hpp"

namespace qk::tool {

struct system_agreement {
    std::string name, how, source;
    std::size_t differ = 0;  ///< values in which the device gives something else
};

/// Returns the rules for such a format that give what the device gave, or, if there are none, the one that differs least where that is in
/// less than a tenth as many values as `mismatches`. `x` and `device` have the same shape, whose last axis are the columns.
std::vector<system_agreement> systems_like(const qk::format& f, const graph::tensor& x, std::span<const float> device,
                                           std::size_t mismatches);

/// Says so in lines for a person; empty if there are none.
std::string to_text(const std::vector<system_agreement>& found, std::size_t values);

}  // namespace qk::tool
