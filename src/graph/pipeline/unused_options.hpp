// SPDX-License-Identifier: Apache-2.0
// Finds options that change nothing beside the others: nobody should believe in what did not happen.
#pragma once

#include <vector>

#include "qk/graph/pipeline/data.hpp"
#include "qk/graph/pipeline/precision.hpp"

namespace qk::graph::pipeline {

/// Returns a note for each option of `given` that has no effect on what was asked. A search takes its formats from elsewhere, so less is
/// known of it.
std::vector<plan_note> unused_options(const precision_settings& given, const asked_precision& asked, bool searches);

/// The same for options that name data.
std::vector<plan_note> unused_data_options(const data_settings& given);

}  // namespace qk::graph::pipeline
