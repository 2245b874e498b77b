// SPDX-License-Identifier: Apache-2.0
// The scales of neighbouring rows, or columns, with all that the fast forms of elementwise formats derive from them.
#pragma once

#include <algorithm>

#include "qk/isa.hpp"
#include "qk/steps/fast.hpp"

namespace qk::kernels {
inline namespace QK_ISA {

/// Up to `Size` scales, a multiple of the lanes. The caller sets scale, lowest, highest and limit; finish() derives the rest.
template <class Arch, std::size_t Size>
struct scale_table {
    alignas(64) float scale[Size];
    alignas(64) std::int32_t lowest[Size], highest[Size];  ///< as in fast_scale
    alignas(64) std::int32_t limit[Size];                  ///< as in fast_scale; no_value: the fast form covers nothing
    alignas(64) float high[Size], low[Size];
    alignas(64) std::int32_t product[Size];  ///< 1: the quotient is a product

    /// Derives the rest for the first `count` entries, whose last one is copied until vectors are whole. `tie_bits` are those of
    /// has_fast_quotient (0: divide); `multiply`: by the rounded reciprocal.
    void finish(std::size_t count, int tie_bits, bool multiply) noexcept {
        using V = vi<Arch>;
        for (std::size_t k = count; k % lanes<Arch> != 0; ++k) {
            scale[k] = scale[count - 1];
            lowest[k] = lowest[count - 1];
            highest[k] = highest[count - 1];
            limit[k] = limit[count - 1];
        }
        for (std::size_t i = 0; i < count; i += lanes<Arch>) {
            const vf<Arch> d = load<Arch>(scale + i);
            V products(0);
            store<Arch>(high + i, d);
            store<Arch>(low + i, d);
            if (multiply) {
                store<Arch>(high + i, quotient<Arch>(vf<Arch>(1.0f), d));
            } else if (has_fused<Arch>() && tie_bits != 0) {
                const two_part_reciprocal<Arch> r = reciprocal_of<Arch>(d);
                store<Arch>(high + i, r.high);
                store<Arch>(low + i, r.low);
                products = select(has_fast_quotient<Arch>(as_int<Arch>(d), tie_bits), V(1), V(0));
            }
            store<Arch>(product + i, products);
        }
    }

    /// one() returns entry k in every lane, across() the entries from i on, a lane each.
    QK_INLINE fast_scale<Arch> one(std::size_t k) const noexcept {
        return {vf<Arch>(scale[k]), vf<Arch>(high[k]), vf<Arch>(low[k]), vi<Arch>(lowest[k]), vi<Arch>(highest[k]), limit[k]};
    }
    QK_INLINE fast_scale<Arch> across(std::size_t i) const noexcept {
        return {load<Arch>(scale + i),  load<Arch>(high + i),    load<Arch>(low + i),
                load<Arch>(lowest + i), load<Arch>(highest + i), limit[i]};
    }

    /// Returns how many entries from `first` on, before `end`, have the same `product` as that one, in steps of `step`.
    std::size_t alike(std::size_t first, std::size_t end, std::size_t step = 1) const noexcept {
        std::size_t next = first + step;
        while (next < end && product[next] == product[first]) next += step;
        return std::min(next, end) - first;
    }
};

}  // namespace QK_ISA
}  // namespace qk::kernels
