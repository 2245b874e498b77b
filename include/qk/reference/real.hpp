// SPDX-License-Identifier: Apache-2.0
// Real numbers as whole numbers times powers of two: the oracle of dot products adds, cuts and rounds them.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>

#include "qk/isa.hpp"
#include "qk/whole_128.hpp"

namespace qk::reference {
inline namespace QK_ISA {

using whole_128 = detail::uint128;
using detail::width_of;

/// +-digits * 2^low, digits below 2^126. Products and cuts are exact; sums are where they fit, else "to odd": the bits that do not fit make
/// the last one 1, so that whoever rounds to 64 bits or fewer afterwards finds neither a tie nor an exact number where there is none.
struct real {
    whole_128 digits = 0;
    int low = 0;
    bool negative = false;

    /// Returns a finite double, exactly.
    static real of(double v) {
        if (v == 0) return {0, 0, std::signbit(v)};
        int e = 0;
        const auto digits = static_cast<std::uint64_t>(std::frexp(std::fabs(v), &e) * 0x1p53);
        const int zeros = std::countr_zero(digits);  // fewest digits, so that products of several have room
        return {digits >> zeros, e - 53 + zeros, v < 0};
    }
    static real power(int e) { return {1, e, false}; }

    bool zero() const { return digits == 0; }
    /// Returns floor(log2 |x|) of a number other than 0.
    int exponent() const { return low + width_of(digits) - 1; }
    real minus() const { return {digits, low, !negative}; }

    /// A zero has the sign that half-even gives: minus only where both have it. Numbers of more than 63 bits that lose bits lie far apart
    /// (products of doubles have 106), so that a difference keeps more than 64.
    friend real operator+(const real& a, const real& b) {
        if (a.zero() && b.zero()) return {0, 0, a.negative && b.negative};
        if (a.zero()) return b;
        if (b.zero()) return a;
        const bool swap = a.exponent() < b.exponent();
        real x = swap ? b : a, y = swap ? a : b;
        const int room = 126 - width_of(x.digits), up = x.low - y.low < room ? x.low - y.low : room;
        if (up > 0) x.digits <<= up, x.low -= up;
        bool lost = false;
        if (y.low >= x.low) {
            y.digits <<= y.low - x.low;
        } else {
            const int drop = x.low - y.low;
            const whole_128 kept = drop < 128 ? y.digits >> drop : 0;
            lost = drop >= 128 || kept << drop != y.digits;
            y.digits = kept;
        }
        if (x.negative == y.negative) return real{x.digits + y.digits, x.low, x.negative}.in_126(lost);
        y.digits += lost ? 1 : 0;
        const bool turned = x.digits < y.digits;
        const whole_128 rest = turned ? y.digits - x.digits : x.digits - y.digits;
        return real{rest, x.low, rest != 0 && (turned ? y.negative : x.negative)}.in_126(lost);
    }
    friend real operator*(const real& a, const real& b) { return {a.digits * b.digits, a.low + b.low, a.negative != b.negative}; }

    /// Drops bits below 2^e: rounds toward zero.
    real truncated(int e) const {
        if (e <= low) return *this;
        return {e - low < 128 ? digits >> (e - low) : 0, e, negative};
    }
    /// Returns the largest multiple of 2^e that is not above this number.
    real floored(int e) const {
        real t = truncated(e);
        const bool exact = e <= low || (e - low < 128 ? t.digits << (e - low) : 0) == digits;
        if (negative && !exact) ++t.digits;
        return t;
    }

    /// Drops bits below 2^e; if any of them is 1, the last bit that stays becomes 1.
    real with_odd_end(int e) const {
        real t = truncated(e);
        const bool exact = e <= low || (e - low < 128 ? t.digits << (e - low) : 0) == digits;
        if (!exact) t.digits |= 1;
        return t;
    }

  private:
    real in_126(bool lost) const {
        real r = *this;
        for (; r.digits >> 126 != 0; r.digits >>= 1, ++r.low) lost = lost || (r.digits & 1) != 0;
        if (lost) r.digits |= 1;
        return r;
    }
};

/// A sum without any error, of numbers between 2^-960 and 2^950. Those above and those below zero each make one long whole number.
class long_sum {
  public:
    void add(const real& x) {
        if (x.zero()) return;
        std::uint64_t* digit = (x.negative ? below_ : above_).data() + (x.low - lowest) / 64;
        const int shift = (x.low - lowest) % 64;
        whole_128 carry = 0;
        const auto first = static_cast<std::uint64_t>(x.digits), second = static_cast<std::uint64_t>(x.digits >> 64);
        const std::uint64_t part[3] = {first << shift, second << shift | (shift == 0 ? 0 : first >> (64 - shift)),
                                       shift == 0 ? 0 : second >> (64 - shift)};
        for (int i = 0; i < 3 || carry != 0; ++i, carry >>= 64) {
            carry += whole_128{digit[i]} + (i < 3 ? part[i] : 0);
            digit[i] = static_cast<std::uint64_t>(carry);
        }
    }
    /// Returns the sum, rounded to odd; a zero is +0.
    real total() const {
        std::size_t top = long_digits;
        while (top > 0 && above_[top - 1] == below_[top - 1]) --top;
        if (top == 0) return {};
        const bool negative = above_[top - 1] < below_[top - 1];
        const auto &large = negative ? below_ : above_, &small = negative ? above_ : below_;
        std::array<std::uint64_t, long_digits> rest;
        std::uint64_t borrow = 0;
        for (std::size_t i = 0; i < top; ++i) {
            rest[i] = large[i] - small[i] - borrow;
            borrow = large[i] < small[i] || (large[i] == small[i] && borrow != 0) ? 1 : 0;
        }
        while (rest[top - 1] == 0) --top;
        real sum{0, lowest, negative};
        for (std::size_t i = top; i-- > 0;) {  // the upper digits, as far as they fit
            const int room = 125 - width_of(sum.digits), take = room < 64 ? room : 64;
            if (sum.digits == 0 || take == 64) {
                sum.digits = sum.digits << 64 | rest[i];
                if (i == 0) return sum;
                continue;
            }
            sum.digits = sum.digits << take | (take == 0 ? 0 : rest[i] >> (64 - take));
            sum.low += 64 * static_cast<int>(i) + 64 - take;
            bool lost = rest[i] << take != 0;
            while (i-- > 0) lost = lost || rest[i] != 0;
            if (lost) sum.digits |= 1;
            return sum;
        }
        return sum;
    }

  private:
    static constexpr int lowest = -960;
    static constexpr std::size_t long_digits = 30;
    std::array<std::uint64_t, long_digits> above_{}, below_{};
};

}  // namespace QK_ISA
}  // namespace qk::reference
