// SPDX-License-Identifier: Apache-2.0
// Lists If, Loop, Scan, random numbers, and operators that fit no other group: ai.onnx.ml, optimizers, n-grams.
#include "qk/graph/ops/control.hpp"
#include "qk/graph/ops/ml.hpp"
#include "qk/graph/ops/optimizer.hpp"
#include "qk/graph/ops/random.hpp"
#include "qk/graph/ops/table.hpp"
#include "qk/graph/ops/tfidf.hpp"

namespace qk::graph::ops {

op_group control_group() { return join(control_ops, ml_ops, optimizer_ops, random_ops, tfidf_ops); }

}  // namespace qk::graph::ops
