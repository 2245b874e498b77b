// SPDX-License-Identifier: Apache-2.0
// Converts formats to and from std::string, for code that may allocate and throw.
#pragma once

#include <string>
#include <string_view>

#include "qk/formats/parse.hpp"
#include "qk/graph/base/error.hpp"

namespace qk {

/// Returns the format's text: "mxfp4", "bfp:block=16,exponent=8,mantissa=5".
inline std::string to_string(const format& f) { return std::string(to_text(f).view()); }

namespace graph {

/// Returns the parsed value; throws qk::graph::error with the parser's sentence.
template <class T>
T parsed_value(const parsed<T>& p) {
    if (!p) throw error(std::string(p.error.view()));
    return *p;
}

/// Returns the format that `text` names and numbers are rounded to; throws qk::graph::error with the parser's sentence.
inline format format_from(std::string_view text) { return parsed_value(parse_rounded_format(text)); }

}  // namespace graph
}  // namespace qk
