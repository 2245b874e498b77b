// SPDX-License-Identifier: Apache-2.0
// Lists Resize, NonMaxSuppression and other operators of vision models.
#include "graph/ops/deform_conv.hpp"
#include "graph/ops/grid_sample.hpp"
#include "graph/ops/regions.hpp"
#include "graph/ops/resize.hpp"
#include "graph/ops/table.hpp"
#include "graph/ops/unpool.hpp"

namespace qk::graph::ops {

op_group vision_group() { return join(resize_ops, grid_sample_ops, regions_ops, deform_conv_ops, unpool_ops); }

}  // namespace qk::graph::ops
