// SPDX-License-Identifier: Apache-2.0
// Notes of a plan about what no request names: weights that layers share, and what stayed in float32.
#pragma once

#include <map>
#include <set>
#include <vector>

#include "qk/graph/model/model.hpp"
#include "qk/graph/plan/plan.hpp"
#include "qk/graph/plan/requests.hpp"
#include "qk/graph/quantize/resolve.hpp"

namespace qk::graph {

/// Adds a note (kind `tied`) for each weight in `chosen` that came from a constant which others still read, or that others read as floats:
/// it is quantized for this use alone.
void note_tied_weights(const model& m, const std::map<edge, quantizer>& chosen, const std::map<edge, edge_precision>& asked,
                       std::vector<plan_note>& notes);

/// Adds notes about what a request for everything did not reach: layers in the bodies of If, Loop and Scan and in the model's functions,
/// layers of float64, sparse weights, those of LSTM, GRU and RNN where no default of weights is theirs, Einsums that multiply by constant
/// weights (no request for layers means them), or every layer. Recurrent weights that a request excludes are no remark: it was asked.
/// Without a request for everything, notes a plan that changes nothing.
void note_what_stayed(const model& m, const std::vector<request>& requests, const std::map<edge, quantizer>& chosen,
                      const std::set<edge>& excluded, std::vector<plan_note>& notes);

}  // namespace qk::graph
