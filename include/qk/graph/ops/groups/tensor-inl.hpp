// SPDX-License-Identifier: Apache-2.0
// Operators that move data: shapes, indices, slices.
#pragma once

#include "qk/graph/ops/table.hpp"

namespace qk::graph::ops {

QK_GRAPH_INLINE op_group tensor_group() { return {}; }

}  // namespace qk::graph::ops
