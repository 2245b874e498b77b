// SPDX-License-Identifier: Apache-2.0
// Learned rounding and rotations in this program's pipelines; fine-tuning. Includes one door of the installed package.
#include <qk/graph/learn.hpp>

qk::graph::finetune_result learned(const qk::graph::model& m, const qk::graph::precision_plan& plan, const qk::graph::named_tensors& data) {
    qk::learn::enter();
    return qk::graph::finetune(m, plan, data, {}, {.epochs = 2});
}
