// SPDX-License-Identifier: Apache-2.0
// Formats from and to std::string for the layers that may allocate and throw.
#pragma once

#include <string>
#include <string_view>

#include "qk/formats/parse.hpp"
#include "qk/graph/base/error.hpp"

namespace qk {

/// "mxfp4", "bfp:block=16,exponent=8,mantissa=5".
inline std::string to_string(const format& f) { return std::string(to_text(f).view()); }

namespace graph {

/// The format that `text` names; throws qk::graph::error with parse_format's sentence.
inline format format_from(std::string_view text) {
    const parsed<format> f = parse_format(text);
    if (!f) throw error(std::string(f.error.view()));
    return *f;
}

}  // namespace graph
}  // namespace qk
