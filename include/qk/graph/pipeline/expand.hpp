// SPDX-License-Identifier: Apache-2.0
// Which Attention nodes become the products that they are made of (quantize/expand_attention.hpp): those whose products are asked for.
#pragma once

#include "qk/graph/pipeline/precision.hpp"

namespace qk::graph::pipeline {

/// Where a format is asked of what an Attention reads: by default (not in weight_only), by a request that names it or its type, by a
/// saved plan that names its products. `searches`: the formats are those of a search. Others stay whole.
void expand_for(model& m, const precision_settings& asked, bool searches = false);

}  // namespace qk::graph::pipeline
