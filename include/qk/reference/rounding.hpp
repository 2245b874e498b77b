// SPDX-License-Identifier: Apache-2.0
// The oracle's arithmetic: exact doubles, and one function that rounds. It shares no line with the kernels.
#pragma once

#include "qk/exact/flags.hpp"

#include <bit>
#include <cmath>
#include <cstdint>

#include "qk/formats/floating.hpp"
#include "qk/isa.hpp"
#include "qk/semantics.hpp"

namespace qk::reference {
inline namespace QK_ISA {

/// A rounding and, for the stochastic ones, how many random bits it takes.
struct rounding_rule {
    rounding how;
    int random_bits = 32;
    constexpr rounding_rule(rounding r) : how(r) {}
    constexpr rounding_rule(const semantics& s) : how(s.rounding), random_bits(s.stochastic_bits) {}
};

/// Returns whether stochastic rounding takes the fraction part / step, below 1 and not negative, away from zero: whether the fraction,
/// brought to n bits, and the upper n random bits reach 2^n together. docs/reference/numerics.md, equation (1).
inline bool goes_away_by_chance(double part, double step, rounding_rule rule, std::uint32_t random) {
    const double scaled = std::ldexp(part, rule.random_bits);  // the quotient by `step` has the whole part `count` and the rest `rest`
    double count = std::floor(scaled / step), rest = std::fma(-count, step, scaled);
    if (rest < 0) --count, rest += step;
    if (rest >= step) ++count, rest -= step;
    if (rule.how == rounding::stochastic_b && 2 * rest >= step) ++count;
    if (rule.how == rounding::stochastic_c && (2 * rest > step || (2 * rest == step && std::fmod(count, 2) != 0))) ++count;
    return count + static_cast<double>(random >> (32 - rule.random_bits)) >= std::ldexp(1.0, rule.random_bits);
}

/// Returns `v` rounded to a whole number. Exact for every double: v - floor(v) is representable. docs/reference/numerics.md, equation (1).
inline double round_whole(double v, rounding_rule rule, std::uint32_t random) {
    const double below = std::floor(v);
    const double rest = v - below;
    if (rest == 0) return v;
    switch (rule.how) {
        case rounding::half_even:
            if (rest == 0.5) return std::fmod(below, 2) == 0 ? below : below + 1;
            return rest < 0.5 ? below : below + 1;
        case rounding::half_away: return rest < 0.5 || (rest == 0.5 && v < 0) ? below : below + 1;
        case rounding::half_up: return rest < 0.5 ? below : below + 1;
        case rounding::toward_zero: return v < 0 ? below + 1 : below;
        case rounding::up: return below + 1;
        case rounding::down: return below;
        case rounding::to_odd: return std::fmod(below, 2) != 0 ? below : below + 1;
        case rounding::stochastic:
        case rounding::stochastic_b:
        case rounding::stochastic_c: {
            const double magnitude = std::fabs(v);
            const double base = std::floor(magnitude);
            return std::copysign(goes_away_by_chance(magnitude - base, 1, rule, random) ? base + 1 : base, v);
        }
    }
    return v;
}

/// Returns whether a magnitude between two neighbours, `part` (not 0) above the lower one and `step` apart, goes to the upper one.
/// `odd`: the lower one's code is odd.
inline bool goes_away(double part, double step, bool negative, bool odd, rounding_rule rule, std::uint32_t random) {
    switch (rule.how) {
        case rounding::half_even: return 2 * part > step || (2 * part == step && odd);
        case rounding::half_away: return 2 * part >= step;
        case rounding::half_up: return negative ? 2 * part > step : 2 * part >= step;
        case rounding::toward_zero: return false;
        case rounding::up: return !negative;
        case rounding::down: return negative;
        case rounding::to_odd: return !odd;
        case rounding::stochastic:
        case rounding::stochastic_b:
        case rounding::stochastic_c: return goes_away_by_chance(part, step, rule, random);
    }
    return false;
}

/// Returns the random bits of the element at position `i` of the span.
inline std::uint32_t random_word(const semantics& how, std::size_t i) {
    if (!is_stochastic(how.rounding)) return 0;
    return !how.random_words.empty() ? how.random_words[i] : random_bits(how.seed, how.first_index + i);
}

/// Returns floor(log2 |v|) for finite v != 0, from the bits: no logarithm is exact enough next to a power of two.
inline int exponent_of(double v) { return static_cast<int>((std::bit_cast<std::uint64_t>(v) >> 52) & 0x7ff) - 1023; }

/// Returns the biased exponent field of a float32; 0 for zero and subnormals.
inline int exponent_field(float x) { return static_cast<int>((std::bit_cast<std::uint32_t>(x) >> 23) & 0xff); }

/// Return the float32 quotient and product, rounded once. The detour through double is exact or innocuous (53 >= 2 * 24 + 2 bits), and the
/// conversion keeps a compiler from fusing the product with a later sum.
inline float divide(float a, float b) { return static_cast<float>(static_cast<double>(a) / static_cast<double>(b)); }
inline float multiply(float a, float b) { return static_cast<float>(static_cast<double>(a) * static_cast<double>(b)); }

/// Flushes a subnormal input to zero of its sign, if the semantics says so.
inline float flush_input(float x, const semantics& how) {
    return how.flush_inputs && std::fabs(x) < 0x1p-126f ? std::copysign(0.0f, x) : x;
}
/// Flushes results below `smallest`, if the semantics says so. Also used for results that are zero, which keep their sign.
inline float flush_output(float y, double smallest, const semantics& how) {
    return how.flush_outputs && static_cast<double>(std::fabs(y)) < smallest ? std::copysign(0.0f, y) : y;
}

inline constexpr float quiet_nan = std::bit_cast<float>(0x7fc00000u);

}  // namespace QK_ISA
}  // namespace qk::reference
