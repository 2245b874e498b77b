// SPDX-License-Identifier: Apache-2.0
// Lists If, Loop, Scan and random numbers.
#include "graph/ops/control.hpp"
#include "graph/ops/random.hpp"
#include "graph/ops/table.hpp"

namespace qk::graph::ops {

op_group control_group() { return join(control_ops, random_ops); }

}  // namespace qk::graph::ops
