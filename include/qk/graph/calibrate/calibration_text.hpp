// SPDX-License-Identifier: Apache-2.0
// A calibration file's text, for callers that write it as one of several outputs.
#pragma once

#include <string>

#include "qk/graph/calibrate/statistics.hpp"

namespace qk::graph {

/// Returns what save_calibration() writes.
std::string calibration_text(const calibration& c);

}  // namespace qk::graph
