// SPDX-License-Identifier: Apache-2.0
// Makes elements whose quotient by the scale lies next to a tie, and scales with which a product could round it to the wrong side.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <variant>
#include <vector>

#include "test_formats.hpp"
#include "test_inputs.hpp"

namespace qk {

/// Returns a float whose significand lies within 18 of a multiple of 2^zeros, for zeros from 6 to 23. steps/fast.hpp may
/// divide by a product for some of these, and must not for others.
inline float scale_by_a_coarse_one(generator& g, int trial) {
    const int zeros = 6 + trial % 18, off = trial / 18 * 4 - 17 + static_cast<int>(g.below(4));
    const auto significand = static_cast<std::uint32_t>((1 << 23) + ((g.word() & 0x7fffff) >> zeros << zeros) + off);
    return std::ldexp(static_cast<float>(significand), static_cast<int>(g.below(40)) - 43);
}

/// Returns a middle of two neighbours on the grid of f, or one just beyond its ends.
inline double tie_of(integer f, std::int64_t zero, generator& g) {
    const auto half_steps = 2 * static_cast<std::int64_t>(qmax(f) - qmin(f) + 2);
    return static_cast<double>(2 * (qmin(f) - zero) - 1 +
                               static_cast<std::int64_t>(g.word() % static_cast<std::uint32_t>(half_steps)) / 2 * 2) /
           2;
}
inline double tie_of(floating f, std::int64_t, generator& g) {
    const int m = f.mantissa_bits, least = min_exponent(f),
              exponent = least + static_cast<int>(g.below(static_cast<std::uint32_t>(std::ilogb(max_value(f)) - least + 2)));
    const auto steps = (exponent == least && g.below(2) != 0 ? 0 : std::uint32_t{1} << m) + g.below(std::uint32_t{1} << m);
    return std::ldexp((2.0 * steps + 1) * (g.below(2) != 0 ? -1 : 1), exponent - m - 1);
}
inline bool is_tied(floating f) { return f.mantissa_bits > 0 && f.mantissa_bits < 20; }
inline bool is_tied(integer f) { return f.bits <= 16; }

/// Appends quotient * scale as a float, and its three neighbours on each side.
inline void push_around(std::vector<float>& x, double quotient, float scale) {
    float v = static_cast<float>(quotient * static_cast<double>(scale));
    for (int i = 0; i < 3; ++i) v = std::nextafter(v, -std::numeric_limits<float>::infinity());
    for (int i = 0; i < 7; ++i, v = std::nextafter(v, std::numeric_limits<float>::infinity())) x.push_back(v);
}

inline std::int64_t any_zero_point(floating, int, generator&) { return 0; }
inline std::int64_t any_zero_point(integer f, int trial, generator& g) {
    return trial % 3 == 0 ? (qmin(f) + qmax(f) + 1) / 2 : qmin(f) + g.below(static_cast<std::uint32_t>(qmax(f) - qmin(f)) + 1);
}

template <class Call>
void for_each_tied_format(const Call& call) {
    for (const test_format& f : all_formats()) {
        if (const auto* whole = std::get_if<integer>(&f.format); whole != nullptr && is_tied(*whole)) call(f, *whole);
        if (const auto* real = std::get_if<floating>(&f.format); real != nullptr && is_tied(*real)) call(f, *real);
    }
}

}  // namespace qk
