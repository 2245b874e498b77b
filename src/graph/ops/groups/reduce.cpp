// SPDX-License-Identifier: Apache-2.0
// Lists reductions, softmax and sorting.
#include "graph/ops/reduce.hpp"
#include "graph/ops/arg_reduce.hpp"
#include "graph/ops/cumulative.hpp"
#include "graph/ops/select.hpp"
#include "graph/ops/softmax.hpp"
#include "graph/ops/table.hpp"

namespace qk::graph::ops {

op_group reduce_group() { return join(arg_reduce_ops, cumulative_ops, reduce_ops, select_ops, softmax_ops); }

}  // namespace qk::graph::ops
