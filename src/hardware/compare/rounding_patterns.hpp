// SPDX-License-Identifier: Apache-2.0
// What rounding sees of a float32: the bits that it keeps, and below them a guard bit and sticky bits, whatever the format.
//
//     significand  1 k k k | g s s s s s     `shift` bits are cut off: one guard, and shift - 1 sticky bits
//
//     tie     g alone                above_tie   g and one sticky bit
//     inside  one sticky bit alone   below_tie   a tie less one sticky bit: every sticky bit from that one on
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <optional>
#include <vector>

#include "model.hpp"

namespace qk::compare {

enum class pattern : std::uint8_t { tie, above_tie, below_tie, inside, count };

/// A shift that takes more than this leaves nothing to round up.
inline constexpr int largest_shift = 25;

/// Returns the grid of the elements of any format but fp32 and those made of tables; that of integers has their zero point taken off.
/// Unsigned floats count their steps as others do.
inline std::optional<element_grid> rounding_grid_of(const conversion& c) {
    if (auto g = element_grid::of(c)) {
        const auto zero = is_integer_format(c.format) ? static_cast<double>(c.one().zero_point) : 0.0;
        g->largest -= zero, g->lowest -= zero;
        return g;
    }
    const auto* f = std::get_if<floating>(&c.format);
    if (f == nullptr || *f == fp32 || exceeds_float32(*f)) return std::nullopt;
    return element_grid{.mantissa = f->mantissa_bits,
                        .least_exponent = min_exponent(*f),
                        .largest = max_value(*f),
                        .lowest = f->is_signed ? -max_value(*f) : 0};
}
/// Returns the exponent of the steps of numbers from 2^e to 2^(e + 1).
inline int step_exponent(const element_grid& g, int e) { return g.fixed ? std::ilogb(g.step) : std::max(e, g.least_exponent) - g.mantissa; }

/// A float32 as significand * 2^lsb; the lsb of every number from 2^-126 on has its leading bit at 23.
struct significand {
    std::uint32_t bits;
    int lsb;
};
inline significand significand_of(float x) {
    const std::uint32_t u = std::bit_cast<std::uint32_t>(x), field = u >> 23 & 255u;
    return {(u & 0x7fffffu) | (field != 0 ? 0x800000u : 0u), static_cast<int>(field == 0 ? 1 : field) - 150};
}

/// Calls visit(v) for both signs of every pattern in the binade from 2^e on, in units of 2^scale. What is kept is even, odd, about to carry
/// into the exponent, or about to pass the largest number.
template <class Visit>
void each_pattern_of_binade(const element_grid& g, int e, int scale, Visit visit) {
    const int exponent = e + scale, top = std::min(23, exponent + 149), lsb = exponent - top, shift = step_exponent(g, e) + scale - lsb;
    if (exponent > 127 || top < 0 || shift < 1) return;
    const auto add = [&](std::int64_t bits) {
        if (bits >> top != 1) return;
        const float v = std::ldexp(static_cast<float>(bits), lsb);
        visit(v), visit(-v);
    };
    if (shift > largest_shift) {
        add(std::int64_t{1} << top), add((std::int64_t{1} << top) + 1), add((std::int64_t{2} << top) - 1);
        return;
    }
    const std::int64_t first = std::int64_t{1} << top >> shift, ones = ((std::int64_t{2} << top) - 1) >> shift;
    const double step = std::ldexp(1.0, step_exponent(g, e));
    std::vector<std::int64_t> kept{first, first + 1, ones - 1, ones};
    for (const double end : {g.largest / step, -g.lowest / step}) {
        const auto most = static_cast<std::int64_t>(std::min(end, 0x1p24));
        kept.insert(kept.end(), {most - 1, most});
    }
    std::sort(kept.begin(), kept.end());
    kept.erase(std::unique(kept.begin(), kept.end()), kept.end());
    for (const std::int64_t k : kept) {
        const std::int64_t number = k << shift, tie = number | std::int64_t{1} << (shift - 1);
        if (k < first || k > ones) continue;
        add(number), add(tie);
        for (int bit = 0; bit + 1 < shift; ++bit) {
            const std::int64_t one = std::int64_t{1} << bit;
            add(tie + one), add(tie - one), add(number + one);
        }
    }
}

/// Calls visit(v) for every pattern of every binade in which rounding gives a number of the format, and of the binades beside those.
template <class Visit>
void each_pattern(const element_grid& g, int scale, Visit visit) {
    const int most = std::ilogb(std::max(g.largest, -g.lowest)) + 1, least = step_exponent(g, -1000) - 3;
    for (int e = most; e >= least; --e) each_pattern_of_binade(g, e, scale, visit);
}

}  // namespace qk::compare
