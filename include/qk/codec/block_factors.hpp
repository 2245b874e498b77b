// SPDX-License-Identifier: Apache-2.0
// What the numbers of a packed tensor's codes are multiplied by.
#pragma once

#include <cstring>
#include <span>
#include <variant>

#include "qk/codec.hpp"
#include "qk/isa.hpp"

namespace qk {

inline namespace QK_ISA {

/// Writes for each value of a tensor in blocks the factor of its block: value = factor * the number of its code. A block of NaN has NaN.
/// The format has blocks along `a`; `factor` has a place for each value.
inline void block_factors(const format& f, const_planes p, along_axis a, std::span<float> factor) noexcept {
    detail::with_family(f, [&](const auto& g) {
        if constexpr (requires { g.block_size; }) {
            float tensor = 1;
            if (p.tensor.size() == sizeof tensor) std::memcpy(&tensor, p.tensor.data(), sizeof tensor);
            const detail::packing how = detail::packing_of(g);
            detail::for_each_run(a, static_cast<std::size_t>(g.block_size),
                                 [&](std::size_t o, std::size_t l, std::size_t i, std::size_t first, std::size_t n) {
                                     detail::factors_of(how, a, l, i, n, factor.data() + first,
                                                        [&](std::size_t j, std::size_t k, std::size_t count, float* to) {
                                                            detail::factors_across<kernels::native>(
                                                                g, p, detail::scale_index(how, a, o, j, k),
                                                                detail::shift_index(how, a, o, j, k), count, tensor, to);
                                                        });
                                 });
        }
    });
}

}  // namespace QK_ISA

}  // namespace qk
