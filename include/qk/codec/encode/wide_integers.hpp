// SPDX-License-Identifier: Apache-2.0
// Codes of integers of more than 16 bits, a tile at a time: their limits are no float32, so rounded quotients become codes in doubles.
#pragma once

#include <bit>

#include "qk/codec/encode/rounded_values.hpp"
#include "qk/codec/layout/pack.hpp"
#include "qk/kernels/drivers/range_call.hpp"

namespace qk::detail {

/// Codes of whole numbers: the zero point is added, and the sum held to the range. Both are exact in doubles, whose lowest bits then hold
/// it, and in 32 bits where those have room.
template <class Arch>
QK_APART void wide_codes(integer f, const float* number, std::int64_t zero, std::uint32_t* code, std::size_t n) noexcept {
    using V = kernels::vi<Arch>;
    const std::uint32_t mask = low_bits(f.bits);
    constexpr std::int64_t most = std::int64_t{1} << 28;
    if (f.bits <= 28 && zero > -most && zero < most) {
        const V lowest(static_cast<std::int32_t>(qmin(f))), highest(static_cast<std::int32_t>(qmax(f))),
            more(static_cast<std::int32_t>(zero)), kept(static_cast<std::int32_t>(mask));
        const kernels::vf<Arch> far(0x1p30f);  // what is beyond it is beyond the codes
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

/// Values under one scale, the first at `first` of the plane; what is not served goes to complete(begin, count). False: nothing is.
template <class Arch>
QK_APART bool encode_wide(integer f, const kernels::integer_rules& rules, const float* x, std::size_t first, std::size_t n, float scale,
                          std::int64_t zero, std::span<std::byte> plane, const kernels::range_call& complete) noexcept {
    if constexpr (!kernels::is_baseline<Arch>) {
        if (f.bits <= 16 || !kernels::default_environment<Arch>()) return false;
        for (std::size_t k = 0; k < n; k += tile) {
            const std::size_t some = std::min(tile, n - k);
            alignas(64) float number[tile];
            alignas(64) std::uint32_t code[tile];
            if (!round_numbers<Arch, true>(rules, x + k, number, some, first + k, scale, zero)) {
                complete(k, some);
                continue;
            }
            wide_codes<Arch>(f, number, rules.zero_before ? 0 : zero, code, some);
            put_codes<Arch>(plane, first + k, some, f.bits, code);
        }
        return true;
    }
    return false;
}

}  // namespace qk::detail
