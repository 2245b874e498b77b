// SPDX-License-Identifier: Apache-2.0
// Compares a decoder, which makes values of codes, with what the format says, and names the mistakes that reproduce its values.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "qk/compare/compare.hpp"

namespace qk::compare {

/// What a decoder is given: block after block, each whole. Values without blocks are one row.
struct coded_values {
    std::vector<std::uint32_t> elements, scales, shifts;  ///< scales: one for each block; shifts: as many for each block as it has
};

/// Returns what the format says of these codes. A code that is wider than its format counts by its low bits.
std::vector<float> decoded(const conversion& c, const coded_values& codes);

/// Compares `device`, a decoder's values for `codes`, with those of c.format. A scale and zero point of c are for all values; a scale is
/// the tensor scale of NVFP4. The report is that of a converter whose input is the right value.
report examine_decoder(const conversion& c, const coded_values& codes, std::span<const float> device);

}  // namespace qk::compare
