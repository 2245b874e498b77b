// SPDX-License-Identifier: Apache-2.0
// Resize, NonMaxSuppression and other operators of vision models.
#pragma once

#include "qk/graph/ops/table.hpp"

namespace qk::graph::ops {

QK_GRAPH_INLINE op_group vision_group() { return {}; }

}  // namespace qk::graph::ops
