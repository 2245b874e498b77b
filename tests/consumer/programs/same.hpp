// SPDX-License-Identifier: Apache-2.0
// Compares two arrays bit for bit; NaN equals NaN.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

inline bool same(const std::vector<float>& a, const std::vector<float>& b) {
    if (a.size() != b.size()) return false;
    for (std::size_t i = 0; i < a.size(); ++i) {
        if (std::bit_cast<std::uint32_t>(a[i]) != std::bit_cast<std::uint32_t>(b[i]) && !(std::isnan(a[i]) && std::isnan(b[i])))
            return false;
    }
    return true;
}

/// Returns numbers like those of a layer.
inline std::vector<float> numbers(std::size_t n) {
    std::vector<float> x(n);
    std::uint32_t state = 12345;
    for (float& v : x) {
        state = state * 1664525u + 1013904223u;
        v = (static_cast<float>(state >> 8) * 0x1p-24f - 0.5f) * (state % 13 == 0 ? 20.0f : 2.0f);
    }
    return x;
}
