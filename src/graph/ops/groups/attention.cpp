// SPDX-License-Identifier: Apache-2.0
// Lists Attention and related operators.
#include "graph/ops/attention.hpp"
#include "graph/ops/linear_attention.hpp"
#include "graph/ops/table.hpp"

namespace qk::graph::ops {

op_group attention_group() { return join(attention_ops, linear_attention_ops); }

}  // namespace qk::graph::ops
