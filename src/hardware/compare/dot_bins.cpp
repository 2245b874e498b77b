// SPDX-License-Identifier: Apache-2.0
// Which bins a question for a unit that multiplies and adds hits: by its exact products, its exact sum, and the result's format.
#include <algorithm>
#include <array>
#include <cmath>

#include "dot_operands.hpp"
#include "qk/compare/bins.hpp"

namespace qk::compare {

/// The operands of a question as numbers.
struct dot_bins::question {
    std::vector<term> a, b;
    std::vector<std::uint64_t> code_a, code_b, scale_a, scale_b;
    term c;
};

namespace {

int exponent_of(const term& t) {
    return static_cast<int>(std::bit_width(static_cast<std::uint64_t>(std::abs(t.significand)))) - 1 + t.exponent;
}

double product_of_significands(const term& a, const term& b) {
    return static_cast<double>(a.significand) * static_cast<double>(b.significand);
}

/// An exact sum, as digits of 32 bits that are carried once, at the end.
class exact_sum {
  public:
    static constexpr int lowest = -960;
    void add(std::int64_t v, int lsb) {
        const std::uint64_t m = v < 0 ? ~static_cast<std::uint64_t>(v) + 1 : static_cast<std::uint64_t>(v);
        const int at = lsb - lowest, shift = at % 32;
        const auto digit = static_cast<std::size_t>(at / 32);
        const std::uint64_t low = (m & 0xffffffffu) << shift, high = (m >> 32) << shift;
        const std::int64_t sign = v < 0 ? -1 : 1;
        digits_[digit] += sign * static_cast<std::int64_t>(low & 0xffffffffu);
        digits_[digit + 1] += sign * static_cast<std::int64_t>((low >> 32) + (high & 0xffffffffu));
        digits_[digit + 2] += sign * static_cast<std::int64_t>(high >> 32);
    }
    /// Adds a product of operands of up to 32 bits.
    void add(const term& a, const term& b) {
        const int lsb = a.exponent + b.exponent;
        if (std::abs(product_of_significands(a, b)) < 0x1p62) return add(a.significand * b.significand, lsb);
        add((a.significand >> 16) * b.significand, lsb + 16);  // integers of 32 bits: a's upper and lower half by b
        add((a.significand & 0xffff) * b.significand, lsb);
    }
    /// Carries; afterwards the functions below say what the magnitude is.
    void finish() {
        carry();
        negative_ = digits_.back() < 0;
        if (negative_) {
            for (std::int64_t& d : digits_) d = -d;
            carry();
        }
        for (std::size_t k = digits_.size(); k-- > 0;) {
            if (digits_[k] == 0) continue;
            exponent_ =
                static_cast<int>(32 * k + static_cast<std::size_t>(std::bit_width(static_cast<std::uint64_t>(digits_[k])))) - 1 + lowest;
            return;
        }
        zero_ = true;
    }
    bool zero() const { return zero_; }
    bool negative() const { return negative_; }
    int exponent() const { return exponent_; }
    bool bit(int exponent) const {
        const int at = exponent - lowest;
        return at >= 0 && (digits_[static_cast<std::size_t>(at / 32)] >> (at % 32) & 1) != 0;
    }
    bool any_below(int exponent) const {
        const int at = exponent - lowest;
        for (int k = 0; 32 * k < at; ++k) {
            const std::int64_t d = digits_[static_cast<std::size_t>(k)];
            if ((at - 32 * k >= 32 ? d : d & ((std::int64_t{1} << (at - 32 * k)) - 1)) != 0) return true;
        }
        return false;
    }

  private:
    void carry() {
        for (std::size_t k = 0; k + 1 < digits_.size(); ++k) {
            digits_[k + 1] += digits_[k] >> 32;
            digits_[k] &= 0xffffffff;
        }
    }
    std::array<std::int64_t, 64> digits_{};
    int exponent_ = 0;
    bool negative_ = false, zero_ = false;
};

/// Hits what special values a question has.
bool count_specials(bin_table& t, const dot_bins::question& q) {
    bool nan = false, positive = false, negative = false;
    const auto of = [&](const std::vector<term>& here, const std::vector<term>& there, int side) {
        bool meets = false, special_nan = false, special_infinity = false;
        for (std::size_t l = 0; l < here.size(); ++l) {
            if (!here[l].nan && !here[l].infinite) continue;
            t.hit(bin_kind::special_at, static_cast<int>(l), 2 * int{here[l].infinite} + side - 1);
            special_nan |= here[l].nan, special_infinity |= here[l].infinite;
            meets |= !there[l].zero();
            if (here[l].nan || there[l].nan || there[l].zero()) nan = true;
            else if (here[l].negative() != there[l].negative()) negative = true;
            else positive = true;
        }
        if (special_nan) t.hit(bin_kind::special, meets ? 3 : 0, side);
        if (special_infinity) t.hit(bin_kind::special, meets ? 6 : 1, side);
    };
    of(q.a, q.b, 1), of(q.b, q.a, 2);
    if (positive && negative) t.hit(bin_kind::special, 2);
    if (q.c.nan) t.hit(bin_kind::special, 5);
    if (q.c.infinite && (q.c.negative() ? positive : negative)) t.hit(bin_kind::special, 4);
    return nan || positive || negative || q.c.nan || q.c.infinite;
}

void count_ends(bin_table& t, const std::vector<std::uint64_t>& a, const std::vector<std::uint64_t>& b, const operand_codes& of_a,
                const operand_codes& of_b) {
    const auto kind = [](const std::vector<std::uint64_t>& codes, const operand_codes& o) {
        bool low = true, high = true, both = true;
        for (const std::uint64_t c : codes) {
            const bool l = c == o.lowest(), h = c == o.highest();
            low &= l, high &= h, both &= l || h;
        }
        return low ? 0 : high ? 1 : both ? 2 : 3;
    };
    const int x = kind(a, of_a), y = x == 3 ? 3 : kind(b, of_b);
    if (y != 3) t.hit(bin_kind::ends, x, y);
}

/// The bits of a sum of integers of up to 32 bits.
void count_whole_sum(bin_table& t, const dot_bins::question& q) {
    exact_sum sum;
    for (std::size_t l = 0; l < q.a.size(); ++l) sum.add(q.a[l], q.b[l]);
    sum.finish();
    t.hit(bin_kind::whole_sum, sum.zero() ? 0 : sum.exponent() + 1, 0, 0, sum.negative() ? 1 : 0);
}

/// Where a sum lies between numbers of the result.
void count_sum(bin_table& t, const exact_sum& sum, floating result) {
    if (sum.zero()) return t.hit(bin_kind::sum, 0, 0, 0, 0);
    const int sign = sum.negative() ? 1 : 0, e = sum.exponent();
    t.hit(bin_kind::sum, e > max_exponent(result) ? 3 : e < min_exponent(result) ? 1 : 2, 0, 0, sign);
    if (e > max_exponent(result)) return;
    const int step = std::max(e, min_exponent(result)) - result.mantissa_bits, half = step - 1;
    const int odd = sum.bit(step) ? 1 : 0;
    const bool rest = sum.any_below(half);
    if (sum.bit(half) && (!rest || !sum.bit(half - 1) || !sum.any_below(half - 1))) t.hit(bin_kind::sum_tie, rest ? 2 : 1, odd, 0, sign);
    else if (!sum.bit(half) && sum.bit(half - 1)) t.hit(bin_kind::sum_tie, 0, odd, 0, sign);
}

}  // namespace

dot_bins::dot_bins(const dot_task& task, const accumulator& by)
    : task_(task), by_(by), kept_(kept_bits(by)), corners_(dot_corners(task, kept_)) {
    for (const dot_case& c : corners_) add(c);
    table_.freeze();
}

void dot_bins::add(const dot_case& asked) {
    const operand_codes a(task_.a), b(task_.b), c(qk::format(task_.c));
    const auto [m, n, k] = asked.shape;
    std::vector<term> of_a(asked.a.size()), of_b(asked.b.size());
    for (std::size_t i = 0; i < of_a.size(); ++i) of_a[i] = a.decoded(asked.a[i]);
    for (std::size_t i = 0; i < of_b.size(); ++i) of_b[i] = b.decoded(asked.b[i]);
    const auto scaled = [](term t, const term& s) {
        if (s.nan) return term{.nan = true};
        t.significand *= s.significand, t.exponent += s.exponent;
        return t;
    };
    question q;
    q.a.resize(k), q.b.resize(k), q.code_a.resize(k), q.code_b.resize(k);
    const std::size_t blocks_a = asked.scale_a.size() / m, blocks_b = asked.scale_b.size() / n;
    q.scale_a.resize(blocks_a), q.scale_b.resize(blocks_b);
    for (std::size_t i = 0; i < m; ++i) {
        for (std::size_t s = 0; s < blocks_a; ++s) q.scale_a[s] = asked.scale_a[i * blocks_a + s];
        for (std::size_t l = 0; l < k; ++l) {
            q.code_a[l] = asked.a[i * k + l], q.a[l] = of_a[i * k + l];
            if (blocks_a != 0) q.a[l] = scaled(q.a[l], a.decoded_scale(q.scale_a[l / a.block]));
        }
        for (std::size_t j = 0; j < n; ++j) {
            for (std::size_t s = 0; s < blocks_b; ++s) q.scale_b[s] = asked.scale_b[s * n + j];
            for (std::size_t l = 0; l < k; ++l) {
                q.code_b[l] = asked.b[l * n + j], q.b[l] = of_b[l * n + j];
                if (blocks_b != 0) q.b[l] = scaled(q.b[l], b.decoded_scale(q.scale_b[l / b.block]));
            }
            const std::uint64_t code = asked.c[i * n + j];
            q.c = task_.sums_integers() ? term{static_cast<std::int64_t>(code)} : c.decoded(code);
            table_.at_case(cases_++);
            count_ends(table_, q.code_a, q.code_b, a, b);
            add_question(q);
        }
    }
}

void dot_bins::add_question(const question& q) {
    for (const std::uint64_t s : q.scale_a) table_.hit(bin_kind::operand_scale, 0, static_cast<int>(s));
    for (const std::uint64_t s : q.scale_b) table_.hit(bin_kind::operand_scale, 1, static_cast<int>(s));
    if (q.c.subnormal) table_.hit(bin_kind::subnormal, 4);
    if (count_specials(table_, q)) return;
    if (by_.sum == summation::integer) return count_whole_sum(table_, q);
    const std::size_t k = q.a.size();
    constexpr int none = -100000;
    std::vector<int> exponent(k, none);  // of products that are not zero
    int top = none, terms = 0, at_top = 0;
    for (std::size_t l = 0; l < k; ++l) {
        if (q.a[l].subnormal || q.b[l].subnormal) table_.hit(bin_kind::subnormal, int{q.a[l].subnormal} + 2 * int{q.b[l].subnormal});
        if (q.a[l].zero() || q.b[l].zero()) continue;
        exponent[l] = std::ilogb(product_of_significands(q.a[l], q.b[l])) + q.a[l].exponent + q.b[l].exponent;
        ++terms;
        at_top = exponent[l] > top ? 1 : at_top + int{exponent[l] == top};
        top = std::max(top, exponent[l]);
    }
    for (std::size_t l = 0; l < k && terms > 1; ++l) {
        const int below = top - exponent[l];
        if (exponent[l] != none && below <= kept_ + 2 && (below != 0 || at_top > 1))
            table_.hit(bin_kind::distance, static_cast<int>(l), below);
    }
    const bool has_c = q.c.significand != 0;
    const int c = has_c ? exponent_of(q.c) : top;
    if (has_c && terms != 0 && std::abs(c - top) <= kept_ + 2) table_.hit(bin_kind::addend, c - top);
    const bool fits = task_.a != qk::format(fp64) && task_.b != qk::format(fp64);
    if ((terms == 0 && !has_c) || !fits) return;
    exact_sum sum;
    for (std::size_t l = 0; l < k; ++l) {
        if (exponent[l] != none) sum.add(q.a[l], q.b[l]);
    }
    if (has_c) sum.add(q.c.significand, q.c.exponent);
    sum.finish();
    const int most = std::max(top, c), e = sum.exponent();
    if (sum.zero()) table_.hit(bin_kind::cancels, 0, 1);
    else if (e < most) table_.hit(bin_kind::cancels, std::min(most - e, kept_ + 2));
    else if (e > most) table_.hit(bin_kind::carries, e - most);
    count_sum(table_, sum, by_.result);
}

dot_case dot_bins::stimulus(std::size_t k) const {
    std::size_t q = table_.stimulus(k);
    for (const dot_case& c : corners_) {
        if (q < c.c.size()) return question_of(c, q);
        q -= c.c.size();
    }
    return {};
}

}  // namespace qk::compare
