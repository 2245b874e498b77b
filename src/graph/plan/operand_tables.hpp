// SPDX-License-Identifier: Apache-2.0
// Finds weights of nodes that are no layers by themselves: tables of embeddings, experts of which a router chooses, recurrent weights, and
// the projection inside a fused Attention.
#pragma once

#include <string>
#include <vector>

#include "qk/graph/plan/layers.hpp"

namespace qk::graph {

struct held_weight {
    enum class kind : std::uint8_t {
        embedding,   ///< rows chosen by ids: get the weights' format in weight_only
        experts,     ///< matrices [E, ., .] chosen by computed indices, then multiplied: quantized like a layer's weights
        recurrent,   ///< of LSTM, GRU and RNN, for the input and for the state; what the node reads stays float32
        projection,  ///< in com.microsoft's Attention ([K, N] like a Gemm's) and MoE ([E, N, K]): multiplied with the node's input 0
    };
    kind what = kind::embedding;
    int input = 0;
    operand_axes axes;
};

/// Is true for LSTM, GRU and RNN.
bool is_recurrent(const onnx::NodeProto& node);

/// Returns the weights that a node holds, in the order of its inputs; empty for most nodes.
std::vector<held_weight> held_weights(const layer_view& layers, int node);

/// Returns whether a tensor holds chosen experts: its values are those of a table that is quantized as weights.
bool is_chosen_expert(const layer_view& layers, const std::string& tensor);

/// Returns the axes of a weight in a model: those of a held weight where it is one, otherwise axes_of() of the node.
operand_axes weight_axes(const layer_view& layers, int node, int input);

}  // namespace qk::graph
