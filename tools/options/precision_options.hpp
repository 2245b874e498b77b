// SPDX-License-Identifier: Apache-2.0
// The options that set precision: --activation, --weight, --plan, --per-channel, --calibration-method, --target, ...
#pragma once

#include "options/option_table.hpp"
#include "qk/graph/pipeline.hpp"

namespace qk::tool {

using precision_settings = graph::pipeline::precision_settings;

/// Adds --recipe.
void add_recipe(option_table& verb, precision_settings& precision);

/// Adds the options to a verb. Without `formats` it leaves out --activation, --weight, --bias and the rounding of weights (search has
/// options of its own); without `seed` it leaves out --seed (the verb has its own).
void add_precision(option_table& verb, precision_settings& precision, bool formats = true, bool seed = true);

}  // namespace qk::tool
