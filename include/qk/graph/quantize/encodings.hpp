// SPDX-License-Identifier: Apache-2.0
// Reads AIMET's encodings files, versions 1.0.0, 2.0.0 and 2.1.0, and writes the first two: the scales and offsets of a simulated model.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "qk/graph/files/json_cursor.hpp"
#include "qk/graph/model/model.hpp"
#include "qk/graph/plan/plan.hpp"

namespace qk::graph {

/// Turns each encoding into a tensor's quantizer. AIMET counts codes from 0 and stores offset = -zero point in version 1.0.0: symmetric
/// encodings become signed integers, asymmetric ones unsigned. LPBQ (blocks whose scales are integers times a float of the channel) becomes
/// an integer format of its compressed bits with a scale for each block. Call place_encodings() before the plan is used.
precision_plan read_encodings(const json_cursor& c);

/// Gives constants with several scales the axis of their channels or blocks, by the first node that reads them, where the file does not say
/// it; and grids of blocks the order that a plan has them in. Other plans stay as they are. Throws error naming the tensor where scales do
/// not fit it.
void place_encodings(precision_plan& plan, const model& m);

/// Writes a plan as encodings of version 1.0.0 or 2.0.0. Blocks whose scales have that form become LPBQ. A format that the file form lacks
/// (it has integers of any width and floats of 16 and 32 bits), or a tensor with two formats, is an error that names the tensor.
nlohmann::ordered_json write_encodings(const precision_plan& plan, const model& m, const std::string& version = "1.0.0");

}  // namespace qk::graph
