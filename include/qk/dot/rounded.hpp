// SPDX-License-Identifier: Apache-2.0
// Sums that are rounded at every step: one after the other, or in pairs. docs/reference/numerics.md, equations (D8) to (D10).
#pragma once

#include <cmath>

#include "qk/dot/products.hpp"
#include "qk/isa.hpp"

namespace qk::detail {
inline namespace QK_ISA {

/// Terms as doubles: exact, since a product has at most 53 bits here (check_operands) and exponents far inside a double's.
struct term_doubles {
    double value[dot_tile];
    bool floats = false;  ///< every value is a float32, too
};
template <class Window>
void to_doubles(const Window& w, std::size_t n, term_doubles& d) noexcept {
    const auto& t = w.tile();
    const std::size_t o = w.offset();
    bool special = false, floats = true;
    for (std::size_t i = 0; i < n; ++i) {
        const bool finite = t.exponent[o + i] < first_special;
        special |= !finite;
        const double unit = std::bit_cast<double>(static_cast<std::uint64_t>((finite ? t.lsb[o + i] : 0) + 1023) << 52);
        const double magnitude = static_cast<double>(static_cast<std::int64_t>(t.n[o + i])) * unit;
        d.value[i] = t.n[o + i] == 0 && t.negative[o + i] != 0 ? -0.0 : magnitude;
        floats &= static_cast<double>(static_cast<float>(d.value[i])) == d.value[i];
    }
    d.floats = floats && !special;
    for (std::size_t i = 0; special && i < n; ++i) {
        if (t.exponent[o + i] < first_special) continue;
        const bool nan = t.exponent[o + i] >= first_nan || t.n[o + i] == 0;
        d.value[i] = nan              ? std::numeric_limits<double>::quiet_NaN()
                     : t.n[o + i] > 0 ? std::numeric_limits<double>::infinity()
                                      : -std::numeric_limits<double>::infinity();
    }
}

/// Adds as a device does and rounds. `Simple`: float32, half to even, with IEEE 754's results; nothing is counted.
template <bool Simple>
struct rounding_adder {
    const accumulator& a;
    events& seen;

    QK_INLINE double round(double v) const noexcept {
        if constexpr (Simple) return static_cast<double>(static_cast<float>(v));
        return value_of_register(a.partial, round_to(a.partial, a.partial_round, a, v, seen));
    }
    QK_INLINE double add(double x, double y) const noexcept {
        const double s = add_to_odd(x, y);
        if constexpr (!Simple) {
            if (s == 0) {
                if (a.zero == zero_rule::exact_positive || a.zero == zero_rule::positive) return 0;
                const bool positive = x == 0 && y == 0 && !std::signbit(x) && !std::signbit(y);
                if (a.partial_round == rounding::down && !positive) return -0.0;
            }
        }
        return round(s);
    }
    QK_INLINE double product(double p) const noexcept {
        const double q = a.zero == zero_rule::positive_products || a.zero == zero_rule::positive ? p + 0.0 : p;
        return a.fused ? q : round(q);
    }
};

/// Adds terms in pairs as they come: `sum` holds sums of 2^level terms. finish() adds those that are left, from the last one on.
struct pair_stack {
    double sum[40] = {0};
    int level[40];
    int size = 0;

    template <class Adder>
    QK_INLINE void push(const Adder& adder, double v) noexcept {
        sum[size] = v;
        level[size++] = 0;
        while (size > 1 && level[size - 1] == level[size - 2]) {
            sum[size - 2] = adder.add(sum[size - 2], sum[size - 1]);
            ++level[size - 2];
            --size;
        }
    }
    template <class Adder>
    QK_INLINE double finish(const Adder& adder) noexcept {
        while (size > 1) {
            sum[size - 2] = adder.add(sum[size - 2], sum[size - 1]);
            --size;
        }
        return sum[0];
    }
};

template <bool Simple, class Window>
class rounded_groups {
  public:
    rounded_groups(const accumulator& a, Window& w, events& seen) noexcept : a_(a), w_(w), adder_{a, seen} {}

    double sum(double c) noexcept {
        const std::size_t count = w_.terms(),
                          step = a_.groups == 0 ? (count == 0 ? 1 : count) : static_cast<std::size_t>(a_.groups / a_.bundle);
        for (std::size_t i = 0; i < count; i += step) c = group(i, std::min(count, i + step), c);
        return c;
    }

  private:
    double group(std::size_t first, std::size_t last, double c) noexcept {
        if (a_.place == place::inside) return lane(first, last, 0, 1, &c);
        const auto lanes = std::min(static_cast<std::size_t>(a_.lanes), last - first);
        if (lanes == 1) return adder_.add(c, lane(first, last, 0, 1, nullptr));
        pair_stack pairs;
        double sum = 0;
        const std::size_t chunk = divide_up(last - first, a_.lanes);
        for (std::size_t l = 0; l < lanes; ++l) {
            const std::size_t from = first + l * chunk;
            if (a_.chunked && from >= last) break;
            const double v = a_.chunked ? lane(from, std::min(last, from + chunk), 0, 1, nullptr) : lane(first, last, l, lanes, nullptr);
            if (a_.sum == summation::pairwise) pairs.push(adder_, v);
            else sum = l == 0 ? v : adder_.add(sum, v);
        }
        return adder_.add(c, a_.sum == summation::pairwise ? pairs.finish(adder_) : sum);
    }

    double lane(std::size_t first, std::size_t last, std::size_t l, std::size_t lanes, const double* c) noexcept {
        pair_stack pairs;
        const bool in_pairs = a_.sum == summation::pairwise;
        bool begun = c != nullptr;
        double sum = begun ? *c : 0;
        if (begun && in_pairs) pairs.push(adder_, sum);
        for (std::size_t i = first, n = 0; i < last; i += n) {
            n = w_.reach(i, last - i);
            to_doubles(w_, n, terms_);
            if (a_.reverse) std::reverse(terms_.value, terms_.value + n);
            std::size_t j = (l + lanes - (i - first) % lanes) % lanes;
            if (in_pairs) {
                for (; j < n; j += lanes) pairs.push(adder_, adder_.round(adder_.product(terms_.value[j])));
                continue;
            }
            if (!begun && j < n) {
                sum = adder_.round(adder_.product(terms_.value[j]));
                begun = true;
                j += lanes;
            }
            sum = chain(sum, j, n, lanes);
        }
        return in_pairs ? pairs.finish(adder_) : sum;
    }

    /// Returns sum + terms j, j + lanes, ..., added one after the other.
    double chain(double sum, std::size_t j, std::size_t n, std::size_t lanes) noexcept {
        if constexpr (Simple) {
            const double plus = a_.zero == zero_rule::positive_products ? 0.0 : -0.0;
            if (terms_.floats || !a_.fused) {  // then float32's own sum is the rounded one
                auto s = static_cast<float>(sum);
                for (; j < n; j += lanes) s += static_cast<float>(terms_.value[j] + plus);
                return static_cast<double>(s);
            }
        }
        for (; j < n; j += lanes) sum = adder_.add(sum, adder_.product(terms_.value[j]));
        return sum;
    }

    const accumulator& a_;
    Window& w_;
    rounding_adder<Simple> adder_;
    term_doubles terms_;
};

/// Returns the code of the result, in format a.result.
template <class Window>
std::uint64_t rounded_sum(const accumulator& a, Window& w, std::uint64_t c, bool counted, events& seen) noexcept {
    c = flushed(a, a.addend, c);
    const bool simple = !counted && a.partial == fp32 && a.partial_round == rounding::half_even && !flushes_results(a) &&
                        a.overflow == too_large::ieee && (a.zero == zero_rule::ieee || a.zero == zero_rule::positive_products);
    const double start = value_of_register(a.addend, c);
    const double sum = simple ? rounded_groups<true, Window>(a, w, seen).sum(start) : rounded_groups<false, Window>(a, w, seen).sum(start);
    if (a.result == fp32 && a.partial == fp32 && simple && a.round == rounding::half_even) {
        const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(sum));
        return (bits & 0x7fffffffu) > 0x7f800000u ? nan_of(fp32, a.nan) : bits;
    }
    return round_to(a.result, a.round, a, sum, seen);
}

}  // namespace QK_ISA
}  // namespace qk::detail
