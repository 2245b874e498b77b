// SPDX-License-Identifier: Apache-2.0
// Lists the operators of the domain com.microsoft.
#include "graph/ops/decoder_masked_attention.hpp"
#include "graph/ops/dynamic_quantize_lstm.hpp"
#include "graph/ops/embeddings.hpp"
#include "graph/ops/fused.hpp"
#include "graph/ops/group_query_attention.hpp"
#include "graph/ops/microsoft_attention.hpp"
#include "graph/ops/moe.hpp"
#include "graph/ops/qgemm.hpp"
#include "graph/ops/qlinear.hpp"
#include "graph/ops/table.hpp"

namespace qk::graph::ops {

op_group microsoft_group() {
    return join(qlinear_ops, qgemm_ops, fused_ops, dynamic_quantize_lstm_ops, microsoft_attention_ops, group_query_attention_ops, moe_ops,
                decoder_masked_attention_ops, embedding_ops);
}

}  // namespace qk::graph::ops
