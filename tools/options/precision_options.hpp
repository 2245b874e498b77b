// SPDX-License-Identifier: Apache-2.0
// The options by which verbs take precision: --activation, --weight, --plan, --per-channel, --calibration-method, --target, ...
#pragma once

#include "options/option_table.hpp"
#include "qk/graph/pipeline/precision.hpp"

namespace qk::tool {

using precision_settings = graph::pipeline::precision_settings;

/// Adds the options to a verb. Without `formats`: not --activation and --weight (search has its own). Without `seed`: the verb has one.
void add_precision(option_table& verb, precision_settings& precision, bool formats = true, bool seed = true);

}  // namespace qk::tool
