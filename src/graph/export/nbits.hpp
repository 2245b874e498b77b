// SPDX-License-Identifier: Apache-2.0
// Style nbits: products with weights of 2, 4 or 8 bits become com.microsoft's MatMulNBits, and tables of such codes become
// GatherBlockQuantized; the rest is style portable. https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
//
// Before: MatMul|Gemm(x, W)  or  Gather(W, ids).  After: one node of codes and scales.  Conditions: integers, scales by blocks of a power
// of two from 16 on (a scale for the tensor, for each channel or for other multiples of 16 is repeated), blocks along the inputs of a
// product, or along the rows of a table.
#pragma once

#include <string>

#include "graph/export/codes.hpp"
#include "graph/export/graph_writer.hpp"
#include "graph/export/writer.hpp"
#include "qk/graph/plan/plan.hpp"

namespace qk::graph::detail {

/// Returns whether the reader of weights `value` can become such a node; `why` says what prevents it.
bool fits_nbits(const onnx::NodeProto& reader, int input, const quantizer& q, const tensor& value, std::string& why);

/// Rewrites node `index` of the graph under export. `name` is the weights' name, `own` the model's float type: the node computes in
/// float32, and its input and output are cast where `own` is another type.
void write_nbits(graph_writer& g, int index, const std::string& name, const quantizer& q, const tensor& value, data_type own);

}  // namespace qk::graph::detail
