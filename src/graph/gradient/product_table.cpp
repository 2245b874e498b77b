// SPDX-License-Identifier: Apache-2.0
// The table of vector-Jacobian products: each header of operators is one line here.
#include <map>

#include "graph/gradient/ops/arithmetic.hpp"
#include "graph/gradient/ops/convolution.hpp"
#include "graph/gradient/ops/cumulative.hpp"
#include "graph/gradient/ops/decoder.hpp"
#include "graph/gradient/ops/fused.hpp"
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

const std::vector<product_entry>& table() {
    static const std::vector<product_entry> all =
        ops::join(arithmetic_products, convolution_products, cumulative_products, decoder_products, fused_products, grid_products,
                  linear_attention_products, matrix_products, movement_products, normalization_products, packed_products, pooling_products,
                  quantization_products, recurrent_products, reduction_products, region_products, signal_products, unary_products);
    return all;
}

}  // namespace

std::span<const product_entry> all_products() { return table(); }

const product_entry* find_product(std::string_view domain, std::string_view name, int version) {
    static const auto by_name = [] {
        std::map<std::pair<std::string_view, std::string_view>, std::vector<const product_entry*>> map;
        for (const product_entry& e : table()) map[{e.domain, e.name}].push_back(&e);
        return map;
    }();
    const auto found = by_name.find({domain == "ai.onnx" ? "" : domain, name});
    const product_entry* best = nullptr;
    if (found != by_name.end())
        for (const product_entry* e : found->second)
            if (e->since <= version && (best == nullptr || e->since > best->since)) best = e;
    return best;
}

}  // namespace qk::graph::gradient
