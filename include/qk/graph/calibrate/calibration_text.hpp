// SPDX-License-Identifier: Apache-2.0
// A calibration file's text, for whoever writes it as one of several outputs.
#pragma once

#include <string>

#include "qk/graph/calibrate/statistics.hpp"

namespace qk::graph {

/// What save_calibration() writes.
std::string calibration_text(const calibration& c);

}  // namespace qk::graph
