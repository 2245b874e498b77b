// SPDX-License-Identifier: Apache-2.0
// The step of tables: the neighbours of a quotient are searched in the numbers of the table, sorted, and the rounding chooses one.
#pragma once

#include <algorithm>
#include <cmath>

#include "qk/formats/table.hpp"
#include "qk/kernels/rounding/general.hpp"
#include "qk/kernels/steps/floating.hpp"

namespace qk::kernels {

/// What a table does under a semantics. (A template, so that each instruction set has its own.)
template <class Arch>
struct table_rules {
    int count = 0;  ///< different numbers, ascending
    float number[256] = {};
    std::uint8_t code[256] = {};
    float nan_value = 0;  ///< what a NaN becomes, and its code
    std::uint8_t nan_code = 0;
    table_ties ties = table_ties::even_code;
    std::int32_t flush_below = 0, least_input = 0;
    rounding how = rounding::half_even;
    random_source random;

    table_rules(const table& f, const semantics& s) noexcept
        : ties(f.ties),
          flush_below(s.flush_outputs ? min_normal_bits : 0),
          least_input(s.flush_inputs ? min_normal_bits : 0),
          how(s.rounding),
          random(s) {
        int nan = -1;
        for (int i = 0; i < f.size; ++i) {
            const float v = f.values[static_cast<std::size_t>(i)];
            if (v != v) {
                nan = nan < 0 ? i : nan;
                continue;
            }
            int at = 0;  // sorted as they come; of equal numbers the first stays
            while (at < count && number[at] < v) ++at;
            if (at < count && number[at] == v) continue;
            for (int k = count; k > at; --k) number[k] = number[k - 1], code[k] = code[k - 1];
            number[at] = v == 0 ? 0.0f : v;
            code[at] = static_cast<std::uint8_t>(i);
            ++count;
        }
        nan_value = std::bit_cast<float>(nan_bits);
        nan_code = static_cast<std::uint8_t>(std::max(nan, 0));
        if (nan >= 0 || s.nan_without_code == nan_rule::nan) return;
        // A NaN without a code becomes what 0 becomes.
        const rounding asked = how;
        how = rounding::half_even;
        const int zero = place_of(0.0f, 0);
        how = asked;
        nan_value = number[zero];
        nan_code = code[zero];
    }

    /// Returns whether x is below, at or above the middle of two numbers (-1, 0, 1).
    static int side_of_middle(float low, float high, float x) noexcept {
        const double a = static_cast<double>(low), b = static_cast<double>(high), sum = a + b, of_b = sum - a;
        const double lost = (a - (sum - of_b)) + (b - of_b), twice = 2 * static_cast<double>(x);
        if (twice != sum) return twice < sum ? -1 : 1;
        return lost == 0 ? 0 : lost > 0 ? -1 : 1;
    }
    /// Returns whether part / step of the way goes further by the word.
    bool goes_by_chance(double part, double step, std::uint32_t word) const noexcept {
        const double many = static_cast<double>(std::uint64_t{1} << random.bits), scaled = part * many;
        double n = std::floor(scaled / step), rest = __builtin_fma(-n, step, scaled);
        if (rest < 0) n -= 1, rest += step;
        if (rest >= step) n += 1, rest -= step;
        const bool is_odd = std::fmod(n, 2) != 0, half = 2 * rest >= step, more = 2 * rest > step;
        if ((how == rounding::stochastic_b && half) || (how == rounding::stochastic_c && (more || (half && is_odd)))) n += 1;
        return n + static_cast<double>(word >> (32 - random.bits)) >= many;
    }
    /// Returns the place, among the sorted numbers, of the one that x (not NaN) becomes.
    int place_of(float x, std::uint32_t word) const noexcept {
        int low = 0, high = count - 1;
        if (!(x > number[low])) return low;
        if (!(x < number[high])) return high;
        while (high - low > 1) {
            const int middle = (low + high) / 2;
            (number[middle] <= x ? low : high) = middle;
        }
        if (number[low] == x) return low;
        const float a = number[low], b = number[high], size_of_a = a < 0 ? -a : a, size_of_b = b < 0 ? -b : b;
        const bool toward_low = size_of_a < size_of_b || (size_of_a == size_of_b && x > 0);  // which of the two is nearer to 0
        const auto chosen = [&](bool upper) { return upper ? high : low; };
        switch (how) {
            case rounding::half_even: {
                const int side = side_of_middle(a, b, x);
                if (side != 0) return chosen(side > 0);
                switch (ties) {
                    case table_ties::even_code: return chosen((code[low] & 1) != 0 && (code[high] & 1) == 0);
                    case table_ties::lower: return low;
                    case table_ties::upper: return high;
                    case table_ties::toward_zero: return chosen(!toward_low);
                    case table_ties::away: return chosen(toward_low);
                }
                return low;
            }
            case rounding::half_away: {
                const int side = side_of_middle(a, b, x);
                return chosen(side > 0 || (side == 0 && toward_low));
            }
            case rounding::half_up: return chosen(side_of_middle(a, b, x) >= 0);
            case rounding::toward_zero: return chosen(!toward_low);
            case rounding::up: return high;
            case rounding::down: return low;
            case rounding::to_odd: return chosen((code[low] & 1) == 0 && (code[high] & 1) != 0);
            default: break;
        }
        const double from = static_cast<double>(toward_low ? a : b), v = static_cast<double>(x),
                     step = static_cast<double>(b) - static_cast<double>(a);
        const bool goes = goes_by_chance(toward_low ? v - from : from - v, step, word);
        return chosen(goes == toward_low);
    }
    float value_of(float x, std::uint32_t word) const noexcept { return x != x ? nan_value : number[place_of(x, word)]; }
    std::uint32_t code_of(float x, std::uint32_t word) const noexcept { return x != x ? nan_code : code[place_of(x, word)]; }
};

/// y = scale * nearest(x / scale); the scale is one for the tensor or a lane each.
template <class Arch>
struct table_step {
    const table_rules<Arch>* rules;
    vf<Arch> scale;
    bool scaled;

    const random_source& random() const noexcept { return rules->random; }

    vf<Arch> complete(vf<Arch> x, vi<Arch> random) const noexcept {
        vf<Arch> q = flushed<Arch>(x, rules->least_input);
        if (scaled) q = quotient<Arch>(q, scale);
        alignas(64) float lane[lanes<Arch>];
        alignas(64) std::int32_t word[lanes<Arch>];
        store<Arch>(lane, q);
        store<Arch>(word, random);
        for (std::size_t i = 0; i < lanes<Arch>; ++i) lane[i] = rules->value_of(lane[i], static_cast<std::uint32_t>(word[i]));
        vf<Arch> y = load<Arch>(lane);
        if (scaled) y = y * scale;
        return flushed<Arch>(y, rules->flush_below);
    }
};

}  // namespace qk::kernels
