// SPDX-License-Identifier: Apache-2.0
// Operators of the domain com.microsoft.
#pragma once

#include "qk/graph/ops/table.hpp"

namespace qk::graph::ops {

QK_GRAPH_INLINE op_group microsoft_group() { return {}; }

}  // namespace qk::graph::ops
