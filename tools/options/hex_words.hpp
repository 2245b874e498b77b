// SPDX-License-Identifier: Apache-2.0
// Hexadecimal words as text: lines of streams, and files of $readmemh and $writememh.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace qk::tool {

/// A word that is no number (x, z of a simulator) is `no_number`.
using hex_row = std::vector<std::uint64_t>;
inline constexpr std::uint64_t no_number = ~std::uint64_t{0};

/// Returns "3f800000 40000000": words with as many digits as their widths have.
std::string hex_words(std::span<const std::uint64_t> values, const std::vector<int>& widths);
/// Returns the words of a line of hexadecimal text; what $readmemh leaves out (comments, @addresses, '_') is left out.
hex_row words_of_line(std::string line);

}  // namespace qk::tool
