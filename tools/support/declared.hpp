// SPDX-License-Identifier: Apache-2.0
// Declares to an output_set what a verb reads and writes.
#pragma once

#include <string>

#include "options/option_table.hpp"
#include "qk/graph/pipeline.hpp"

namespace qk::tool {

/// Adds --overwrite, which every verb that writes files has.
void add_overwrite(option_table& verb, bool& overwrite);

/// Calls pipeline::declare_model and prints its remarks to standard error.
void declare(graph::output_set& files, const graph::pipeline::model_source& model);

}  // namespace qk::tool
