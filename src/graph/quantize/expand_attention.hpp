// SPDX-License-Identifier: Apache-2.0
// Expands Attention (ai.onnx, since opset 23) into the products that it is made of, so that their inputs can be quantized.
//
// Before:  Attention 'a' (Q, K, V, attn_mask, past_key, past_value, nonpad_kv_seqlen)
// After:   MatMul 'a/scores' (Q * scale, K^T), what lies between (softcap, mask, causal and sliding windows, Softmax), MatMul 'a/context'
//          (probabilities, V). Grouped heads share their keys without a copy; caches are joined by a Concat 'a/present_key'.
// The result is the same up to rounding and uses standard operators alone; a row whose keys are all masked becomes 0.
#pragma once

#include <functional>
#include <string>

#include "qk/graph/model/model.hpp"

namespace qk::graph {

/// Expands the Attention nodes whose names are `wanted`, in the graph itself and not in bodies. The model's history leads from a node's
/// name to its products.
void expand_attentions(model& m, const std::function<bool(const std::string&)>& wanted);

/// Is true when the graph itself has an Attention node.
bool has_attentions(const model& m);

}  // namespace qk::graph
