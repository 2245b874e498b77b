// SPDX-License-Identifier: Apache-2.0
// Tells that a model holds quantizers already.
#pragma once

#include <vector>

#include "qk/graph/model/model.hpp"
#include "qk/graph/quantize/resolve.hpp"

namespace qk::graph {

/// Returns a note (kind `requantized`) for a model with quantizers or operators on codes: a plan for it rounds values a second time.
/// Folding takes away the quantizers of constants, so ask before it. Empty for a model of floats.
std::vector<plan_note> note_quantized(const model& m);

}  // namespace qk::graph
