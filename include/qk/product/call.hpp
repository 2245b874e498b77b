// SPDX-License-Identifier: Apache-2.0
// What a product is called with: one form for W x, for a cache's rows and for experts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "qk/inline.hpp"
#include "qk/product/options.hpp"
#include "qk/product/pieces.hpp"

namespace qk::detail {

/// A call besides its format.
struct product_call {
    packed_rows w;
    product_input x;
    product_output y;
    const product_options& options;
    std::size_t first, last;  ///< rows
    const product_experts* experts = nullptr;
};
struct rounding_call {
    product_input x;
    std::size_t columns;
    std::span<std::int8_t> q;
    std::span<float> scale;
    input_rounding round;
};
struct weighted_call {
    packed_rows w;
    product_input x;
    product_output y;
    const weighted_options& options;
    std::size_t first, last;  ///< columns
};

QK_INLINE packed_rows all_rows(const packed_weights& w) noexcept { return {w, w.rows, w.columns}; }

QK_INLINE product_call call_of(const packed_rows& w, const product_input& x, const product_output& y, const product_options& o) noexcept {
    return {w, x, y, o, o.rows.first, last_row(w.rows, o.rows)};
}
QK_INLINE product_call call_of(const packed_weights& w, const product_experts& e, const product_input& x, const product_output& y,
                               const product_options& o) noexcept {
    return {{w, e.rows, w.columns}, x, y, o, o.rows.first, last_row(e.rows, o.rows), &e};
}
QK_INLINE weighted_call call_of(const packed_rows& w, const product_input& x, const product_output& y, const weighted_options& o) noexcept {
    return {w, x, y, o, o.columns.first, last_row(w.columns, o.columns)};
}

}  // namespace qk::detail
