// SPDX-License-Identifier: Apache-2.0
// Gives a model what a plan speaks of: Attention nodes become the products that they are made of (quantize/expand_attention.hpp).
#pragma once

#include "qk/graph/pipeline/precision.hpp"

namespace qk::graph::pipeline {

/// Expands an Attention node where a format is asked for what it reads: by the default (not in weight_only), by a request that names the
/// node or its type, by a saved plan that names its products, or, with `searches`, by the formats of a search. Other nodes stay whole.
/// Layers get those biases of zeros that a saved plan names (add_missing_biases).
void expand_for(model& m, const precision_settings& asked, bool searches = false);

}  // namespace qk::graph::pipeline
