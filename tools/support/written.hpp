// SPDX-License-Identifier: Apache-2.0
// A plan written into a model for the user's runtime: what quantize and search do alike.
#pragma once

#include "qk/graph/export/export.hpp"

namespace qk::tool {

/// export_model after two changes that no value shows: Relu and Clip nodes that the quantizers behind them make needless are left out, and
/// int8 activations are stored as uint8 unless `keep_int8` (not in styles amd and qinteger), which keeps int8 weights, too. The notes say
/// so.
graph::export_result write_plan(const graph::model& m, const graph::precision_plan& plan, graph::export_options options,
                                bool keep_int8 = false);

}  // namespace qk::tool
