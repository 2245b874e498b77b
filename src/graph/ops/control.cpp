// SPDX-License-Identifier: Apache-2.0
// Lists If, Loop, Scan and random numbers.
#include "qk/graph/ops/control.hpp"
#include "qk/graph/ops/random.hpp"
#include "qk/graph/ops/table.hpp"

namespace qk::graph::ops {

op_group control_group() { return join(control_ops, random_ops); }

}  // namespace qk::graph::ops
