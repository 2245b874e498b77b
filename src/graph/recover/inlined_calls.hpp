// SPDX-License-Identifier: Apache-2.0
// Finds the calls that an export put their nodes in place of, so that a plan is recovered from them as from calls.
#pragma once

#include <optional>

#include "qk/graph/model/model.hpp"

namespace qk::graph::detail {

/// Returns the model with calls of functions again, where nodes say that they were some (export/inline_functions.hpp); nullopt where none
/// does. Calls whose nodes somebody else reads, too, stay as they are.
std::optional<model> with_calls(const model& m);

}  // namespace qk::graph::detail
