// SPDX-License-Identifier: Apache-2.0
// Products compiled for one instruction set (fake_quantize.hpp says what symbols it may have).
#pragma once

#include "qk/product.hpp"
#include "table.hpp"

namespace qk::dispatch {

template <class Arch>
struct multiplier_on {
    static void product(const format& f, const packed_weights& w, const product_input& x, const product_output& y,
                        const product_options& o) noexcept {
        detail::with_family(f, [&](const auto& g) {
            detail::product_of_family<Arch>(g, w, {x, y, o, o.rows.first, detail::last_row(w, o)});
        });
    }
};

template <>
multiplier multiplier_of<isa::QK_DISPATCH_ISA>() noexcept {
    return multiplier_on<native>::product;
}

}  // namespace qk::dispatch
