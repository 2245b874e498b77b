// SPDX-License-Identifier: Apache-2.0
// Reads and writes AIMET's encodings files, version 1.0.0: the scales and offsets of a simulated model.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "qk/graph/files/json_cursor.hpp"
#include "qk/graph/model/model.hpp"
#include "qk/graph/plan/plan.hpp"

namespace qk::graph {

/// Turns each encoding into a tensor's quantizer. AIMET counts codes from 0 and stores offset = -zero point: symmetric encodings become
/// signed integers, asymmetric ones unsigned. PER_CHANNEL scales stand on axis 0 until place_encodings() has seen the model.
precision_plan read_encodings(const json_cursor& c);

/// Sets the channel axis or block axis of every constant with several scales, by the first node that reads it.
void place_encodings(precision_plan& plan, const model& m);

/// Writes a plan as encodings. A format that the file form lacks (it has INT of any width and FLOAT of 16 bits), or a tensor with two
/// formats, is an error that names the tensor.
nlohmann::ordered_json write_encodings(const precision_plan& plan, const model& m);

}  // namespace qk::graph
