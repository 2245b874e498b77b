// SPDX-License-Identifier: Apache-2.0
// Real numbers as one long whole number each: what the oracle of dot products adds, cuts and rounds. Slow and plain.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

namespace qk::reference {

/// A sign, and a magnitude of 32 * Digits bits in units of 2^Low. Nothing is ever rounded unless asked.
template <int Digits, int Low>
struct real {
    std::array<std::uint32_t, Digits> digit{};  ///< lowest first
    bool negative = false;

    /// A finite double, exactly; its bits must lie above 2^Low.
    static real of(double v) {
        if (v == 0) {
            real zero;
            zero.negative = std::signbit(v);
            return zero;
        }
        int e = 0;
        const double fraction = std::frexp(std::fabs(v), &e);  // in [1/2, 1)
        real r = whole(static_cast<std::uint64_t>(std::ldexp(fraction, 53)), e - 53 - Low);
        r.negative = v < 0;
        return r;
    }
    static real power(int e) {
        real r;
        r.set(e - Low);
        return r;
    }

    bool zero() const {
        for (const std::uint32_t d : digit) {
            if (d != 0) return false;
        }
        return true;
    }
    bool bit(int at) const { return (digit[static_cast<std::size_t>(at / 32)] >> (at % 32) & 1u) != 0; }
    void set(int at) { digit[static_cast<std::size_t>(at / 32)] |= std::uint32_t{1} << (at % 32); }

    /// floor(log2 |x|) of a number other than 0.
    int exponent() const {
        int top = Digits - 1;
        while (digit[static_cast<std::size_t>(top)] == 0) --top;
        int at = 32 * top + 31;
        while (!bit(at)) --at;
        return at + Low;
    }

    real minus() const {
        real r = *this;
        r.negative = !negative;
        return r;
    }
    friend bool less_magnitude(const real& a, const real& b) {
        for (int i = Digits - 1; i >= 0; --i) {
            const auto k = static_cast<std::size_t>(i);
            if (a.digit[k] != b.digit[k]) return a.digit[k] < b.digit[k];
        }
        return false;
    }
    /// The sum; a zero has the sign that half-even gives: minus only where both have it.
    friend real operator+(const real& a, const real& b) {
        real r;
        std::int64_t carry = 0;
        if (a.negative == b.negative) {
            for (std::size_t i = 0; i < Digits; ++i, carry >>= 32)
                r.digit[i] = static_cast<std::uint32_t>(carry += std::int64_t{a.digit[i]} + b.digit[i]);
            r.negative = a.negative;
            return r;
        }
        const bool swap = less_magnitude(a, b);
        const real& large = swap ? b : a;
        const real& small = swap ? a : b;
        for (std::size_t i = 0; i < Digits; ++i, carry >>= 32)
            r.digit[i] = static_cast<std::uint32_t>(carry += std::int64_t{large.digit[i]} - small.digit[i]);
        r.negative = large.negative && !r.zero();
        return r;
    }
    /// The product of numbers of at most 64 bits each, whose lowest bits' product is not below 2^Low.
    friend real operator*(const real& a, const real& b) {
        std::uint64_t n = a.leading(), m = b.leading();
        int at = a.exponent() + b.exponent() - 126 - Low;
        for (; (n & 1) == 0; n >>= 1) ++at;
        for (; (m & 1) == 0; m >>= 1) ++at;
        real r = whole((n & 0xffffffffu) * (m & 0xffffffffu), at);
        if ((n | m) >> 32 != 0) {
            r = r + whole((n >> 32) * (m & 0xffffffffu), at + 32);
            r = r + whole((n & 0xffffffffu) * (m >> 32), at + 32);
            r = r + whole((n >> 32) * (m >> 32), at + 64);
        }
        r.negative = a.negative != b.negative;
        return r;
    }

    /// Bits below 2^e dropped: toward zero.
    real truncated(int e) const {
        real r = *this;
        const int drop = std::min(e - Low, 32 * Digits);
        for (int at = 0; at < drop; at += 32) r.digit[static_cast<std::size_t>(at / 32)] &= drop - at >= 32 ? 0u : ~0u << (drop - at);
        return r;
    }
    /// The largest multiple of 2^e that is not above.
    real floored(int e) const {
        const real t = truncated(e);
        const bool exact = !less_magnitude(t, *this);
        return !negative || exact ? t : t + power(e).minus();
    }

  private:
    /// The 64 bits from the leading one down, the number being other than 0.
    std::uint64_t leading() const {
        std::size_t top = Digits - 1;
        while (digit[top] == 0) --top;
        const auto below = [&](std::size_t n) { return top >= n ? std::uint64_t{digit[top - n]} : std::uint64_t{0}; };
        std::uint64_t n = below(0) << 32 | below(1);
        for (std::uint64_t rest = below(2) << 32; n >> 63 == 0; rest <<= 1) n = n << 1 | rest >> 63;
        return n;
    }
    /// n in units of 2^(Low + at); bits below 2^Low are zeros.
    static real whole(std::uint64_t n, int at) {
        real r;
        for (; at < 0; ++at) n >>= 1;
        const auto first = static_cast<std::size_t>(at / 32);
        const int shift = at % 32;
        r.digit[first] = static_cast<std::uint32_t>(n << shift);
        if (const std::uint64_t second = n >> (32 - shift); second != 0) {
            r.digit[first + 1] = static_cast<std::uint32_t>(second);
            if (second >> 32 != 0) r.digit[first + 2] = static_cast<std::uint32_t>(second >> 32);
        }
        return r;
    }
};

}  // namespace qk::reference
