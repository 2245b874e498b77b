// SPDX-License-Identifier: Apache-2.0
// Whole numbers of 128 bits: the compiler's own where it has them, else, on processors of 32 bits, two words of 64 bits.
#pragma once

#include <bit>
#include <compare>
#include <concepts>
#include <cstdint>

#include "qk/inline.hpp"
#include "qk/isa.hpp"

namespace qk::detail {
inline namespace QK_ISA {

/// 128 bits in two words. Arithmetic wraps around; shifts are by 0 to 127 bits; >> keeps the sign of a signed number.
template <bool Signed>
class two_words {
  public:
    two_words() = default;
    template <std::integral Int>
    QK_INLINE constexpr two_words(Int v) noexcept : low_(static_cast<std::uint64_t>(v)), high_(v < Int{} ? ~std::uint64_t{0} : 0) {}
    QK_INLINE constexpr two_words(std::uint64_t high, std::uint64_t low) noexcept : low_(low), high_(high) {}
    QK_INLINE constexpr explicit two_words(two_words<!Signed> v) noexcept : low_(v.low()), high_(v.high()) {}

    QK_INLINE constexpr std::uint64_t low() const noexcept { return low_; }
    QK_INLINE constexpr std::uint64_t high() const noexcept { return high_; }
    template <std::integral Int>
    QK_INLINE constexpr explicit operator Int() const noexcept {
        if constexpr (std::same_as<Int, bool>) return (low_ | high_) != 0;
        else return static_cast<Int>(low_);
    }

    friend QK_INLINE constexpr two_words operator+(two_words a, two_words b) noexcept {
        const std::uint64_t low = a.low_ + b.low_;
        return {a.high_ + b.high_ + std::uint64_t{low < a.low_}, low};
    }
    friend QK_INLINE constexpr two_words operator~(two_words a) noexcept { return {~a.high_, ~a.low_}; }
    friend QK_INLINE constexpr two_words operator-(two_words a) noexcept { return ~a + two_words(1); }
    friend QK_INLINE constexpr two_words operator-(two_words a, two_words b) noexcept { return a + -b; }
    friend QK_INLINE constexpr two_words operator*(two_words a, two_words b) noexcept {
        const std::uint64_t half = 0xffffffffu, a0 = a.low_ & half, a1 = a.low_ >> 32, b0 = b.low_ & half, b1 = b.low_ >> 32;
        const std::uint64_t first = a0 * b0, middle = a1 * b0 + (first >> 32), other = a0 * b1 + (middle & half);
        return {a.high_ * b.low_ + a.low_ * b.high_ + a1 * b1 + (middle >> 32) + (other >> 32), other << 32 | (first & half)};
    }
    friend QK_INLINE constexpr two_words operator&(two_words a, two_words b) noexcept { return {a.high_ & b.high_, a.low_ & b.low_}; }
    friend QK_INLINE constexpr two_words operator|(two_words a, two_words b) noexcept { return {a.high_ | b.high_, a.low_ | b.low_}; }
    friend QK_INLINE constexpr two_words operator^(two_words a, two_words b) noexcept { return {a.high_ ^ b.high_, a.low_ ^ b.low_}; }
    friend QK_INLINE constexpr two_words operator<<(two_words a, int n) noexcept {
        if (n >= 64) return {a.low_ << (n - 64), 0};
        if (n == 0) return a;
        return {a.high_ << n | a.low_ >> (64 - n), a.low_ << n};
    }
    friend QK_INLINE constexpr two_words operator>>(two_words a, int n) noexcept {
        const std::uint64_t fill = a.is_negative() ? ~std::uint64_t{0} : 0;
        if (n == 0) return a;
        if (n == 64) return {fill, a.high_};
        if (n > 64) return {fill, a.high_ >> (n - 64) | fill << (128 - n)};
        return {a.high_ >> n | fill << (64 - n), a.low_ >> n | a.high_ << (64 - n)};
    }
    QK_INLINE constexpr two_words& operator+=(two_words b) noexcept { return *this = *this + b; }
    QK_INLINE constexpr two_words& operator-=(two_words b) noexcept { return *this = *this - b; }
    QK_INLINE constexpr two_words& operator|=(two_words b) noexcept { return *this = *this | b; }
    QK_INLINE constexpr two_words& operator<<=(int n) noexcept { return *this = *this << n; }
    QK_INLINE constexpr two_words& operator>>=(int n) noexcept { return *this = *this >> n; }
    QK_INLINE constexpr two_words& operator++() noexcept { return *this += two_words(1); }
    friend QK_INLINE constexpr bool operator==(two_words a, two_words b) noexcept { return a.high_ == b.high_ && a.low_ == b.low_; }
    friend QK_INLINE constexpr std::strong_ordering operator<=>(two_words a, two_words b) noexcept {
        const std::uint64_t sign = Signed ? std::uint64_t{1} << 63 : 0, x = a.high_ ^ sign, y = b.high_ ^ sign;
        return x != y ? x <=> y : a.low_ <=> b.low_;
    }

  private:
    QK_INLINE constexpr bool is_negative() const noexcept { return Signed && high_ >> 63 != 0; }

    std::uint64_t low_, high_;
};

#if defined(__SIZEOF_INT128__)
__extension__ typedef __int128 int128;
__extension__ typedef unsigned __int128 uint128;
#else
using int128 = two_words<true>;
using uint128 = two_words<false>;
#endif

/// Returns how many bits are left when zeros in front are dropped.
QK_INLINE constexpr int width_of(std::uint64_t v) { return 64 - std::countl_zero(v); }
QK_INLINE constexpr int width_of(uint128 v) {
    const auto high = static_cast<std::uint64_t>(v >> 64);
    return high != 0 ? 64 + width_of(high) : width_of(static_cast<std::uint64_t>(v));
}

}  // namespace QK_ISA
}  // namespace qk::detail
