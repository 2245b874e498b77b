// SPDX-License-Identifier: Apache-2.0
// Lists convolution, matrix products, pooling and batch normalization, where most of the time is spent.
#include "graph/ops/batch_normalization.hpp"
#include "graph/ops/conv.hpp"
#include "graph/ops/conv_transpose.hpp"
#include "graph/ops/gemm.hpp"
#include "graph/ops/matmul.hpp"
#include "graph/ops/pool.hpp"
#include "graph/ops/table.hpp"

namespace qk::graph::ops {

op_group heavy_group() { return join(conv_ops, conv_transpose_ops, gemm_ops, matmul_ops, pool_ops, batch_normalization_ops); }

}  // namespace qk::graph::ops
