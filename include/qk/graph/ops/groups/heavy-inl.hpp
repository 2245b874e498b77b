// SPDX-License-Identifier: Apache-2.0
// Convolution, matrix products, pooling, batch normalization: where the time goes.
#pragma once

#include "qk/graph/ops/table.hpp"

namespace qk::graph::ops {

QK_GRAPH_INLINE op_group heavy_group() { return {}; }

}  // namespace qk::graph::ops
