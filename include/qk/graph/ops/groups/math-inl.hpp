// SPDX-License-Identifier: Apache-2.0
// Operators that work element by element.
#pragma once

#include "qk/graph/ops/table.hpp"

namespace qk::graph::ops {

QK_GRAPH_INLINE op_group math_group() { return {}; }

}  // namespace qk::graph::ops
