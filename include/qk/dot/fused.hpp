// SPDX-License-Identifier: Apache-2.0
// Sums without intermediate rounding: exact, or aligned to the largest exponent and cut. docs/reference/numerics.md, equations (D1) to
// (D7).
#pragma once

#include <cmath>

#include "qk/dot/big.hpp"
#include "qk/dot/products.hpp"
#include "qk/isa.hpp"

namespace qk::detail {
inline namespace QK_ISA {

/// The sum that is carried from group to group: a register's code in its format.
struct carried {
    std::uint64_t code = 0;
    floating format = fp32;
};

/// Returns v * 2^from in units of 2^to, cut as `cut` says; zero where `lost_is_zero` and its magnitude is below a unit.
template <class Whole>
QK_INLINE constexpr Whole shift_and_cut(Whole v, int from, int to, rounding cut, events& seen, bool lost_is_zero = false) {
    constexpr int most = static_cast<int>(sizeof(Whole)) * 8 - 1;
    const int right = to - from;
    if (v == 0) return 0;
    if (right <= 0) return v << -right;
    const int s = right < most ? right : most;
    Whole low = 0;
    if (cut == rounding::toward_zero && v < 0)
        low = static_cast<Whole>((static_cast<Whole>(1) << (s - 1)) - 1 + (static_cast<Whole>(1) << (s - 1)));
    const Whole kept = (v + low) >> s;
    const bool inexact = (kept << s) != v;
    seen.inexact |= inexact;
    if (lost_is_zero && inexact && (kept == 0 || kept == -1)) return 0;
    return cut == rounding::to_odd && inexact ? kept | 1 : kept;
}

template <class Window, class Whole>
class fused_group {
  public:
    fused_group(const accumulator& a, Window& w, std::size_t first, std::size_t last, carried c, bool first_group, events& seen) noexcept
        : a_(a), w_(w), first_(first), last_(last), fraction_(c.format.mantissa_bits), c_(unpack(c.format, c.code)), seen_(seen) {
        if (first_group) c_ = unpack(c.format, flushed(a, c.format, c.code));
    }

    /// Returns the code of the group's sum in format `f`.
    std::uint64_t sum_to(floating f, rounding r) noexcept {
        const auto lanes = static_cast<std::size_t>(a_.lanes);
        term_survey all;
        for (std::size_t l = 0; l < lanes; ++l) {
            lane_[l] = survey_terms(w_, first_, last_, l, lanes);
            if (a_.product_range) lane_[l].exponent = largest_of_nonzero(l, lanes);
            all = {std::max(all.exponent, lane_[l].exponent), std::min(all.low, lane_[l].low), std::max(all.high, lane_[l].high)};
        }
        if (all.exponent >= first_special || c_.nan || c_.infinite) return special(f);
        if ((a_.product_overflow || a_.product_range) && all.exponent >= 126) {
            if (const int signs = too_large_products(); signs != 0) {
                seen_.overflow = seen_.inexact = true;
                return special_code(f, signs);
            }
        }
        if (a_.sum == summation::exact) return exact(f, r, all);
        return a_.place == place::inside ? aligned_inside(f, r, all) : aligned_after(f, r, all.exponent);
    }

  private:
    /// Calls visit(tile, position) for terms l, l + lanes, ...
    template <class Visit>
    QK_INLINE void each(std::size_t l, std::size_t lanes, Visit visit) noexcept {
        for (std::size_t i = first_, n = 0; i < last_; i += n) {
            n = w_.reach(i, last_ - i);
            const auto& t = w_.tile();
            const std::size_t o = w_.offset();
            if (lanes == 1) {
                for (std::size_t j = 0; j < n; ++j) visit(t, o + j);
            } else {
                for (std::size_t j = (l + lanes - (i - first_) % lanes) % lanes; j < n; j += lanes) visit(t, o + j);
            }
        }
    }

    // signs: 1 +Inf, 2 -Inf, 3 or 4 NaN
    std::uint64_t special_code(floating f, int signs) const noexcept {
        if (signs >= 3) return nan_of(f, a_.nan);
        return infinite_code(f, a_, signs == 2);
    }
    std::uint64_t special(floating f) noexcept {
        int signs = c_.nan ? 4 : c_.infinite ? (c_.negative ? 2 : 1) : 0;
        each(0, 1, [&](const auto& t, std::size_t i) {
            if (t.exponent[i] < first_special) return;
            signs |= t.exponent[i] >= first_nan || t.n[i] == 0 ? 4 : t.n[i] > 0 ? 1 : 2;
        });
        return special_code(f, signs);
    }
    int too_large_products() noexcept {
        int signs = 0;
        each(0, 1, [&](const auto& t, std::size_t i) {
            const auto magnitude = static_cast<uint128>(t.n[i] < 0 ? -t.n[i] : t.n[i]);
            const bool above = a_.product_overflow && t.lsb[i] + width_of(magnitude) > 128,
                       out_of_range = a_.product_range && t.exponent[i] >= 128;
            if (magnitude != 0 && (above || out_of_range)) signs |= t.n[i] > 0 ? 1 : 2;
        });
        return signs;
    }

    /// Is true of a product that counts as zero, though none of its factors is.
    template <class Tile>
    bool vanishes(const Tile& t, std::size_t i) const noexcept {
        return a_.product_range && t.exponent[i] <= -128 && t.n[i] != 0;
    }
    int largest_of_nonzero(std::size_t l, std::size_t lanes) noexcept {
        int largest = -(1 << 14);
        each(l, lanes, [&](const auto& t, std::size_t i) {
            const bool counts = t.exponent[i] >= first_special || (t.n[i] != 0 && !vanishes(t, i));
            if (counts) largest = std::max<int>(largest, t.exponent[i]);
        });
        return largest;
    }

    /// Returns the code of a sum that is zero: its sign is that of the terms where they agree (IEEE 754-2019, 6.3).
    std::uint64_t zero(floating f, rounding r) noexcept {
        if (a_.zero != zero_rule::ieee || !f.specials.negative_zero) return 0;
        const bool inside = a_.place == place::inside;
        bool negative = !inside || (c_.significand == 0 && c_.negative), positive = !inside || (c_.significand == 0 && !c_.negative);
        each(0, 1, [&](const auto& t, std::size_t i) {
            const bool none = t.n[i] == 0 || vanishes(t, i);
            negative = negative && none && t.negative[i] != 0;
            positive = positive && none && t.negative[i] == 0;
        });
        return negative || (r == rounding::down && !positive) ? sign_of(f) : 0;
    }
    std::uint64_t rounded(floating f, rounding r, int128 v, int lsb) noexcept {
        if (v == 0) return zero(f, r);
        return round_to(f, r, a_, v < 0, static_cast<uint128>(v < 0 ? -v : v), lsb, false, seen_);
    }

    Whole aligned_terms(std::size_t l, std::size_t lanes, int unit) noexcept {
        Whole sum = 0;
        each(l, lanes, [&](const auto& t, std::size_t i) {
            if (vanishes(t, i)) seen_.underflow = seen_.inexact = true;
            else sum += shift_and_cut(static_cast<Whole>(t.n[i]), t.lsb[i], unit, a_.cut, seen_, a_.lost_is_zero);
        });
        return sum;
    }
    std::uint64_t aligned_inside(floating f, rounding r, const term_survey& all) noexcept {
        const int unit = std::max(all.exponent, c_.exponent) - a_.align;
        const Whole sum = aligned_terms(0, 1, unit) +
                          shift_and_cut(static_cast<Whole>(c_.significand), c_.exponent - fraction_, unit, a_.cut, seen_, a_.lost_is_zero);
        return rounded(f, r, sum, unit);
    }
    std::uint64_t aligned_after(floating f, rounding r, int largest) noexcept {
        const auto lanes = static_cast<std::size_t>(a_.lanes);
        int128 sum = 0;
        for (std::size_t l = 0; l < lanes; ++l) {
            const int unit = lane_[l].exponent - a_.align;
            if (first_ + l < last_)
                sum += shift_and_cut(int128{aligned_terms(l, lanes, unit)}, unit, largest - a_.align, a_.join_cut, seen_);
        }
        if (a_.join == 0) return add_rounded(f, r, rounded(a_.partial, a_.partial_round, sum, largest - a_.align));
        const int top = std::max(largest, c_.exponent), unit = top - std::max(a_.join, a_.join_addend);
        int128 total = shift_and_cut(sum, largest - a_.align, top - a_.join, a_.join_cut, seen_) << (top - a_.join - unit);
        if (a_.join_drop == 0 || c_.exponent >= top - a_.join_drop)
            total += shift_and_cut(int128{c_.significand}, c_.exponent - fraction_, top - a_.join_addend, a_.join_cut, seen_)
                     << (top - a_.join_addend - unit);
        else seen_.inexact |= c_.significand != 0;
        return rounded(f, r, total, unit);
    }
    /// Adds the group's rounded sum and the accumulator.
    std::uint64_t add_rounded(floating f, rounding r, std::uint64_t group) const noexcept {
        const double x = value_of_register(a_.partial, group),
                     y = static_cast<double>(c_.significand) * power_of_two(c_.exponent - fraction_);
        const double c = c_.significand == 0 && c_.negative ? -0.0 : y;
        const double s = add_to_odd(c, x);
        if (s == 0 && a_.zero != zero_rule::ieee) return 0;
        if (s == 0 && r == rounding::down && (c != 0 || std::signbit(c) || std::signbit(x))) return sign_of(f);
        return round_to(f, r, a_, s, seen_);
    }

    std::uint64_t exact(floating f, rounding r, const term_survey& all) noexcept {
        const bool inside = a_.place == place::inside;
        const int own = c_.exponent - fraction_;
        const bool with_c = inside && c_.significand != 0;
        const int low = with_c ? std::min(all.low, own) : all.low, high = with_c ? std::max(all.high, own) : all.high;
        if (low > high) return inside ? zero(f, r) : add_rounded(f, r, rounded(a_.partial, a_.partial_round, 0, 0));
        constexpr int product_bits = sizeof(typename Window::whole) == 8 ? 64 : 100;
        std::uint64_t code = 0;
        const floating to = inside ? f : a_.partial;
        const rounding how = inside ? r : a_.partial_round;
        const int more = width_of(std::uint64_t{last_ - first_}) + 1;
        if (sizeof(typename Window::whole) == 8 && high - low + std::max(w_.product_bits(), fraction_ + 1) + more < 63) {
            std::int64_t sum = with_c ? c_.significand << (own - low) : 0;
            each(0, 1,
                 [&](const auto& t, std::size_t i) { sum += static_cast<std::int64_t>(t.n[i]) << (t.n[i] == 0 ? 0 : t.lsb[i] - low); });
            code = rounded(to, how, sum, low);
        } else if (high - low + product_bits + more < 127) {
            int128 sum = with_c ? int128{c_.significand} << (own - low) : int128{0};
            each(0, 1, [&](const auto& t, std::size_t i) { sum += t.n[i] == 0 ? int128{0} : int128{t.n[i]} << (t.lsb[i] - low); });
            code = rounded(to, how, sum, low);
        } else {
            big_sum sum;
            if (with_c) sum.add(c_.significand, own);
            each(0, 1, [&](const auto& t, std::size_t i) { sum.add(t.n[i], t.lsb[i]); });
            const auto m = sum.magnitude();
            code = m.magnitude == 0 ? zero(to, how) : round_to(to, how, a_, sum.negative(), m.magnitude, m.lsb, m.more, seen_);
        }
        return inside ? code : add_rounded(f, r, code);
    }

    const accumulator& a_;
    Window& w_;
    std::size_t first_, last_;
    int fraction_;
    unpacked c_;
    events& seen_;
    term_survey lane_[64];
};

/// Adds group after group. Returns the code of the result, in format a.result.
template <class Window>
std::uint64_t fused_sum(const accumulator& a, Window& w, std::uint64_t c, events& seen) noexcept {
    const std::size_t count = w.terms(), wanted = a.groups == 0 ? count : static_cast<std::size_t>(a.groups / a.bundle),
                      step = wanted == 0 ? 1 : wanted;
    carried sum{c, a.addend};
    const bool narrow = sizeof(typename Window::whole) == 8 && a.align <= 40 && step <= std::size_t{1} << 20;
    std::size_t i = 0;
    do {
        const std::size_t last = std::min(count, i + step);
        const bool final = last == count;
        const floating f = final ? a.result : a.partial;
        const rounding r = final ? a.round : a.partial_round;
        const auto run = [&](auto whole) { return fused_group<Window, decltype(whole)>(a, w, i, last, sum, i == 0, seen).sum_to(f, r); };
        sum = {narrow ? run(std::int64_t{}) : run(int128{}), f};
        i = last;
    } while (i < count);
    return sum.code;
}

}  // namespace QK_ISA
}  // namespace qk::detail
