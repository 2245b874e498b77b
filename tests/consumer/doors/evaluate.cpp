// SPDX-License-Identifier: Apache-2.0
// One run of a model on the CPU. Includes one door of the installed package.
#include <qk/graph/evaluate.hpp>

qk::graph::named_tensors outputs_of(const qk::graph::model& m, const qk::graph::named_tensors& data) {
    const qk::graph::evaluator run(m);
    return run.run(data).outputs;
}
