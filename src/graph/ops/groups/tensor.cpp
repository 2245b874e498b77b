// SPDX-License-Identifier: Apache-2.0
// Lists the operators that move data: shapes, indices, slices.
#include "graph/ops/concat_split.hpp"
#include "graph/ops/gather.hpp"
#include "graph/ops/generate.hpp"
#include "graph/ops/pad.hpp"
#include "graph/ops/rearrange.hpp"
#include "graph/ops/reshape.hpp"
#include "graph/ops/scatter.hpp"
#include "graph/ops/slice.hpp"
#include "graph/ops/table.hpp"
#include "graph/ops/transpose.hpp"

namespace qk::graph::ops {

op_group tensor_group() {
    return join(concat_split_ops, gather_ops, generate_ops, pad_ops, rearrange_ops, reshape_ops, scatter_ops, slice_ops, transpose_ops);
}

}  // namespace qk::graph::ops
