// SPDX-License-Identifier: Apache-2.0
// The arithmetic of devices: whole numbers of 128 bits times powers of two are rounded into registers, and registers are read back.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "qk/dot/accumulator.hpp"
#include "qk/inline.hpp"
#include "qk/isa.hpp"
#include "qk/whole_128.hpp"

namespace qk {

/// What happened while sums were formed; counted on request.
struct dot_counts {
    std::uint64_t overflow = 0;    ///< results beyond the largest finite number, from finite terms
    std::uint64_t underflow = 0;   ///< inexact results below the smallest normal number, or flushed ones
    std::uint64_t inexact = 0;     ///< dot products in which any bit was lost
    std::uint64_t nan = 0;         ///< results that are NaN
    std::uint64_t saturation = 0;  ///< dot products in which an integer register or code saturated, or wrapped
    friend QK_INLINE constexpr bool operator==(const dot_counts&, const dot_counts&) = default;
};

namespace detail {
inline namespace QK_ISA {

/// What happened in one dot product: each is counted once, however often it happens.
struct events {
    bool overflow = false, underflow = false, inexact = false, saturation = false;
};

QK_INLINE constexpr std::uint64_t sign_of(floating f) { return std::uint64_t{1} << (f.exponent_bits + f.mantissa_bits); }
QK_INLINE constexpr std::uint64_t infinity_of(floating f) { return ((std::uint64_t{1} << f.exponent_bits) - 1) << f.mantissa_bits; }
/// Is true for formats with Inf and NaN as IEEE 754 has them: all registers, and most results.
QK_INLINE constexpr bool is_ieee(floating f) { return f.specials == specials::ieee; }
/// Returns the code of NaN; the largest number where a format of a few bits has no NaN.
QK_INLINE constexpr std::uint64_t nan_of(floating f, nan_answer how) {
    if (!is_ieee(f)) return sign_of(f) - std::uint64_t{f.specials.negative_zero};  // fnuz: the code of -0
    return how == nan_answer::all_ones ? sign_of(f) - 1 : infinity_of(f) | std::uint64_t{1} << (f.mantissa_bits - 1);
}

/// Is true when a magnitude between `kept` and kept + 1 goes up. `rest` compares it with a half: below, equal, above (-1, 0, 1).
QK_INLINE constexpr bool goes_up(rounding r, bool negative, bool odd, int rest) {
    switch (r) {
        case rounding::half_even: return rest > 0 || (rest == 0 && odd);
        case rounding::half_away: return rest >= 0;
        case rounding::half_up: return rest > 0 || (rest == 0 && !negative);
        case rounding::up: return !negative;
        case rounding::down: return negative;
        case rounding::to_odd: return !odd;
        default: return false;
    }
}
QK_INLINE constexpr bool overflows_to_infinity(too_large rule, rounding r, bool negative) {
    if (rule != too_large::ieee) return rule == too_large::infinity;
    // The largest number of a register has an odd code.
    return !(r == rounding::toward_zero || r == rounding::to_odd || (r == rounding::up && negative) || (r == rounding::down && !negative));
}

/// Returns what stands for Inf. A format without it has NaN there, or the largest number where there is none or where sums saturate.
QK_INLINE constexpr std::uint64_t infinite_code(floating f, const accumulator& a, bool negative) {
    const std::uint64_t sign = negative ? sign_of(f) : 0;
    if (is_ieee(f)) return sign | infinity_of(f);
    if (f.specials == specials::none || a.overflow == too_large::saturate) return sign | largest_magnitude(f);
    return nan_of(f, a.nan);
}

/// A magnitude without its lowest bits, and how these compare with half of the last bit that is kept: below, equal, above (-1, 0, 1).
struct kept_digits {
    uint128 kept = 0;
    int rest = -1;
    bool inexact = true;
};
/// Drops 1 bit or more. `more`: the number is a little larger than the magnitude.
QK_INLINE constexpr kept_digits drop_digits(uint128 magnitude, int drop, bool more) {
    if (drop > 128) return {};
    const uint128 half = uint128{1} << (drop - 1), low = magnitude & ((half - 1) | half);
    return {drop == 128 ? 0 : magnitude >> drop, low > half || (low == half && more) ? 1 : low == half ? 0 : -1, more || low != 0};
}

/// Returns whether a number below 2^lowest stays below it if it is rounded to m fraction bits of its own exponent.
QK_INLINE constexpr bool is_tiny(rounding r, bool negative, uint128 magnitude, int lsb, bool more, int m, int lowest) {
    const int exponent = lsb + width_of(magnitude) - 1, drop = exponent - m - lsb;
    if (exponent >= lowest) return false;
    if (exponent < lowest - 1 || drop <= 0) return true;
    const kept_digits d = drop_digits(magnitude, drop, more);
    const bool all_ones = d.kept == (uint128{2} << m) - 1;
    return !(all_ones && d.inexact && goes_up(r, negative, true, d.rest));
}

/// Returns the code of magnitude * 2^lsb, rounded. `more`: the number is a little larger than that (less than one unit of 2^lsb).
QK_INLINE constexpr std::uint64_t round_to(floating f, rounding r, const accumulator& a, bool negative, uint128 magnitude, int lsb,
                                           bool more, events& seen) {
    const std::uint64_t sign = negative ? sign_of(f) : 0;
    const int m = f.mantissa_bits, lowest = min_exponent(f), exponent = lsb + width_of(magnitude) - 1;
    const int at = exponent > lowest ? exponent : lowest, drop = at - m - lsb;
    const auto below = static_cast<std::uint64_t>(at - lowest);  // binades; without a mantissa they tell even codes from odd ones
    const auto is_odd = [m, below](std::uint64_t k) { return ((m != 0 ? k : k + below) & 1) != 0; };
    std::uint64_t kept = 0;
    bool inexact = more;
    if (drop <= 0) {
        kept = static_cast<std::uint64_t>(magnitude << -drop);
        if (more && goes_up(r, negative, is_odd(kept), -1)) ++kept;
    } else {
        const kept_digits d = drop_digits(magnitude, drop, more);
        kept = static_cast<std::uint64_t>(d.kept);
        inexact = d.inexact;
        if (inexact && goes_up(r, negative, is_odd(kept), d.rest)) ++kept;
    }
    std::uint64_t code = (below << m) + kept;  // the hidden bit of a normal number raises the field by one
    seen.inexact |= inexact;
    if (!is_ieee(f) && code > largest_magnitude(f)) {
        seen.overflow = seen.inexact = true;
        return overflows_to_infinity(a.overflow, r, negative) ? infinite_code(f, a, negative) : sign | largest_magnitude(f);
    }
    if (is_ieee(f) && code >= infinity_of(f)) {
        seen.overflow = seen.inexact = true;
        code = infinity_of(f) - std::uint64_t{!overflows_to_infinity(a.overflow, r, negative)};
    } else if (code >> m == 0) {
        seen.underflow |= inexact;
        if (flushes_results(a) && code != 0) {
            seen.underflow = seen.inexact = true;
            code = 0;
        }
    } else if (a.flush_tiny && code >> m == 1 && is_tiny(r, negative, magnitude, lsb, more, m, lowest)) {
        seen.underflow = seen.inexact = true;
        code = 0;
    }
    return code == 0 && (a.zero == zero_rule::positive || !f.specials.negative_zero) ? 0 : sign | code;
}

/// A register's content as significand * 2^(exponent - mantissa bits); the exponent of a zero is -126 and a subnormal's is the smallest
/// one.
struct unpacked {
    std::int64_t significand = 0;
    int exponent = -126;
    bool negative = false, infinite = false, nan = false;
};
QK_INLINE constexpr unpacked unpack(floating f, std::uint64_t code) {
    const std::uint64_t magnitude = code & (sign_of(f) - 1), mantissa = magnitude & ((std::uint64_t{1} << f.mantissa_bits) - 1);
    const auto field = static_cast<int>(magnitude >> f.mantissa_bits);
    unpacked u{.negative = (code & sign_of(f)) != 0};
    if (magnitude >= infinity_of(f)) {
        u.nan = mantissa != 0;
        u.infinite = !u.nan;
    } else if (magnitude != 0) {
        const auto significand = static_cast<std::int64_t>(field == 0 ? mantissa : mantissa | std::uint64_t{1} << f.mantissa_bits);
        u.significand = u.negative ? -significand : significand;
        u.exponent = field == 0 ? min_exponent(f) : field - f.bias;
    }
    return u;
}

/// Is `code` NaN?
QK_INLINE constexpr bool is_nan_code(floating f, std::uint64_t code) {
    const std::uint64_t magnitude = code & (sign_of(f) - 1);
    if (is_ieee(f)) return magnitude > infinity_of(f);
    return f.specials.high_nans == high_nans::one ? magnitude == sign_of(f) - 1 : !f.specials.negative_zero && code == sign_of(f);
}

QK_INLINE constexpr bool is_subnormal(floating f, std::uint64_t code) {
    const std::uint64_t magnitude = code & (sign_of(f) - 1);
    return magnitude != 0 && magnitude >> f.mantissa_bits == 0;
}

/// Returns C as a device reads it.
QK_INLINE constexpr std::uint64_t flushed(const accumulator& a, floating f, std::uint64_t code) {
    const input_flush flush = flush_of_c(a);
    if (flush == input_flush::none || !is_subnormal(f, code)) return code;
    return flush == input_flush::positive ? 0 : code & sign_of(f);
}

/// Returns the exact value of a register's code.
QK_INLINE constexpr double value_of_register(floating f, std::uint64_t code) {
    if (f == fp64) return std::bit_cast<double>(code);
    const unpacked u = unpack(f, code);
    if (u.nan) return std::numeric_limits<double>::quiet_NaN();
    const double magnitude =
        u.infinite ? std::numeric_limits<double>::infinity()
                   : static_cast<double>(u.negative ? -u.significand : u.significand) * power_of_two(u.exponent - f.mantissa_bits);
    return u.negative ? -magnitude : magnitude;
}

/// Rounds a double that a rounding to odd made: it has enough bits to be rounded again to 24 bits or fewer in any way.
QK_INLINE constexpr std::uint64_t round_to(floating f, rounding r, const accumulator& a, double v, events& seen) {
    const auto bits = std::bit_cast<std::uint64_t>(v);
    const bool negative = bits >> 63 != 0;
    const std::uint64_t magnitude = bits & ~(std::uint64_t{1} << 63);
    if (magnitude > 0x7ff0000000000000u) return nan_of(f, a.nan);
    if (magnitude == 0x7ff0000000000000u) return infinite_code(f, a, negative);
    if (magnitude == 0) return negative && a.zero != zero_rule::positive && f.specials.negative_zero ? sign_of(f) : 0;
    const auto field = static_cast<int>(magnitude >> 52);
    const std::uint64_t mantissa = magnitude & ((std::uint64_t{1} << 52) - 1);
    return round_to(f, r, a, negative, uint128{field == 0 ? mantissa : mantissa | std::uint64_t{1} << 52}, (field == 0 ? 1 : field) - 1075,
                    false, seen);
}

/// Returns x + y rounded to odd: where bits are lost the last one is 1. Rounding it again gives the same as rounding the exact sum once.
QK_INLINE double add_to_odd(double x, double y) {
    const double s = x + y;
    const double part = s - x;
    const double lost = (x - (s - part)) + (y - part);
    auto bits = std::bit_cast<std::uint64_t>(s);
    if (!(lost != 0) || !(std::fabs(s) <= std::numeric_limits<double>::max()) || (bits & 1) != 0) return s;
    bits += (lost > 0) == (s > 0) ? std::uint64_t{1} : ~std::uint64_t{0};
    return std::bit_cast<double>(bits);
}

/// Returns a code as it is stored: formats of up to 16 bits, fp32 and fp64 keep their code; other registers of 17 to 32 bits become the
/// float32 that has their value.
QK_INLINE constexpr std::uint64_t stored_code(floating f, std::uint64_t code) {
    if (f == fp64 || bits(f) <= 16 || f == fp32) return code;
    if (f.exponent_bits == 8) return code << (23 - f.mantissa_bits);
    const unpacked u = unpack(f, code);
    if (u.nan) return 0x7fc00000u;
    return std::bit_cast<std::uint32_t>(static_cast<float>(value_of_register(f, code)));
}

}  // namespace QK_ISA
}  // namespace detail

inline namespace QK_ISA {

/// Returns a value, rounded once and half to even to a register's format, as the stored code that dot takes and gives.
constexpr std::uint64_t stored_code_of(floating f, double value) {
    detail::events ignored;
    return detail::stored_code(f, detail::round_to(f, rounding::half_even, accumulator{}, value, ignored));
}

}  // namespace QK_ISA

/// The parts of a device's sum, for who computes sums in an order or in lanes of his own: src/hardware/devices does so.
namespace device_sums {
inline namespace QK_ISA {

/// What happened in one sum; its code in a register as it is stored; the code of NaN, and whether a code is one.
using detail::events, detail::is_nan_code, detail::nan_of, detail::stored_code;

}  // namespace QK_ISA
}  // namespace device_sums
}  // namespace qk
