// SPDX-License-Identifier: Apache-2.0
// Encodes integers of more than 16 bits, a tile at a time, in int32 or double: above 24 bits their limits are not float32 values.
#pragma once

#include <bit>

#include "qk/codec/encode/rounded_values.hpp"
#include "qk/formats/codes/pack.hpp"
#include "qk/isa.hpp"
#include "qk/kernels/drivers/range_call.hpp"

namespace qk::detail {
inline namespace QK_ISA {

/// Computes codes of whole numbers: adds the zero point and clamps the sum to the range. Both are exact in int32 where the sum fits, else
/// in doubles, whose lowest bits then hold the code.
template <class Arch>
QK_APART void wide_codes(integer f, const float* number, std::int64_t zero, std::uint32_t* code, std::size_t n) noexcept {
    using V = kernels::vi<Arch>;
    const std::uint32_t mask = low_bits(f.bits);
    constexpr std::int64_t most = std::int64_t{1} << 28;
    if (f.bits <= 28 && zero > -most && zero < most) {
        const V lowest(static_cast<std::int32_t>(qmin(f))), highest(static_cast<std::int32_t>(qmax(f))),
            more(static_cast<std::int32_t>(zero)), kept(static_cast<std::int32_t>(mask));
        const kernels::vf<Arch> far(0x1p30f);  // numbers beyond it are beyond the codes
        for (std::size_t k = 0; k < n; k += kernels::lanes<Arch>) {
            const V q = to_int(kernels::clamp_magnitude<Arch>(kernels::load<Arch>(number + k), far)) + more;
            kernels::store<Arch>(reinterpret_cast<std::int32_t*>(code + k), min(max(q, lowest), highest) & kept);
        }
        return;
    }
    const auto lowest = static_cast<double>(qmin(f)), highest = static_cast<double>(qmax(f)), more = static_cast<double>(zero);
    for (std::size_t k = 0; k < n; ++k) {
        const double q = static_cast<double>(number[k]) + more, above = q < lowest ? lowest : q, held = above > highest ? highest : above;
        code[k] = static_cast<std::uint32_t>(std::bit_cast<std::uint64_t>(held + 0x1.8p52)) & mask;
    }
}

/// Encodes values with one scale, the first at number `first` of the plane. Tiles that it cannot encode go to general(begin, count).
/// Returns false where it can encode none.
template <class Arch>
QK_APART bool encode_wide(integer f, const kernels::integer_rules& rules, const float* x, std::size_t first, std::size_t n, float scale,
                          std::int64_t zero, std::span<std::byte> plane, const kernels::range_call& general) noexcept {
    if constexpr (!kernels::is_baseline<Arch>) {
        if (f.bits <= 16 || !kernels::default_environment<Arch>()) return false;
        for (std::size_t k = 0; k < n; k += tile) {
            const std::size_t some = std::min(tile, n - k);
            alignas(64) float number[tile];
            alignas(64) std::uint32_t code[tile];
            if (!round_numbers<Arch, true>(rules, x + k, number, some, first + k, scale, zero)) {
                general(k, some);
                continue;
            }
            wide_codes<Arch>(f, number, rules.zero_before ? 0 : zero, code, some);
            put_codes<Arch>(plane, first + k, some, f.bits, code);
        }
        return true;
    }
    return false;
}

}  // namespace QK_ISA
}  // namespace qk::detail
