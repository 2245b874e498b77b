// SPDX-License-Identifier: Apache-2.0
// Inputs that exercise a whole format: every code, every tie and its neighbours, every binade's boundaries, special values, random blocks.
#pragma once

#include <cstdint>
#include <vector>

#include "options/format_options.hpp"

namespace qk::tool {

/// Returns a flat array; for block formats, whole blocks one after the other.
std::vector<float> make_vectors(const conversion& c, std::uint64_t seed);

}  // namespace qk::tool
