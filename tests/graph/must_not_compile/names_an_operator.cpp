// SPDX-License-Identifier: Apache-2.0
// expect: ask_the_row_of_the_operator_in_place_of_its_name
// flags: -DONNX_ML=1;-DONNX_NAMESPACE=onnx
#include "graph/model/operator_name.hpp"
bool is_convolution(const onnx::NodeProto& n) { return qk::graph::operator_of(n) == "Conv"; }
