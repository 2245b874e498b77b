// SPDX-License-Identifier: Apache-2.0
// Rounds vectors once for several products in product_sums::integers.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "qk/isa.hpp"
#include "qk/product/call.hpp"
#include "qk/product/ends.hpp"
#include "qk/product/integers.hpp"
#include "qk/product/options.hpp"

namespace qk::detail {
inline namespace QK_ISA {

template <class Arch>
QK_APART void round_vectors_of(const rounding_call& c) noexcept {
    alignas(64) float room[most_rounded];
    const std::size_t stride = padded_columns(c.columns);
    const bool in_place = c.x.step == 1 && c.x.values.floats() != nullptr && c.round.call == nullptr;
    for (std::size_t m = 0; m < c.x.count; ++m) {
        for (std::size_t k = 0; k < c.columns; k += most_rounded) {
            const std::size_t n = std::min(most_rounded, c.columns - k), at = m * stride + k;
            if (!in_place) copy_input<Arch>(c.x, c.columns, m, k, n, c.round, room);
            const float* const from = in_place ? c.x.values.floats() + m * (c.x.stride != 0 ? c.x.stride : c.columns) + k : room;
            round_input<Arch>(from, n, 1, c.q.data() + at, c.scale.data() + at / block_of_input);
        }
    }
}

}  // namespace QK_ISA
}  // namespace qk::detail
