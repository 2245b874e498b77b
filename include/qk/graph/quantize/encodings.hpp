// SPDX-License-Identifier: Apache-2.0
// AIMET's encodings files, version 1.0.0: the scales and offsets of a simulated model, in and out.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "qk/graph/files/json_cursor.hpp"
#include "qk/graph/model/model.hpp"
#include "qk/graph/plan/plan.hpp"

namespace qk::graph {

/// Each encoding becomes a tensor's quantizer. AIMET counts codes from 0 and stores offset = -zero point: symmetric encodings become
/// signed integers, asymmetric ones unsigned; PER_CHANNEL scales stand on axis 0 until check_encodings has seen the model.
precision_plan read_encodings(const json_cursor& c);

/// Channel and block axes of per-channel encodings from the layers that read them.
void place_encodings(precision_plan& plan, const model& m);

/// Error naming the tensor for formats that the file form lacks (it has INT of any width and FLOAT of 16 bits).
nlohmann::ordered_json write_encodings(const precision_plan& plan, const model& m);

}  // namespace qk::graph
