// SPDX-License-Identifier: Apache-2.0
// Normalizations.
#pragma once

#include "qk/graph/ops/table.hpp"

namespace qk::graph::ops {

QK_GRAPH_INLINE op_group normalization_group() { return {}; }

}  // namespace qk::graph::ops
