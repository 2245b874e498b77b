// SPDX-License-Identifier: Apache-2.0
// Lists the operators that work element by element, and Einsum and signal processing.
#include "qk/graph/ops/activation.hpp"
#include "qk/graph/ops/binary.hpp"
#include "qk/graph/ops/comparison.hpp"
#include "qk/graph/ops/einsum.hpp"
#include "qk/graph/ops/signal.hpp"
#include "qk/graph/ops/table.hpp"
#include "qk/graph/ops/unary.hpp"
#include "qk/graph/ops/variadic.hpp"

namespace qk::graph::ops {

op_group math_group() { return join(activation_ops, binary_ops, comparison_ops, einsum_ops, signal_ops, unary_ops, variadic_ops); }

}  // namespace qk::graph::ops
