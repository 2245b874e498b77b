// SPDX-License-Identifier: Apache-2.0
// The rest of the table of vector-Jacobian products: each header of operators is one line here.
#include "rare_products.hpp"

#include "qk/graph/gradient/ops/features.hpp"
#include "qk/graph/gradient/ops/grid.hpp"
#include "qk/graph/gradient/ops/linear_attention.hpp"
#include "qk/graph/gradient/ops/loss.hpp"
#include "qk/graph/gradient/ops/packed.hpp"
#include "qk/graph/gradient/ops/recurrent.hpp"
#include "qk/graph/gradient/ops/regions.hpp"
#include "qk/graph/gradient/ops/signal.hpp"

namespace qk::graph::gradient {

std::vector<product_entry> rare_products() {
    return joined_products(feature_products, grid_products, linear_attention_products, loss_products, packed_products, recurrent_products,
                           region_products, signal_products);
}

}  // namespace qk::graph::gradient
