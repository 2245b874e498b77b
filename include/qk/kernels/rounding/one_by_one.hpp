// SPDX-License-Identifier: Apache-2.0
// Rounds one magnitude to a floating format without subnormals, whose neighbours do not follow from a step. Rare, and written for clarity.
#pragma once

#include "qk/formats/floating.hpp"
#include "qk/kernels/rounding/general.hpp"

namespace qk::kernels {

/// What decides between the neighbours of a value beside the step of the grid.
struct number_grid {
    int mantissa_bits = 0;
    int least = 0;  ///< exponent of the smallest normal number
    int bias = 0;
    bool subnormals = true;
    bool by_code = false;  ///< there is one digit of precision, and the rounding looks at the codes of neighbours

    constexpr number_grid() = default;
    constexpr number_grid(floating f, rounding how)
        : mantissa_bits(f.mantissa_bits),
          least(min_exponent(f)),
          bias(f.bias),
          subnormals(f.subnormals),
          by_code(f.mantissa_bits == 0 && (how == rounding::half_even || how == rounding::to_odd)) {}
    /// Is true where the step alone does not decide: the fast forms know nothing else.
    constexpr bool needed() const { return !subnormals || by_code; }
};

/// A positive number: digits * 2^exponent.
struct whole_number {
    std::uint64_t digits;
    int exponent;
};

/// Returns the bits of a float32 magnitude, finite and not 0, as a number.
constexpr whole_number number_of_bits(std::uint32_t a) {
    const std::uint32_t field = a >> 23;
    return field == 0 ? whole_number{a, -149} : whole_number{(a & 0x7fffffu) | 0x800000u, static_cast<int>(field) - 150};
}

/// Returns the neighbour that digits * 2^exponent, below the larger one, goes to: 0 or `large`, which is digits * 2^exponent, too.
constexpr bool reaches(whole_number x, whole_number large, bool negative, rounding_rule rule, std::uint32_t word) {
    // Both get the same exponent; x has 24 bits and is the smaller one, so what is shifted fits, or is far below a half. One bit stays free
    // for the doubling of the rest.
    const int up = x.exponent - large.exponent;
    if (up >= 0) x.digits <<= up;
    else if (-up < std::countl_zero(large.digits) - 1) large.digits <<= -up;
    else large.digits = std::uint64_t{1} << 62;  // or more, 2^38 times x at least: nearest is 0, and chance has no bit that small
    switch (rule.how) {
        case rounding::half_even: return 2 * x.digits > large.digits;
        case rounding::half_away: return 2 * x.digits >= large.digits;
        case rounding::half_up: return negative ? 2 * x.digits > large.digits : 2 * x.digits >= large.digits;
        case rounding::toward_zero: return false;
        case rounding::up: return !negative;
        case rounding::down: return negative;
        case rounding::to_odd: return true;
        case rounding::stochastic:
        case rounding::stochastic_b:
        case rounding::stochastic_c: break;
    }
    // floor(x * 2^bits / large), a bit at a time, and the rest.
    std::uint64_t count = 0, rest = x.digits;
    for (int k = 0; k < rule.bits; ++k) {
        rest *= 2;
        count = 2 * count + (rest >= large.digits ? 1 : 0);
        if (rest >= large.digits) rest -= large.digits;
    }
    if (rule.how == rounding::stochastic_b && 2 * rest >= large.digits) ++count;
    if (rule.how == rounding::stochastic_c && (2 * rest > large.digits || (2 * rest == large.digits && count % 2 != 0))) ++count;
    return count + (word >> (32 - rule.bits)) >= std::uint64_t{1} << rule.bits;
}

/// Returns x * 2^shift, for x below 2^24 digits, as the bits of a float32, rounded down; Inf beyond the largest one.
constexpr std::uint32_t bits_of_number(whole_number x) {
    while (x.digits != 0 && x.digits < 0x800000u) x.digits <<= 1, --x.exponent;
    while (x.digits >= 0x1000000u) x.digits >>= 1, ++x.exponent;
    const int field = x.exponent + 150;
    if (x.digits == 0 || field < -23) return 0;
    if (field >= 255) return 0x7f800000u;
    if (field <= 0) return static_cast<std::uint32_t>(x.digits >> (1 - field));
    return static_cast<std::uint32_t>(field) << 23 | (static_cast<std::uint32_t>(x.digits) & 0x7fffffu);
}

/// Returns the magnitude `a` (bits, finite) rounded to a number of the grid, which has no subnormals, times 2^scale. Such grids have digits
/// behind the leading one: one without them would have no zero.
constexpr std::uint32_t round_one(const number_grid& g, std::uint32_t a, bool negative, int scale, rounding_rule rule, std::uint32_t word) {
    if (a == 0) return 0;
    whole_number x = number_of_bits(a);
    const int width = 64 - std::countl_zero(x.digits), e = x.exponent + width - 1 - scale;  // floor(log2) in units of the scale
    const whole_number least{(std::uint64_t{1} << g.mantissa_bits) + 1, g.least - g.mantissa_bits + scale};
    const bool below = e < g.least || (e == g.least && (x.digits << (40 - width)) < (least.digits << (39 - g.mantissa_bits)));
    if (below) return reaches(x, least, negative, rule, word) ? bits_of_number(least) : 0;
    const int step = e - g.mantissa_bits + scale, drop = step - x.exponent;
    if (drop <= 0) return a;
    const std::uint64_t count = drop < 64 ? x.digits >> drop : 0, rest = drop < 64 ? x.digits - (count << drop) : x.digits;
    if (rest == 0) return a;
    const bool odd = count % 2 != 0;
    const bool more_than_half = drop < 64 && 2 * rest > std::uint64_t{1} << drop, half = drop < 64 && 2 * rest == std::uint64_t{1} << drop;
    bool up = false;
    switch (rule.how) {
        case rounding::half_even: up = more_than_half || (half && odd); break;
        case rounding::half_away: up = more_than_half || half; break;
        case rounding::half_up: up = more_than_half || (half && !negative); break;
        case rounding::toward_zero: break;
        case rounding::up: up = !negative; break;
        case rounding::down: up = negative; break;
        case rounding::to_odd: up = !odd; break;
        case rounding::stochastic:
        case rounding::stochastic_b:
        case rounding::stochastic_c: up = goes_up_by_chance(rest, drop, rule, word); break;
    }
    return bits_of_number({count + (up ? 1 : 0), step});
}

/// round_one for a vector of magnitudes; `scale` is a lane each.
template <class Arch>
QK_APART vi<Arch> round_lanes(const number_grid& g, vi<Arch> a, mask<Arch> negative, vi<Arch> scale, rounding_rule rule,
                              vi<Arch> random) noexcept {
    alignas(64) std::int32_t x[lanes<Arch>], sign[lanes<Arch>], exponent[lanes<Arch>], word[lanes<Arch>];
    store<Arch>(x, a);
    store<Arch>(sign, select(negative, vi<Arch>(-1), vi<Arch>(0)));
    store<Arch>(exponent, scale);
    store<Arch>(word, random);
    for (std::size_t i = 0; i < lanes<Arch>; ++i) {
        if (x[i] < infinity_bits)
            x[i] = static_cast<std::int32_t>(
                round_one(g, static_cast<std::uint32_t>(x[i]), sign[i] != 0, exponent[i], rule, static_cast<std::uint32_t>(word[i])));
    }
    return load<Arch>(x);
}

}  // namespace qk::kernels
