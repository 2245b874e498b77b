// SPDX-License-Identifier: Apache-2.0
// Weights that stand in nodes which are no layers by themselves: tables of embeddings, experts of which a router chooses, and the
// projection inside a fused Attention.
#pragma once

#include <string>
#include <vector>

#include "qk/graph/plan/layers.hpp"

namespace qk::graph {

struct held_weight {
    enum class kind : std::uint8_t {
        embedding,   ///< rows chosen by ids: takes the weights' format in weight_only
        experts,     ///< matrices [E, ., .] chosen by computed indices, multiplied behind: weights like a layer's
        projection,  ///< of com.microsoft's Attention ([K, N] like a Gemm's) and MoE ([E, N, K]); its input 0 is what they multiply
    };
    kind what = kind::embedding;
    int input = 0;
    operand_axes axes;
};

/// Of a node, by input. Empty for most.
std::vector<held_weight> held_weights(const layer_view& layers, int node);

/// A tensor that holds chosen experts: its values are those of a table that is quantized as weights.
bool is_chosen_expert(const layer_view& layers, const std::string& tensor);

/// axes_of() for a weight in a model: that of a held one, else the node's own.
operand_axes weight_axes(const layer_view& layers, int node, int input);

}  // namespace qk::graph
