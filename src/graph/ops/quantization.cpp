// SPDX-License-Identifier: Apache-2.0
// Lists quantization, integer arithmetic and casts.
#include "qk/graph/ops/cast.hpp"
#include "qk/graph/ops/conv_integer.hpp"
#include "qk/graph/ops/matmul_integer.hpp"
#include "qk/graph/ops/quantize_linear.hpp"
#include "qk/graph/ops/table.hpp"

namespace qk::graph::ops {

op_group quantization_group() { return join(cast_ops, quantize_linear_ops, matmul_integer_ops, conv_integer_ops); }

}  // namespace qk::graph::ops
