// SPDX-License-Identifier: Apache-2.0
// Lists the operators that move data: shapes, indices, slices.
#include "qk/graph/ops/concat_split.hpp"
#include "qk/graph/ops/gather.hpp"
#include "qk/graph/ops/generate.hpp"
#include "qk/graph/ops/pad.hpp"
#include "qk/graph/ops/rearrange.hpp"
#include "qk/graph/ops/reshape.hpp"
#include "qk/graph/ops/scatter.hpp"
#include "qk/graph/ops/slice.hpp"
#include "qk/graph/ops/table.hpp"
#include "qk/graph/ops/transpose.hpp"

namespace qk::graph::ops {

op_group tensor_group() {
    return join(concat_split_ops, gather_ops, generate_ops, pad_ops, rearrange_ops, reshape_ops, scatter_ops, slice_ops, transpose_ops);
}

}  // namespace qk::graph::ops
