// SPDX-License-Identifier: Apache-2.0
// The oracle's arithmetic: exact doubles, and one function that rounds. It shares no line with the kernels.
#pragma once

#include "qk/exact/flags.hpp"

#include <bit>
#include <cmath>
#include <cstdint>

#include "qk/formats/floating.hpp"
#include "qk/semantics.hpp"

namespace qk::reference {

/// Returns `v` rounded to a whole number. Exact for every double: v - floor(v) is representable. docs/reference/numerics.md, equation (1).
inline double round_whole(double v, rounding how, std::uint32_t random) {
    const double below = std::floor(v);
    const double rest = v - below;
    if (rest == 0) return v;
    switch (how) {
        case rounding::half_even:
            if (rest == 0.5) return std::fmod(below, 2) == 0 ? below : below + 1;
            return rest < 0.5 ? below : below + 1;
        case rounding::half_away: return rest < 0.5 || (rest == 0.5 && v < 0) ? below : below + 1;
        case rounding::half_up: return rest < 0.5 ? below : below + 1;
        case rounding::toward_zero: return v < 0 ? below + 1 : below;
        case rounding::up: return below + 1;
        case rounding::down: return below;
        case rounding::stochastic: {
            const double magnitude = std::fabs(v);
            const double base = std::floor(magnitude);
            const auto part = static_cast<std::uint64_t>((magnitude - base) * 0x1p32);
            return std::copysign(part + random >= (std::uint64_t{1} << 32) ? base + 1 : base, v);
        }
    }
    return v;
}

/// Returns the random bits of the element at position `i` of the span.
inline std::uint32_t random_word(const semantics& how, std::size_t i) {
    if (how.rounding != rounding::stochastic) return 0;
    return how.random_words != nullptr ? how.random_words[i] : random_bits(how.seed, how.first_index + i);
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
    return how.flush_outputs && std::fabs(y) < smallest ? std::copysign(0.0f, y) : y;
}

inline constexpr float quiet_nan = std::bit_cast<float>(0x7fc00000u);

}  // namespace qk::reference
