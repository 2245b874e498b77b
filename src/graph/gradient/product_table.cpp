// SPDX-License-Identifier: Apache-2.0
// The table of vector-Jacobian products: each header of operators is one line here, or in rare_products.cpp if training and sensitivities
// hardly need it.
#include <map>

#include "qk/graph/gradient/ops/arithmetic.hpp"
#include "qk/graph/gradient/ops/convolution.hpp"
#include "qk/graph/gradient/ops/decoder.hpp"
#include "qk/graph/gradient/ops/fused.hpp"
#include "qk/graph/gradient/ops/matrix.hpp"
#include "qk/graph/gradient/ops/movement.hpp"
#include "qk/graph/gradient/ops/normalization.hpp"
#include "qk/graph/gradient/ops/pooling.hpp"
#include "qk/graph/gradient/ops/quantization.hpp"
#include "qk/graph/gradient/ops/reduction.hpp"
#include "qk/graph/gradient/ops/unary.hpp"
#include "rare_products.hpp"

namespace qk::graph::gradient {
namespace {

const std::vector<product_entry>& table() {
    static const std::vector<product_entry> all = joined_products(
        unary_products, arithmetic_products, convolution_products, matrix_products, pooling_products, reduction_products,
        normalization_products, movement_products, quantization_products, fused_products, decoder_products, rare_products());
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
