// SPDX-License-Identifier: Apache-2.0
// Prints a plan's remarks: a line each, but one line for all tensors between two formats.
#pragma once

#include "qk/graph/quantize.hpp"

namespace qk::tool {

/// Prints to standard error. Without `all` it prints only the line for tensors between two formats, requests that were not met, renamed
/// tensors, and that a plan changes nothing.
void print_remarks(const graph::quantize_report& report, bool all = true);

}  // namespace qk::tool
