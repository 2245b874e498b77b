// SPDX-License-Identifier: Apache-2.0
// Joins tables of vector-Jacobian products.
#pragma once

#include "qk/graph/gradient/product.hpp"

namespace qk::graph::gradient {

template <class... Tables>
std::vector<product_entry> joined_products(const Tables&... tables) {
    std::vector<product_entry> all;
    (all.insert(all.end(), std::begin(tables), std::end(tables)), ...);
    return all;
}

/// Returns the products that training and sensitivities hardly need; they are compiled for short build times rather than for speed.
std::vector<product_entry> rare_products();

}  // namespace qk::graph::gradient
