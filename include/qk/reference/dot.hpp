// SPDX-License-Identifier: Apache-2.0
// The oracle of dot products: it does what every field of qk::accumulator says, in whole numbers of 128 bits and more, and shares no line
// with the kernels in qk/dot/. docs/reference/numerics.md, (D1) to (D14).
#pragma once

#include "qk/exact/begin.hpp"

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "qk/dot/accumulator.hpp"
#include "qk/isa.hpp"
#include "qk/reference/codes.hpp"
#include "qk/reference/real.hpp"

namespace qk::reference {
inline namespace QK_ISA {

/// The codes of one row: blocks begin at its first element.
struct dot_row {
    std::vector<std::uint64_t> elements;
    std::vector<std::uint32_t> scales, shifts;  ///< of blocks and sub-blocks
    float tensor = 1;
    std::int64_t zero_point = 0;
};

/// A number of the oracle: finite, infinite or NaN.
struct dot_number {
    real x{};
    bool infinite = false, nan = false;
    int exponent = -126;     ///< of the leading bit in its format; subnormals have the smallest one, zeros -126
    int scale_exponent = 0;  ///< the part of `exponent` that comes from the block's scale
};

class dot_oracle {
  public:
    using number = dot_number;
    dot_oracle(const format& a, const format& b, const accumulator& how) : a_(a), b_(b), how_(how) {
        const bool wholes = is_integer_format(a) && is_integer_format(b);
        based_ = is_block_format(a) || is_block_format(b) || wholes;
    }

    /// Return the numbers of a row of A and of a column of B: each is taken apart once, however many sums it is part of.
    std::vector<number> row_of_a(const dot_row& r) const { return numbers(a_, r); }
    std::vector<number> column_of_b(const dot_row& r) const { return numbers(b_, r); }

    /// Returns the result as a value of how.result (NaN in its canonical form). `c` is a value of how.addend.
    double sum(std::span<const number> a, std::span<const number> b, double c) {
        products(a, b);
        const std::span<const number> terms = terms_;
        number acc = of_register(how_.addend, c, flush_of_c(how_));
        const std::size_t all = std::max<std::size_t>(terms.size(), 1),
                          group = how_.groups == 0 ? all : static_cast<std::size_t>(how_.groups / how_.bundle);
        const bool stepwise = how_.sum == summation::sequential || how_.sum == summation::pairwise;
        for (std::size_t i = 0; i < all; i += group) {
            const std::span<const number> part = terms.subspan(i, std::min(group, terms.size() - i));
            const bool last = i + group >= terms.size();
            acc =
                stepwise ? stepped(part, acc) : fused(part, acc, last ? how_.result : how_.partial, last ? how_.round : how_.partial_round);
        }
        return held(value(stepwise ? rounded(acc, how_.result, how_.round) : acc));
    }

  private:
    static constexpr int lowest_exponent = -100000;

    // ---- operands

    number of_register(floating f, double v, input_flush flush) const {
        number n;
        n.nan = std::isnan(v);
        n.infinite = std::isinf(v);
        if (n.nan || n.infinite) {
            n.x.negative = std::signbit(v);
            return n;
        }
        v = read(f, v, flush);
        n.x = real::of(v);
        if (v != 0) n.exponent = std::max(n.x.exponent(), min_exponent(f));
        return n;
    }
    static double read(floating f, double v, input_flush flush) {
        if (flush == input_flush::none || v == 0 || std::fabs(v) >= min_normal(f)) return v;
        return flush == input_flush::kept_sign && v < 0 ? -0.0 : 0.0;
    }
    number element(floating f, std::uint64_t code) const {
        if (f == fp64) return of_register(fp64, std::bit_cast<double>(code), input_flush::none);
        const int drop = how_.operand_bits == 0 ? 0 : std::max(0, f.mantissa_bits - how_.operand_bits);
        const double v = reference::value_of(f, static_cast<std::uint32_t>(code >> drop << drop));  // NaN whose bits are all dropped is Inf
        return of_register(f, v, flush_of_operands(how_));
    }
    static number whole(double v, int exponent) { return {real::of(v), false, false, exponent, 0}; }

    number element_at(integer f, const dot_row& r, std::size_t i) const {
        const auto code = static_cast<std::uint32_t>(r.elements[i]);
        const std::int64_t q = f.is_signed ? sign_extend(code, f.bits) : std::int64_t{code};
        return whole(static_cast<double>(q - r.zero_point), std::max(0, f.is_signed ? f.bits - 2 : f.bits - 1));
    }
    number element_at(floating f, const dot_row& r, std::size_t i) const { return element(f, r.elements[i]); }
    number element_at(const table& f, const dot_row& r, std::size_t i) const {
        return element(fp32, std::bit_cast<std::uint32_t>(value_of(f, static_cast<std::uint32_t>(r.elements[i]))));
    }
    number element_at(const block_float& f, const dot_row& r, std::size_t i) const {
        const auto bits = static_cast<std::uint32_t>(r.elements[i]);
        const double v = f.bump ? static_cast<double>(sign_extend(bits, f.mantissa_bits + 1)) : from_sign_magnitude(bits, f.mantissa_bits);
        const auto code = static_cast<int>(r.scales[i / static_cast<std::size_t>(f.block_size)]);
        const int bias = (1 << (f.exponent_bits - 1)) - 1;
        return scaled(whole(v * power_of_two(1 - f.mantissa_bits), 0), code == (1 << f.exponent_bits) - 1, 1, code - bias,
                      !f.bump && bits >> f.mantissa_bits != 0);
    }
    number element_at(const microexponent& f, const dot_row& r, std::size_t i) const {
        const auto block = static_cast<std::size_t>(f.block_size);
        const auto code = static_cast<int>(r.scales[i / block]);
        const auto shift = static_cast<int>(r.shifts[i / block * sub_blocks(f) + i % block / static_cast<std::size_t>(f.sub_block_size)]);
        const auto bits = static_cast<std::uint32_t>(r.elements[i]);
        const double v = from_sign_magnitude(bits, f.mantissa_bits) * power_of_two(1 - f.mantissa_bits - shift);
        return scaled(whole(v, -shift), code == 255, 1, code - 127, bits >> f.mantissa_bits != 0);
    }
    number element_at(const microscaling& f, const dot_row& r, std::size_t i) const {
        const std::uint32_t s = r.scales[i / static_cast<std::size_t>(f.block_size)];
        if (!has_integer_elements(f)) return scaled(element(f.element, r.elements[i]), s == 255, 1, static_cast<int>(s) - 127, false);
        const std::int64_t q = sign_extend(static_cast<std::uint32_t>(r.elements[i]), f.integer_bits);
        return scaled(whole(static_cast<double>(q) * power_of_two(2 - f.integer_bits), 0), s == 255, 1, static_cast<int>(s) - 127, false);
    }
    number element_at(const nvfloat& f, const dot_row& r, std::size_t i) const {
        const double s = std::fabs(reference::value_of(f.scale, r.scales[i / static_cast<std::size_t>(f.block_size)]));
        const bool nan = !std::isfinite(s) || (how_.sum == summation::exact && !std::isfinite(r.tensor));
        const double t = how_.sum == summation::exact && !nan ? static_cast<double>(r.tensor) : 1.0;
        const int e = nan ? 0 : s == 0 ? -126 : std::max(std::ilogb(s), min_exponent(f.scale));
        return scaled(element(f.element, r.elements[i]), nan, nan ? 1 : s / power_of_two(e) * t, e, false);
    }
    /// Returns n times significand times 2^e. With `minus_zero` a zero n becomes -0.
    static number scaled(number n, bool nan, double significand, int e, bool minus_zero) {
        if (minus_zero && n.x.zero()) n.x.negative = true;
        n.nan = n.nan || nan;
        n.exponent += e;
        n.scale_exponent = e;
        const bool zero = n.x.zero();
        if (n.nan || n.infinite) return n;
        const bool negative = n.x.negative != std::signbit(significand);
        if (!zero && significand != 0) n.x = n.x * real::of(std::ldexp(significand, e));
        if (significand == 0) n.x = real{};
        n.x.negative = negative;
        return n;
    }

    std::vector<number> numbers(const format& f, const dot_row& r) const {
        std::vector<number> n(r.elements.size());
        qk::detail::with_family(f, [&](const auto& g) {
            for (std::size_t i = 0; i < n.size(); ++i) n[i] = element_at(g, r, i);
        });
        return n;
    }
    void products(std::span<const number> a, std::span<const number> b) {
        terms_.clear();
        const auto bundle = static_cast<std::size_t>(how_.bundle);
        for (std::size_t i = 0; i < a.size(); i += bundle) {
            number& s = terms_.emplace_back();
            product(a[i], b[i], s);
            if (how_.product_range && !s.nan && !s.infinite) {
                if (s.exponent <= -128) s.x = real{0, 0, s.x.negative};
                if (s.x.zero()) s.exponent = lowest_exponent;
            }
            if (bundle == 1) continue;
            int largest = s.exponent;
            const int base = s.scale_exponent;
            for (std::size_t j = i + 1; j < std::min(a.size(), i + bundle); ++j) {
                number next;
                product(a[j], b[j], next);
                largest = std::max(largest, next.exponent);
                s = plus(s, next);
            }
            s.exponent = based_ ? base : largest;
        }
    }
    /// Computes p = a * b in place.
    static void product(const number& a, const number& b, number& p) {
        p.exponent = a.exponent + b.exponent;
        p.scale_exponent = a.scale_exponent + b.scale_exponent;
        p.nan = a.nan || b.nan || (a.infinite && !b.infinite && b.x.zero()) || (b.infinite && !a.infinite && a.x.zero());
        p.infinite = !p.nan && (a.infinite || b.infinite);
        if (!p.nan && !p.infinite && !a.x.zero() && !b.x.zero()) p.x = a.x * b.x;
        p.x.negative = a.x.negative != b.x.negative;
    }

    // ---- arithmetic

    static number plus(const number& a, const number& b) {
        number s;
        s.nan = a.nan || b.nan || (a.infinite && b.infinite && a.x.negative != b.x.negative);
        s.infinite = !s.nan && (a.infinite || b.infinite);
        if (s.infinite) s.x.negative = a.infinite ? a.x.negative : b.x.negative;
        if (!s.nan && !s.infinite) s.x = a.x + b.x;
        return s;
    }
    static real cut(const real& x, int e, rounding r) {
        return r == rounding::down ? x.floored(e) : r == rounding::to_odd ? x.with_odd_end(e) : x.truncated(e);
    }
    real cut_term(const real& x, int e) const { return how_.lost_is_zero && x.truncated(e).zero() ? x.truncated(e) : cut(x, e, how_.cut); }

    /// Returns n rounded into a register; how_ says what overflow, underflow and zero become.
    number rounded(const number& n, floating f, rounding r) const {
        if (n.nan || n.infinite) return n;
        number y;
        y.x.negative = n.x.negative && how_.zero != zero_rule::positive;
        if (n.x.zero()) return y;
        const int at = std::max(n.x.exponent(), min_exponent(f)) - f.mantissa_bits, drop = at - n.x.low;
        real kept = n.x.truncated(at);
        int side = -2;  // the rest against half a step: none, below, equal, above
        if (drop > 0) {
            const whole_128 rest = drop < 128 ? n.x.digits - (kept.digits << drop) : n.x.digits,
                            half = drop <= 128 ? whole_128{1} << (drop - 1) : ~whole_128{0};
            side = rest == 0 ? -2 : rest < half ? -1 : rest > half ? 1 : 0;
        }
        const auto binades = static_cast<unsigned>(std::max(n.x.exponent(), min_exponent(f)) - min_exponent(f));
        const bool odd = drop >= 0 && ((kept.digits + (f.mantissa_bits == 0 ? binades : 0)) & 1) != 0;  // of the code
        const bool away =
            side != -2 &&
            ((r == rounding::half_even && (side == 1 || (side == 0 && odd))) || (r == rounding::half_away && side >= 0) ||
             (r == rounding::half_up && (side == 1 || (side == 0 && !n.x.negative))) || (r == rounding::up && !n.x.negative) ||
             (r == rounding::down && n.x.negative) || (r == rounding::to_odd && !odd));
        if (away) ++kept.digits;
        if (kept.zero()) return y;
        number k;
        k.x = kept;
        if (std::fabs(value(k)) > max_value(f) || kept.exponent() > max_exponent(f)) {
            const bool stops = r == rounding::toward_zero || r == rounding::to_odd || (r == rounding::up && n.x.negative) ||
                               (r == rounding::down && !n.x.negative);
            y.infinite = how_.overflow == too_large::infinity || (how_.overflow == too_large::ieee && !stops);
            y.x.negative = n.x.negative;
            if (!y.infinite) y.x = real::of(n.x.negative ? -max_value(f) : max_value(f));
            y.exponent = max_exponent(f);
            return y;
        }
        if (flushes_results(how_) && kept.exponent() < min_exponent(f)) return y;
        if (how_.flush_tiny && n.x.exponent() < min_exponent(f)) {  // rounded once more, as if exponents had no end
            floating endless = f;
            endless.exponent_bits = 11, endless.bias = 1023;
            accumulator plain = how_;
            plain.flush_tiny = false;
            if (dot_oracle(a_, b_, plain).rounded(n, endless, r).x.exponent() < min_exponent(f)) return y;
        }
        y.x = kept;
        y.exponent = std::max(kept.exponent(), min_exponent(f));
        return y;
    }
    static double value(const number& n) {
        if (n.nan) return std::numeric_limits<double>::quiet_NaN();
        const double v = n.infinite ? std::numeric_limits<double>::infinity()
                                    : std::ldexp(static_cast<double>(static_cast<std::uint64_t>(n.x.digits)), n.x.low);
        return n.x.negative ? -v : v;
    }

    /// Returns v as a result's format has it: some have no Inf, no NaN or no -0.
    double held(double v) const {
        const floating f = how_.result;
        if (std::isinf(v) && !has_infinity(f))
            v = how_.overflow != too_large::saturate && has_nan(f) ? std::numeric_limits<double>::quiet_NaN()
                                                                   : std::copysign(max_value(f), v);
        if (std::isnan(v) && !has_nan(f)) v = max_value(f);
        return v == 0 && !has_negative_zero(f) ? 0.0 : v;
    }

    // ---- sums

    struct signs {  ///< of the terms of a sum that is zero
        bool negative = true, positive = true;
        void look(const number& t) {
            negative = negative && t.x.zero() && t.x.negative;
            positive = positive && t.x.zero() && !t.x.negative;
        }
    };
    /// Rounds the sum s of `terms`, and gives a zero its sign. `acc` is null where it is not a term of the sum.
    number finish(std::span<const number> terms, const number* acc, const number& s, floating f, rounding r) const {
        if (!s.x.zero()) return rounded(s, f, r);
        signs all;
        for (const number& t : terms) all.look(t);
        if (acc != nullptr) all.look(*acc);
        number z;
        z.x.negative = how_.zero == zero_rule::ieee && (all.negative || (r == rounding::down && !all.positive));
        return z;
    }

    number fused(std::span<const number> terms, const number& acc, floating f, rounding r) const {
        number sum = specials(terms, acc);
        if (sum.nan || sum.infinite) return sum;
        const bool inside = how_.place == place::inside;
        const number* joined = inside ? &acc : nullptr;
        if (how_.sum == summation::exact) {
            long_sum exact;
            for (const number& t : terms) exact.add(t.x);
            if (inside) exact.add(acc.x);
            sum.x = exact.total();
            if (inside) return finish(terms, joined, sum, f, r);
            return added(acc, finish(terms, nullptr, sum, how_.partial, how_.partial_round), f, r);
        }
        if (!inside) return aligned_after(terms, acc, f, r);
        const int unit = std::max(largest(terms, 0, 1), acc.exponent) - how_.align;
        for (const number& t : terms) sum.x = sum.x + cut_term(t.x, unit);
        sum.x = sum.x + cut_term(acc.x, unit);
        return finish(terms, joined, sum, f, r);
    }
    /// Returns the sum of infinities and NaN alone, zero where there are none. Products that are too large count as infinite if how_ says
    /// so.
    number specials(std::span<const number> terms, const number& acc) const {
        number sum = whole(0, 0);
        const auto take = [&](const number& t) {
            if (t.nan || t.infinite) sum = plus(sum, t);
        };
        for (const number& t : terms) take(t);
        take(acc);
        if (sum.nan || sum.infinite) return sum;
        for (const number& t : terms) {
            const bool above = how_.product_overflow && t.x.exponent() >= 128, out_of_range = how_.product_range && t.exponent >= 128;
            if (t.x.zero() || !(above || out_of_range)) continue;
            number large;
            large.infinite = true;
            large.x.negative = t.x.negative;
            sum = plus(sum, large);
        }
        return sum;
    }
    static int largest(std::span<const number> terms, std::size_t lane, std::size_t lanes) {
        int e = lowest_exponent;
        for (std::size_t i = lane; i < terms.size(); i += lanes) e = std::max(e, terms[i].exponent);
        return e;
    }
    number aligned_after(std::span<const number> terms, const number& acc, floating f, rounding r) const {
        const auto lanes = static_cast<std::size_t>(how_.lanes);
        const int top = terms.empty() ? -(1 << 14) : largest(terms, 0, 1);
        number sum;
        for (std::size_t l = 0; l < std::min(lanes, terms.size()); ++l) {
            real lane;
            const int e = largest(terms, l, lanes);
            for (std::size_t i = l; i < terms.size(); i += lanes) lane = lane + cut_term(terms[i].x, e - how_.align);
            sum.x = sum.x + cut(lane, top - how_.align, how_.join_cut);
        }
        if (how_.join == 0) return added(acc, finish(terms, nullptr, sum, how_.partial, how_.partial_round), f, r);
        const int both = std::max(top, acc.exponent);
        sum.x = cut(sum.x, both - how_.join, how_.join_cut);
        if (how_.join_drop == 0 || acc.exponent >= both - how_.join_drop)
            sum.x = sum.x + cut(acc.x, both - how_.join_addend, how_.join_cut);
        return finish(terms, nullptr, sum, f, r);
    }
    /// Returns the sum of two registers, rounded.
    number added(const number& a, const number& b, floating f, rounding r) const {
        number s = plus(a, b);
        if (s.nan || s.infinite || !s.x.zero()) return rounded(s, f, r);
        const bool exact_zero_is_positive = how_.zero == zero_rule::exact_positive || how_.zero == zero_rule::positive;
        const bool both_positive = a.x.zero() && b.x.zero() && !a.x.negative && !b.x.negative;
        s.x.negative = !exact_zero_is_positive && (s.x.negative || (r == rounding::down && !both_positive));
        return s;
    }

    number step(const number& a, const number& b) const { return added(a, b, how_.partial, how_.partial_round); }
    number term(number p) const {
        if (p.x.zero() && !p.nan && !p.infinite && (how_.zero == zero_rule::positive_products || how_.zero == zero_rule::positive))
            p.x.negative = false;
        return how_.fused ? p : rounded(p, how_.partial, how_.partial_round);
    }
    /// Adds neighbours, then neighbours of those sums; what has no neighbour waits for the next round.
    number in_pairs(std::vector<number>& v) const {
        while (v.size() > 1) {
            const std::size_t pairs = v.size() / 2;
            for (std::size_t i = 0; i < pairs; ++i) v[i] = step(v[2 * i], v[2 * i + 1]);
            if (v.size() % 2 != 0) v[pairs] = v.back();
            v.resize((v.size() + 1) / 2);
        }
        return v[0];
    }
    number one_by_one(const std::vector<number>& v) const {
        number s = v[0];
        for (std::size_t i = 1; i < v.size(); ++i) s = step(s, v[i]);
        return s;
    }
    number stepped(std::span<const number> terms, const number& acc) {
        if (terms.empty()) return acc;
        const bool inside = how_.place == place::inside, pairs = how_.sum == summation::pairwise;
        const auto lanes = std::min(static_cast<std::size_t>(how_.lanes), terms.size());
        sums_.clear();
        const std::size_t chunk = (terms.size() + static_cast<std::size_t>(how_.lanes) - 1) / static_cast<std::size_t>(how_.lanes);
        for (std::size_t l = 0; l < lanes; ++l) {
            lane_.clear();
            if (inside) lane_.push_back(acc);
            const std::size_t from = how_.chunked ? l * chunk : l, to = how_.chunked ? std::min(terms.size(), from + chunk) : terms.size();
            if (from >= terms.size()) break;
            for (std::size_t i = from; i < to; i += how_.chunked ? 1 : lanes) {
                const number t = term(terms[how_.reverse ? terms.size() - 1 - i : i]);
                lane_.push_back(pairs || lane_.empty() ? rounded(t, how_.partial, how_.partial_round) : t);
            }
            sums_.push_back(pairs ? in_pairs(lane_) : one_by_one(lane_));
        }
        const number sum = pairs ? in_pairs(sums_) : one_by_one(sums_);
        return inside ? sum : step(acc, sum);
    }

    const format &a_, &b_;
    const accumulator& how_;
    bool based_ = false;  ///< bundles have the exponent of their scales
    std::vector<number> terms_, lane_, sums_;
};

/// Returns D = a[0] b[0] + ... + c for floating sums, as a double (exact: registers have at most 53 bits).
inline double dot(const format& fa, const format& fb, const accumulator& how, const dot_row& a, const dot_row& b, double c) {
    dot_oracle oracle(fa, fb, how);
    return oracle.sum(oracle.row_of_a(a), oracle.column_of_b(b), c);
}

}  // namespace QK_ISA
}  // namespace qk::reference

#include "qk/exact/end.hpp"
