// SPDX-License-Identifier: Apache-2.0
// Reductions, softmax, sorting.
#pragma once

#include "qk/graph/ops/table.hpp"

namespace qk::graph::ops {

QK_GRAPH_INLINE op_group reduce_group() { return {}; }

}  // namespace qk::graph::ops
