// SPDX-License-Identifier: Apache-2.0
// Lists quantization, integer arithmetic and casts.
#include "graph/ops/cast.hpp"
#include "graph/ops/conv_integer.hpp"
#include "graph/ops/matmul_integer.hpp"
#include "graph/ops/quantize_linear.hpp"
#include "graph/ops/table.hpp"
#include "graph/ops/tensorrt.hpp"

namespace qk::graph::ops {

op_group quantization_group() { return join(cast_ops, quantize_linear_ops, matmul_integer_ops, conv_integer_ops, tensorrt_ops); }

}  // namespace qk::graph::ops
