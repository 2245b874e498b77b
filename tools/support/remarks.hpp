// SPDX-License-Identifier: Apache-2.0
// What a plan's remarks look like on the console: a line each, and one line for all tensors between two formats.
#pragma once

#include "qk/graph/quantize/planner.hpp"

namespace qk::tool {

/// To standard error. `all`: every remark; otherwise what did not happen as asked, and names that lead elsewhere.
void print_remarks(const graph::quantize_report& report, bool all = true);

}  // namespace qk::tool
