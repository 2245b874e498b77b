// SPDX-License-Identifier: Apache-2.0
// The table of vector-Jacobian products: each header of operators is one line here.
#include <map>

#include "graph/gradient/ops/arithmetic.hpp"
#include "graph/gradient/ops/attention.hpp"
#include "graph/gradient/ops/convolution.hpp"
#include "graph/gradient/ops/cumulative.hpp"
#include "graph/gradient/ops/decoder.hpp"
#include "graph/gradient/ops/grid.hpp"
#include "graph/gradient/ops/linear_attention.hpp"
#include "graph/gradient/ops/matrix.hpp"
#include "graph/gradient/ops/movement.hpp"
#include "graph/gradient/ops/normalization.hpp"
#include "graph/gradient/ops/packed.hpp"
#include "graph/gradient/ops/pooling.hpp"
#include "graph/gradient/ops/quantization.hpp"
#include "graph/gradient/ops/recurrent.hpp"
#include "graph/gradient/ops/reduction.hpp"
#include "graph/gradient/ops/regions.hpp"
#include "graph/gradient/ops/signal.hpp"
#include "graph/gradient/ops/unary.hpp"
#include "graph/ops/table.hpp"

namespace qk::graph::gradient {
namespace {

const std::vector<backward_entry>& table() {
    static const std::vector<backward_entry> all =
        ops::join(amd_backward_rows, ops::also_in("com.vai.quantize", amd_backward_rows), arithmetic_backward_rows, attention_backward_rows,
                  convolution_backward_rows, cumulative_backward_rows, decoder_backward_rows, grid_backward_rows,
                  linear_attention_backward_rows, matrix_backward_rows, movement_backward_rows, normalization_backward_rows,
                  packed_backward_rows, pooling_backward_rows, quantization_backward_rows, recurrent_backward_rows, reduction_backward_rows,
                  region_backward_rows, signal_backward_rows, unary_backward_rows);
    return all;
}

}  // namespace

std::span<const backward_entry> all_backward() { return table(); }

product_function find_backward(std::string_view domain, std::string_view name, int version) {
    static const auto by_name = [] {
        std::map<std::pair<std::string_view, std::string_view>, std::vector<const backward_entry*>> map;
        for (const backward_entry& e : table()) map[{e.domain, e.name}].push_back(&e);
        return map;
    }();
    const auto found = by_name.find({domain == "ai.onnx" ? "" : domain, name});
    const backward_entry* best = nullptr;
    if (found != by_name.end())
        for (const backward_entry* e : found->second)
            if (e->since <= version && (best == nullptr || e->since > best->since)) best = e;
    if (best != nullptr) return best->run;
    const op_entry* row = find_op(domain, name, version);
    return row != nullptr && row->body != nullptr ? through_body : nullptr;
}

}  // namespace qk::graph::gradient
