// SPDX-License-Identifier: Apache-2.0
// Lists reductions, softmax and sorting.
#include "qk/graph/ops/reduce.hpp"
#include "qk/graph/ops/arg_reduce.hpp"
#include "qk/graph/ops/cumulative.hpp"
#include "qk/graph/ops/select.hpp"
#include "qk/graph/ops/softmax.hpp"
#include "qk/graph/ops/table.hpp"

namespace qk::graph::ops {

op_group reduce_group() { return join(arg_reduce_ops, cumulative_ops, reduce_ops, select_ops, softmax_ops); }

}  // namespace qk::graph::ops
