// SPDX-License-Identifier: Apache-2.0
// Prints a plan's remarks (qk/graph/quantize/remarks.hpp).
#pragma once

#include "qk/graph/quantize.hpp"

namespace qk::tool {

/// Prints to standard error. Without `all` it prints only the line for tensors between two formats, requests that were not met, renamed
/// tensors, and warnings. Returns the number of lines.
std::size_t print_remarks(const graph::quantize_report& report, bool all = true);

}  // namespace qk::tool
