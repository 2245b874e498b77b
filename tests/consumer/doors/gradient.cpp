// SPDX-License-Identifier: Apache-2.0
// Gradients of a model's output by its inputs and weights. Includes one door of the installed package.
#include <qk/graph/gradient.hpp>

qk::graph::named_tensors gradients_of(const qk::graph::model& m, const qk::graph::named_tensors& data, const qk::graph::tensor& v) {
    return qk::graph::vector_gradient(m, data, v, {.threads = 1}).gradients;
}
