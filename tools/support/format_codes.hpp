// SPDX-License-Identifier: Apache-2.0
// Every code of a format with its value, and a drawing of its numbers: what `qk formats --codes` prints.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <string>
#include <vector>

#include "qk/formats/format.hpp"
#include "qk/formats/number.hpp"

namespace qk::tool {

/// The value of a code. Some formats of IEEE P3109 have numbers that no double holds: `text` has their decimal digits, and `value` is Inf
/// or 0.
struct code_value {
    double value = 0;
    std::string text;  ///< "nan", "inf", "-inf", or a number with as many digits as tell it apart
};

code_value value_of(const code_number& n);

/// The codes of a format in their order: those of elements, and of what blocks share (empty for elementwise formats). Integers count in
/// scales, elements of blocks in their block's scale or step.
struct format_codes {
    int bits = 0;
    std::vector<code_value> elements, shared;
};

/// Throws graph::error for formats whose codes have more than 16 bits.
format_codes codes_of(const qk::format& f);

/// Returns the pairs [code, value] as the text of a JSON array; NaN and infinities are "nan", "inf", "-inf".
std::string pairs_of(const std::vector<code_value>& codes);

/// Returns a line for each code, and the drawing.
std::string table_of(const format_codes& codes);

}  // namespace qk::tool
