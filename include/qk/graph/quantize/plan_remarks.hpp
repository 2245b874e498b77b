// SPDX-License-Identifier: Apache-2.0
// What a plan says of what nobody asked for by name: weights that layers share, and what stayed in float32.
#pragma once

#include <map>
#include <vector>

#include "qk/graph/model/model.hpp"
#include "qk/graph/plan/plan.hpp"
#include "qk/graph/plan/requests.hpp"
#include "qk/graph/quantize/resolve.hpp"

namespace qk::graph {

/// A remark (kind `tied`) for each weight under `chosen` that came from a constant which others still read, or that others read as floats:
/// it is quantized for this use alone.
void note_tied_weights(const model& m, const std::map<edge, quantizer>& chosen, const std::map<edge, edge_precision>& asked,
                       std::vector<plan_note>& notes);

/// Remarks where a request for everything met nothing: no layer, or only layers in the bodies of If, Loop and Scan, which are left alone;
/// and of Einsums that multiply by constant weights, which no request for layers means.
void note_what_stayed(const model& m, const std::vector<request>& requests, const std::map<edge, quantizer>& chosen,
                      std::vector<plan_note>& notes);

}  // namespace qk::graph
