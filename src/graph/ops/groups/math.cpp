// SPDX-License-Identifier: Apache-2.0
// Lists the operators that work element by element, and Einsum and signal processing.
#include "graph/ops/activation.hpp"
#include "graph/ops/binary.hpp"
#include "graph/ops/comparison.hpp"
#include "graph/ops/einsum.hpp"
#include "graph/ops/signal.hpp"
#include "graph/ops/table.hpp"
#include "graph/ops/unary.hpp"
#include "graph/ops/variadic.hpp"

namespace qk::graph::ops {

op_group math_group() { return join(activation_ops, binary_ops, comparison_ops, einsum_ops, signal_ops, unary_ops, variadic_ops); }

}  // namespace qk::graph::ops
