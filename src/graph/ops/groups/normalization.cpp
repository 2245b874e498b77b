// SPDX-License-Identifier: Apache-2.0
// Lists the normalizations.
#include "graph/ops/group_normalization.hpp"
#include "graph/ops/layer_normalization.hpp"
#include "graph/ops/lp_normalization.hpp"
#include "graph/ops/table.hpp"

namespace qk::graph::ops {

op_group normalization_group() { return join(layer_normalization_ops, group_normalization_ops, lp_normalization_ops); }

}  // namespace qk::graph::ops
