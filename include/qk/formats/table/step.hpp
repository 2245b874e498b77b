// SPDX-License-Identifier: Apache-2.0
// The step of tables: each number has the least float32 that becomes it or a larger one, and a value's number is the last one whose least
// it reaches. Floats are compared as integers in the order of their values, so neither the rounding mode nor the flush modes matter. Where
// registers can be looked up in, at most 32 numbers are searched by halving, a level of the search in a register or two.
#pragma once

#include <algorithm>
#include <cmath>

#include "qk/formats/floating/fast.hpp"
#include "qk/formats/table/format.hpp"
#include "qk/isa.hpp"
#include "qk/lanes/code_lanes.hpp"
#include "qk/steps/general.hpp"
#include "qk/steps/scale_table.hpp"

namespace qk::kernels {
inline namespace QK_ISA {

/// What a table does under a semantics. (A template, so that each instruction set has its own.)
template <class Arch>
struct table_rules {
    int count = 0;                ///< different numbers, ascending
    std::size_t width = 1;        ///< the power of two from `count` on
    std::int32_t from[256] = {};  ///< the order of the least float that becomes this number or a larger one
    float number[256] = {};
    std::uint8_t code[256] = {};
    float nan_value = std::bit_cast<float>(nan_bits);  ///< what a NaN becomes, and its code
    std::uint8_t nan_code = 0;
    std::int32_t flush_below = 0, least_input = 0;
    rounding how = rounding::half_even;
    random_source random;
    bool in_registers = false;            ///< number_of() and code_of() serve
    int levels = 0;                       ///< of the search by halving: 4 or 5
    std::int32_t level[5][16] = {};       ///< entry i of level l: the order that halves part i of 2^l parts
    std::int32_t code_of_place[32] = {};  ///< as `code`

    table_rules(const table& f, const semantics& s) noexcept
        : flush_below(s.flush_outputs ? min_normal_bits : 0),
          least_input(s.flush_inputs ? min_normal_bits : 0),
          how(s.rounding),
          random(s) {
        const int nan = sort(f);
        while (width < static_cast<std::size_t>(count)) width *= 2;
        nan_code = static_cast<std::uint8_t>(std::max(nan, 0));
        if (nan < 0 && s.nan_without_code != nan_rule::nan) {  // becomes what 0 becomes when it is rounded to nearest
            set_from(f.ties, rounding::half_even);
            const std::size_t zero = place_of(0);
            nan_value = number[zero];
            nan_code = code[zero];
        }
        set_from(f.ties, random.used ? rounding::down : how);
        in_registers = !random.used && count <= most_looked_up<Arch>();
        if (!in_registers) return;
        levels = count <= 16 ? 4 : 5;
        const std::size_t parts = std::size_t{1} << levels;
        for (int l = 0; l < levels; ++l)
            for (std::size_t i = 0; i < std::size_t{1} << l; ++i) level[l][i] = from[(2 * i + 1) * (parts >> (l + 1))];
        std::copy(code, code + 32, code_of_place);
    }

    /// Returns integers in the order of the values of floats; both zeros are 0.
    static vi<Arch> ordered(vi<Arch> bits) noexcept {
        const vi<Arch> sign = bits >> 31;
        return ((bits & vi<Arch>(magnitude_bits)) ^ sign) - sign;
    }
    /// Returns the places of quotients in_registers, of `Levels` levels. No quotient is NaN.
    template <int Levels>
    QK_INLINE vi<Arch> found(vi<Arch> order) const noexcept {
        const auto below = [&](vi<Arch> middle) QK_INLINE_CALL { return all_bits(order < middle); };
        const mask<Arch> first = order < vi<Arch>(level[0][0]);
        vi<Arch> at = all_bits(first);
        at = vi<Arch>(3) + at + at + below(select(first, vi<Arch>(level[1][0]), vi<Arch>(level[1][1])));
        unrolled<Levels - 2>([&](auto k) QK_INLINE_CALL {
            constexpr int l = static_cast<int>(k) + 2;
            at = at + at + vi<Arch>(1) + below(looked_up<(l < 4 ? 8 : 16), Arch>(level[l], at));
        });
        return at;
    }
    /// Return the numbers, or their codes, of finite or infinite quotients, in_registers.
    template <int Levels>
    QK_INLINE vf<Arch> number_of(vf<Arch> q) const noexcept {
        const auto* p = reinterpret_cast<const std::int32_t*>(number);
        return as_float<Arch>(looked_up<(1 << Levels), Arch>(p, found<Levels>(ordered(as_int<Arch>(q)))));
    }
    template <int Levels>
    QK_INLINE vi<Arch> code_of(vf<Arch> q) const noexcept {
        return looked_up<(1 << Levels), Arch>(code_of_place, found<Levels>(ordered(as_int<Arch>(q))));
    }

    /// Returns the place of a value of this order among the numbers. With stochastic rounding: of the largest number up to it.
    QK_INLINE std::size_t place_of(std::int32_t x) const noexcept {
        std::size_t at = 0;
        for (std::size_t step = width / 2; step != 0; step /= 2) at += from[at + step] <= x ? step : 0;
        return at;
    }
    /// Return the values and codes of a vector of quotients.
    vf<Arch> values_of(vf<Arch> q, vi<Arch> words) const noexcept {
        const vi<Arch> bits = as_int<Arch>(flushed<Arch>(q, least_input)), order = ordered(bits);
        vf<Arch> y;
        if (random.used || count > 16) {
            alignas(64) float lane[lanes<Arch>];
            each_place(order, words, [&](std::size_t i, std::size_t at) { lane[i] = number[at]; });
            y = load<Arch>(lane);
        } else {
            vi<Arch> last(std::bit_cast<std::int32_t>(number[0]));
            for (int k = 1; k < count; ++k)
                last = select(order >= vi<Arch>(from[k]), vi<Arch>(std::bit_cast<std::int32_t>(number[k])), last);
            y = as_float<Arch>(last);
        }
        const vi<Arch> of_nan(std::bit_cast<std::int32_t>(nan_value));
        return as_float<Arch>(select((bits & vi<Arch>(magnitude_bits)) > vi<Arch>(infinity_bits), of_nan, as_int<Arch>(y)));
    }
    vi<Arch> codes_of(vf<Arch> q, vi<Arch> words) const noexcept {
        const vi<Arch> bits = as_int<Arch>(flushed<Arch>(q, least_input)), order = ordered(bits);
        vi<Arch> last(code[0]);
        if (random.used || count > 16) {
            alignas(64) std::int32_t lane[lanes<Arch>];
            each_place(order, words, [&](std::size_t i, std::size_t at) { lane[i] = code[at]; });
            last = load<Arch>(lane);
        } else {
            for (int k = 1; k < count; ++k) last = select(order >= vi<Arch>(from[k]), vi<Arch>(code[k]), last);
        }
        return select((bits & vi<Arch>(magnitude_bits)) > vi<Arch>(infinity_bits), vi<Arch>(nan_code), last);
    }

  private:
    static constexpr std::int32_t beyond_all = INT32_MAX;

    static std::int32_t order_of(float v) noexcept {
        const auto bits = std::bit_cast<std::int32_t>(v);
        return bits < 0 ? -(bits & magnitude_bits) : bits;
    }
    /// Returns the value with that order, exactly, whatever the processor does to subnormals.
    static double value_at(std::int32_t order) noexcept {
        const std::int32_t a = order < 0 ? -order : order, field = std::max<std::int32_t>(a >> 23, 1), digits = a - ((field - 1) << 23);
        const auto power = std::bit_cast<double>(static_cast<std::uint64_t>(field - step_bias + 1023) << 52);
        return static_cast<double>(order < 0 ? -digits : digits) * power;
    }

    /// Lists the numbers in their order, of equal ones the first. Returns the first code of NaN, or -1.
    int sort(const table& f) noexcept {
        int nan = -1, size = 0;
        std::int32_t order[256];
        std::uint8_t at[256];
        for (int i = 0; i < f.size(); ++i) {
            const float v = value_of(f, static_cast<std::uint32_t>(i));
            order[i] = order_of(v);
            if ((order[i] < 0 ? -order[i] : order[i]) > infinity_bits) nan = nan < 0 ? i : nan;
            else at[size++] = static_cast<std::uint8_t>(i);
        }
        std::sort(at, at + size, [&](std::uint8_t a, std::uint8_t b) { return order[a] != order[b] ? order[a] < order[b] : a < b; });
        for (int k = 0; k < size; ++k) {
            if (k != 0 && order[at[k]] == order[at[k - 1]]) continue;
            number[count] = value_of(f, at[k]);
            code[count++] = at[k];
        }
        return nan;
    }
    /// Fills `from` for a rounding that needs no chance.
    void set_from(table_ties ties, rounding r) noexcept {
        std::fill(from, from + 256, beyond_all);
        from[0] = INT32_MIN;
        for (std::size_t k = 1; k < static_cast<std::size_t>(count); ++k) from[k] = least_that_reaches(k, ties, r);
    }
    /// Returns whether x is below, at or above the middle of two numbers (-1, 0, 1). What a sum loses has the right sign in every rounding
    /// mode if the larger one comes first.
    static int side_of_middle(double a, double b, double x) noexcept {
        const bool b_first = std::fabs(b) >= std::fabs(a);
        const double large = b_first ? b : a, small = b_first ? a : b, sum = large + small, lost = small - (sum - large);
        if (2 * x != sum) return 2 * x < sum ? -1 : 1;
        return lost == 0 ? 0 : lost > 0 ? -1 : 1;
    }
    std::int32_t least_that_reaches(std::size_t k, table_ties ties, rounding r) const noexcept {
        const std::int32_t low = order_of(number[k - 1]), high = order_of(number[k]);
        const std::int32_t size_of_low = low < 0 ? -low : low, size_of_high = high < 0 ? -high : high;
        const bool low_is_odd = (code[k - 1] & 1) != 0, high_is_odd = (code[k] & 1) != 0;
        // Of two equally near to 0, the one on x's side of it is the nearer one.
        const std::int32_t toward_zero = size_of_low == size_of_high ? 0 : size_of_low < size_of_high ? high : low + 1;
        bool tie_goes_up = false;
        switch (r) {
            case rounding::half_even:
                switch (ties) {
                    case table_ties::even_code: tie_goes_up = low_is_odd && !high_is_odd; break;
                    case table_ties::lower: break;
                    case table_ties::upper: tie_goes_up = true; break;
                    case table_ties::toward_zero: tie_goes_up = size_of_high <= size_of_low; break;
                    case table_ties::away: tie_goes_up = size_of_high > size_of_low; break;
                }
                break;
            case rounding::half_away: tie_goes_up = size_of_high > size_of_low; break;
            case rounding::half_up: tie_goes_up = true; break;
            case rounding::toward_zero: return toward_zero;
            case rounding::up: return low + 1;
            case rounding::to_odd: return high_is_odd && !low_is_odd ? low + 1 : high;
            default: return high;
        }
        const double a = value_at(low), b = value_at(high);
        const auto goes_up = [&](std::int32_t x) {
            const int side = side_of_middle(a, b, value_at(x));
            return side > 0 || (side == 0 && tie_goes_up);
        };
        // It is the float next to the middle, or the one behind it; else halved from all, if the processor's modes put that elsewhere.
        std::int64_t below = low, reaches = high;
        const std::int64_t guess = order_of(static_cast<float>((a + b) / 2));
        if (guess > below && guess < reaches) {
            const auto at = static_cast<std::int32_t>(guess);
            if (!goes_up(at)) {
                if (goes_up(at + 1)) return at + 1;
                below = guess;
            } else {
                if (!goes_up(at - 1)) return at;
                reaches = guess;
            }
        }
        while (reaches - below > 1) {
            const std::int64_t middle = (below + reaches) >> 1;
            (goes_up(static_cast<std::int32_t>(middle)) ? reaches : below) = middle;
        }
        return static_cast<std::int32_t>(reaches);
    }

    /// Calls call(lane, place) for each lane.
    template <class Call>
    void each_place(vi<Arch> order, vi<Arch> words, const Call& call) const noexcept {
        alignas(64) std::int32_t x[lanes<Arch>], word[lanes<Arch>];
        std::size_t at[lanes<Arch>] = {};
        store<Arch>(x, order);
        for (std::size_t step = width / 2; step != 0; step /= 2)  // lane by lane within a step, so that none waits for another
            for (std::size_t i = 0; i < lanes<Arch>; ++i) at[i] += from[at[i] + step] <= x[i] ? step : 0;
        if (random.used) {
            store<Arch>(word, words);
            for (std::size_t i = 0; i < lanes<Arch>; ++i) at[i] += goes_up(at[i], x[i], static_cast<std::uint32_t>(word[i])) ? 1 : 0;
        }
        for (std::size_t i = 0; i < lanes<Arch>; ++i) call(i, std::min(at[i], static_cast<std::size_t>(count - 1)));
    }
    /// Returns whether x, from number `at` on, goes to the next one by chance.
    bool goes_up(std::size_t at, std::int32_t x, std::uint32_t word) const noexcept {
        const std::int32_t low = order_of(number[at]);
        if (at + 1 >= static_cast<std::size_t>(count) || x <= low) return false;
        const double a = value_at(low), b = value_at(order_of(number[at + 1])), v = value_at(x), step = b - a;
        const double size_of_a = std::fabs(a), size_of_b = std::fabs(b);
        const bool toward_low = size_of_a < size_of_b || (size_of_a == size_of_b && x < 0);
        const double many = static_cast<double>(std::uint64_t{1} << random.bits), scaled = (toward_low ? v - a : b - v) * many;
        double n = std::floor(scaled / step), rest = __builtin_fma(-n, step, scaled);
        if (rest < 0) n -= 1, rest += step;
        if (rest >= step) n += 1, rest -= step;
        const bool is_odd = std::fmod(n, 2) != 0, half = 2 * rest >= step, more = 2 * rest > step;
        if ((how == rounding::stochastic_b && half) || (how == rounding::stochastic_c && (more || (half && is_odd)))) n += 1;
        const bool goes_away = n + static_cast<double>(word >> (32 - random.bits)) >= many;
        return goes_away == toward_low;
    }
};

/// y = scale * nearest(x / scale); the scale is one for the tensor or a lane each.
template <class Arch>
struct table_step {
    const table_rules<Arch>* rules;
    vf<Arch> scale;
    bool scaled;

    const random_source& random() const noexcept { return rules->random; }

    vf<Arch> general(vf<Arch> x, vi<Arch> random) const noexcept {
        vf<Arch> q = flushed<Arch>(x, rules->least_input);
        if (scaled) q = quotient<Arch>(q, scale);
        vf<Arch> y = rules->values_of(q, random);
        if (scaled) y = y * scale;
        return flushed<Arch>(y, rules->flush_below);
    }
};

}  // namespace QK_ISA
}  // namespace qk::kernels
