// SPDX-License-Identifier: Apache-2.0
// Gives a model what a plan speaks of: Attention nodes become the products that they are made of (quantize/expand_attention.hpp).
#pragma once

#include "qk/graph/pipeline/precision.hpp"

namespace qk::graph::pipeline {

/// Makes a model plain, as plans speak of it: float64 layers become float32, the model's own functions, Ifs of constant conditions and
/// short Loops that hold layers are opened, constants and batch normalizations are folded. Adds a note about what nobody asked for.
void prepare_for_plan(model& m, std::vector<plan_note>* notes = nullptr);

/// Expands an Attention node where a format is asked for what it reads: by the default (not in weight_only), by a request that names the
/// node or its type, by a saved plan that names its products, or, with `searches`, by the formats of a search. Other nodes stay whole.
/// The model is rotated and scaled, and layers get biases, as a saved plan says.
void expand_for(model& m, const precision_settings& asked, bool searches = false);

}  // namespace qk::graph::pipeline
