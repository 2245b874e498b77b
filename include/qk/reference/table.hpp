// SPDX-License-Identifier: Apache-2.0
// Quantizes one value to a table: by comparing it with every number there is. docs/reference/numerics.md, equation (6a).
#pragma once

#include <cmath>

#include "qk/formats/table.hpp"
#include "qk/isa.hpp"
#include "qk/reference/rounding.hpp"

namespace qk::reference {
inline namespace QK_ISA {

/// Returns the first code of the number in the table that is nearest to v in one direction: the largest one up to v, or the smallest one
/// from v on; -1 if there is none.
inline int neighbour(const table& f, double v, bool below) {
    int best = -1;
    for (int code = 0; code < f.size(); ++code) {
        const double number = static_cast<double>(f.values->number[static_cast<std::size_t>(code)]);
        if (std::isnan(number) || (below ? number > v : number < v)) continue;
        const double held = best < 0 ? 0 : static_cast<double>(f.values->number[static_cast<std::size_t>(best)]);
        if (best < 0 || (below ? number > held : number < held)) best = code;
    }
    return best;
}

/// Returns whether x is below, at or above the middle of a and b (-1, 0, 1), exactly: the sum of two floats may need more bits than a
/// double has, and then what it lacks decides.
inline int side_of_middle(double a, double b, double x) {
    const double sum = a + b, of_b = sum - a, lost = (a - (sum - of_b)) + (b - of_b);
    if (2 * x != sum) return 2 * x < sum ? -1 : 1;
    return lost == 0 ? 0 : lost > 0 ? -1 : 1;
}

/// Returns the code of x, a quotient by the scale. A NaN takes the first code of NaN; -1 stands for a NaN that has none.
inline int code_of(const table& f, float x, const semantics& how, std::uint32_t random) {
    x = flush_input(x, how);
    if (std::isnan(x)) {
        for (int code = 0; code < f.size(); ++code)
            if (std::isnan(f.values->number[static_cast<std::size_t>(code)])) return code;
        if (how.nan_without_code == nan_rule::nan) return -1;
        x = 0;
        semantics nearest;
        return code_of(f, x, nearest, 0);
    }
    const int low = neighbour(f, static_cast<double>(x), true), high = neighbour(f, static_cast<double>(x), false);
    if (low < 0 || high < 0 || low == high) return low < 0 ? high : low;
    const double a = static_cast<double>(f.values->number[static_cast<std::size_t>(low)]),
                 b = static_cast<double>(f.values->number[static_cast<std::size_t>(high)]);
    const double part = static_cast<double>(x) - a, step = b - a;
    const int side = side_of_middle(a, b, static_cast<double>(x));
    const bool toward_low =
        std::fabs(a) < std::fabs(b) || (std::fabs(a) == std::fabs(b) && x < 0);  // which of the two is nearer to 0, or on x's side of it
    switch (how.rounding) {
        case rounding::half_even: {
            if (side != 0) return side < 0 ? low : high;
            switch (f.ties) {
                case table_ties::even_code: return low % 2 == 0 || high % 2 != 0 ? low : high;
                case table_ties::lower: return low;
                case table_ties::upper: return high;
                case table_ties::toward_zero: return toward_low ? low : high;
                case table_ties::away: return toward_low ? high : low;
            }
            return low;
        }
        case rounding::half_away: return side < 0 || (side == 0 && !toward_low) ? low : high;
        case rounding::half_up: return side < 0 ? low : high;
        case rounding::toward_zero: return toward_low ? low : high;
        case rounding::up: return high;
        case rounding::down: return low;
        case rounding::to_odd: return low % 2 != 0 || high % 2 == 0 ? low : high;
        case rounding::stochastic:
        case rounding::stochastic_b:
        case rounding::stochastic_c: break;
    }
    if (toward_low) return goes_away_by_chance(part, step, how, random) ? high : low;
    return goes_away_by_chance(b - static_cast<double>(x), step, how, random) ? low : high;
}

/// Returns fake_quantize of one value.
inline float quantize(const table& f, float x, float scale, const semantics& how, std::uint32_t random) {
    const int code = code_of(f, scale == 1 ? x : divide(flush_input(x, how), scale), how, random);
    if (code < 0) return quiet_nan;
    const float value = f.values->number[static_cast<std::size_t>(code)];
    return flush_output(scale == 1 ? value : multiply(value, scale), 0x1p-126, how);
}

}  // namespace QK_ISA
}  // namespace qk::reference
