// SPDX-License-Identifier: Apache-2.0
// Style nbits: com.microsoft's MoE becomes QMoE where the weights of its experts have integers of 2, 4 or 8 bits, MXFP4 or NVFP4.
// https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
//
// Before: MoE(x, router, w1, b1, w2, b2).  After: QMoE of the codes and scales.  Conditions: what onnxruntime's kernel on the CPU has,
// which is two layers (the gate in the first, interleaved), of one width, in the same form.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "graph/export/graph_writer.hpp"
#include "graph/export/style.hpp"
#include "graph/export/writer.hpp"
#include "qk/graph/plan/plan.hpp"

namespace qk::graph::detail {

/// A MoE node whose experts a plan quantizes.
struct planned_experts {
    int node = 0;                        ///< in the graph under export
    std::array<std::string, 2> names{};  ///< the weights of both layers, inputs 2 and 4
    std::array<const quantizer*, 2> how{};
    data_type own = data_type::float32;  ///< the model's float type: the node computes in float32, between Casts where it is another
};

/// Returns whether the node can become QMoE; `why` says what prevents it.
bool fits_qmoe(const onnx::NodeProto& n, const std::array<const quantizer*, 2>& how, const std::array<tensor, 2>& values, std::string& why);

/// Rewrites the node. Returns whether onnxruntime's kernel on the CPU rounds activations to int8 for these codes.
bool write_qmoe(graph_writer& g, const planned_experts& e, const std::array<tensor, 2>& values);

/// Reads QMoE as MoE; nothing for another operator, inputs that are no constants, and what MoE lacks: weights of routes, scales of
/// activations.
read_back read_qmoe(const model& m, const onnx::NodeProto& n);

}  // namespace qk::graph::detail
