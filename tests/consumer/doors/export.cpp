// SPDX-License-Identifier: Apache-2.0
// A plan written into a model. Includes one door of the installed package.
#include <qk/graph/export.hpp>

void write(const qk::graph::model& m, const qk::graph::precision_plan& plan) {
    qk::graph::export_model(m, plan, {.style = qk::graph::export_style_from("qdq")}).exported.save("quantized.onnx");
}
