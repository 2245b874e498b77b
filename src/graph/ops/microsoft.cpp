// SPDX-License-Identifier: Apache-2.0
// Lists the operators of the domain com.microsoft.
#include "qk/graph/ops/decoder_masked_attention.hpp"
#include "qk/graph/ops/dynamic_quantize_lstm.hpp"
#include "qk/graph/ops/embeddings.hpp"
#include "qk/graph/ops/fused.hpp"
#include "qk/graph/ops/group_query_attention.hpp"
#include "qk/graph/ops/microsoft_attention.hpp"
#include "qk/graph/ops/moe.hpp"
#include "qk/graph/ops/qgemm.hpp"
#include "qk/graph/ops/qlinear.hpp"
#include "qk/graph/ops/table.hpp"

namespace qk::graph::ops {

op_group microsoft_group() {
    return join(qlinear_ops, qgemm_ops, fused_ops, dynamic_quantize_lstm_ops, microsoft_attention_ops, group_query_attention_ops, moe_ops,
                decoder_masked_attention_ops, embedding_ops);
}

}  // namespace qk::graph::ops
