// SPDX-License-Identifier: Apache-2.0
// Statistics of values that another runtime computed.
#pragma once

#include <cstddef>
#include <map>
#include <string>

#include "qk/graph/base/tensor.hpp"
#include "qk/graph/calibrate/statistics.hpp"

namespace qk::graph {

/// Adds the float values of one run to the statistics, with histograms.
void observe_values(calibration& into, const std::map<std::string, tensor>& values, std::size_t run);

}  // namespace qk::graph
