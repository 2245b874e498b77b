// SPDX-License-Identifier: Apache-2.0
// Attention (ai.onnx, opset 23 on) as the products that it is made of, so that what they read can be quantized.
//
// Before:  Attention 'a' (Q, K, V, attn_mask, past_key, past_value, nonpad_kv_seqlen)
// After:   MatMul 'a/scores' (Q * scale, K^T), what lies between (softcap, mask, causal and sliding windows, Softmax), MatMul 'a/context'
//          (probabilities, V). Grouped heads share their keys without a copy; caches are joined by a Concat 'a/present_key'.
// The same function to rounding, in standard operators; a row whose keys are all masked is 0.
#pragma once

#include <functional>
#include <string>

#include "qk/graph/model/model.hpp"

namespace qk::graph {

/// Expands the Attention nodes of the graph itself (not of bodies) whose names are wanted. The history leads from a name to the products.
void expand_attentions(model& m, const std::function<bool(const std::string&)>& wanted);

/// Whether the model has any.
bool has_attentions(const model& m);

}  // namespace qk::graph
