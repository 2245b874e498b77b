// SPDX-License-Identifier: Apache-2.0
// Products compiled for one instruction set (fake_quantize.hpp says what symbols it may have).
#pragma once

#include "qk/product.hpp"
#include "table.hpp"

namespace qk::dispatch {

template <class Arch>
struct multipliers_on {
    template <class Call>
    static void call(const format& f, const Call& c) noexcept {
        detail::with_read_family(f, [&](const auto& g) { detail::product_of_family<Arch>(g, c); });
    }
    static void round(const detail::rounding_call& c) noexcept { detail::round_vectors_of<Arch>(c); }
};

template <>
multipliers multipliers_of<isa::QK_DISPATCH_ISA>() noexcept {
    return {multipliers_on<native>::call<detail::product_call>, multipliers_on<native>::call<detail::weighted_call>,
            multipliers_on<native>::round};
}

}  // namespace qk::dispatch
