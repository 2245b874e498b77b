// SPDX-License-Identifier: Apache-2.0
// The options that name data: --inputs, --labels, --preprocess, --samples, --calibration, --threads.
#pragma once

#include "options/option_table.hpp"
#include "qk/graph/pipeline.hpp"

namespace qk::tool {

using data_settings = graph::pipeline::data_settings;

/// Adds the options to a verb. A verb that chooses no ranges (`calibrates` false) has no --calibration.
void add_data(option_table& verb, data_settings& data, bool inputs_required = true, bool calibrates = true);

/// Adds --mask, --next-token and --per-position to a verb that measures.
void add_positions(option_table& verb, data_settings& data);

}  // namespace qk::tool
