// SPDX-License-Identifier: Apache-2.0
// Gives access to the whole table of operators, for tests and pages that list all of them.
#pragma once

#include <string>
#include <unordered_map>

#include "graph/ops/table.hpp"

namespace qk::graph::ops {

/// Returns the entries by "domain:name", one for each version at which an operator changed.
const std::unordered_map<std::string, op_group>& table();

}  // namespace qk::graph::ops
