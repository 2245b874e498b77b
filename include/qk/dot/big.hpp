// SPDX-License-Identifier: Apache-2.0
// A whole number wide enough for every sum of products. Exact sums use it where exponents lie far apart.
#pragma once

#include <array>

#include "qk/dot/numbers.hpp"
#include "qk/isa.hpp"

namespace qk::detail {
inline namespace QK_ISA {

/// A two's complement number times 2^-960. Products of the library's formats, scales of blocks and tensors included, lie between 2^-900 and
/// 2^770 (formats/check.hpp keeps each of their six factors inside float32).
class big_sum {
  public:
    static constexpr int lowest = -960, limbs = 30;

    /// Adds v * 2^lsb; lsb >= lowest.
    QK_INLINE constexpr void add(int128 v, int lsb) {
        if (v == 0) return;
        const int at = lsb - lowest;
        auto limb = static_cast<std::size_t>(at / 64);
        const int shift = at % 64;
        const auto u = static_cast<uint128>(v);
        const std::uint64_t fill = v < 0 ? ~std::uint64_t{0} : 0;
        const std::uint64_t word[3] = {static_cast<std::uint64_t>(u << shift), static_cast<std::uint64_t>(u >> (64 - shift)),
                                       shift == 0 ? fill : static_cast<std::uint64_t>(u >> 64) >> (64 - shift) | fill << shift};
        std::uint64_t carry = 0;
        for (const std::uint64_t w : word) carry = add_at(limb++, w, carry);
        for (; limb < std::size_t{limbs} && carry != (fill & 1); ++limb) carry = add_at(limb, fill, carry);
    }

    constexpr bool negative() const { return limb_[limbs - 1] >> 63 != 0; }

    /// The magnitude's upper 128 bits times 2^lsb; `more` is true if bits below those are set.
    struct leading {
        uint128 magnitude = 0;
        int lsb = 0;
        bool more = false;
    };
    constexpr leading magnitude() const {
        std::array<std::uint64_t, limbs> m = limb_;
        if (negative()) {
            std::uint64_t carry = 1;
            for (std::uint64_t& w : m) {
                w = ~w + carry;
                carry = carry != 0 && w == 0 ? 1 : 0;
            }
        }
        std::size_t top = limbs - 1;
        while (top > 0 && m[top] == 0) --top;
        if (top < 2) return {uint128{m[1]} << 64 | m[0], lowest, false};
        leading r{uint128{m[top]} << 64 | m[top - 1], lowest + static_cast<int>(top - 1) * 64, false};
        const int room = 128 - width_of(r.magnitude);
        if (room > 0) r.magnitude = r.magnitude << room | m[top - 2] >> (64 - room);
        r.lsb -= room;
        r.more = room < 64 && m[top - 2] << room != 0;
        for (std::size_t i = 0; i + 2 < top; ++i) r.more = r.more || m[i] != 0;
        return r;
    }

  private:
    QK_INLINE constexpr std::uint64_t add_at(std::size_t i, std::uint64_t w, std::uint64_t carry) {
        const std::uint64_t s = limb_[i] + w, t = s + carry;
        limb_[i] = t;
        return std::uint64_t{s < w} | std::uint64_t{t < s};
    }
    std::array<std::uint64_t, limbs> limb_{};
};

}  // namespace QK_ISA
}  // namespace qk::detail
