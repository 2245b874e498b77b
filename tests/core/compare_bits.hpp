// SPDX-License-Identifier: Apache-2.0
// Compares two arrays bit for bit: NaN equals NaN, +0 differs from -0. A failure prints hexadecimal floats.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>

inline bool same_bits(float a, float b) {
    return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b) || (std::isnan(a) && std::isnan(b));
}

/// Returns how many values differ. Prints the first `shown` to standard error, under `what`: input, expected and actual value.
inline std::size_t count_mismatches(std::span<const float> x, std::span<const float> expected, std::span<const float> actual,
                                    const std::string& what, std::size_t shown = 4) {
    std::size_t mismatches = 0;
    for (std::size_t i = 0; i < expected.size(); ++i) {
        if (same_bits(expected[i], actual[i])) continue;
        if (mismatches++ < shown) {
            std::fprintf(stderr, "%s [%zu]: x %a expected %a actual %a\n", what.c_str(), i, static_cast<double>(x[i]),
                         static_cast<double>(expected[i]), static_cast<double>(actual[i]));
        }
    }
    return mismatches;
}
