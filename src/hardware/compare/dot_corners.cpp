// SPDX-License-Identifier: Apache-2.0
// Questions for a unit that multiplies and adds which random ones do not meet, in groups of rows and columns.
#include <algorithm>
#include <array>
#include <functional>

#include "dot_operands.hpp"
#include "qk/compare/bins.hpp"

namespace qk::compare {
namespace {

using code = std::uint64_t;

/// One operand of a sum: its elements and the scales of its blocks.
struct line {
    std::vector<code> elements, scales;
};

class corners {
  public:
    corners(const dot_task& task, int kept, std::size_t places)
        : task_(task), a_(task.a), b_(task.b), c_(qk::format(task.c)), k_(task.k), reach_(kept + 2), whole_(task.sums_integers()) {
        // Places are spread over all; the first, the last and neighbours are among them.
        for (std::size_t n = 0; n < std::min(k_, places); ++n)
            places_.push_back(k_ <= places ? n : n % 2 == 0 ? n / 2 * (2 * k_ / places) : k_ - 1 - n / 2 * (2 * k_ / places));
        std::sort(places_.begin(), places_.end());
        places_.erase(std::unique(places_.begin(), places_.end()), places_.end());
    }
    std::vector<dot_case> all() {
        specials();
        ends();
        zeros();
        if (!whole_) cancellations();
        carries();
        if (!whole_ && task_.has_c) ties(), addends();
        if (has_floats() && task_.has_c) tied_products(), ends_of_products();
        if (!whole_) sums_of_ties(), subnormals();
        scales();
        if (!whole_ && k_ > 1) distances();
        return std::move(groups_);
    }

  private:
    /// Returns a line of one code, under scales of 1.
    line filled(const operand_codes& o, code with) const {
        line l{std::vector<code>(k_, with), {}};
        if (o.block != 0) l.scales.assign(k_ / o.block, unit_scale(&o == &a_ ? task_.a : task_.b));
        return l;
    }
    line ones(const operand_codes& o, bool negative = false) const {
        return filled(o, o.power(std::clamp(0, o.least, o.most), negative && o.has_sign()));
    }
    line zeros(const operand_codes& o, bool negative = false) const { return filled(o, o.zero(negative)); }
    static line with(line l, std::size_t at, code here) {
        l.elements[at] = here;
        return l;
    }
    /// Returns `l` with 2^(most - below) at a place, where the format can say it: in the element, or with a lower scale of its block.
    std::optional<line> below(const operand_codes& o, line l, std::size_t at, int below, bool negative, bool scale_moves,
                              bool odd = false) const {
        if (negative && !o.has_sign()) negative = false;
        const int in_element = scale_moves ? std::min(below, o.most - o.normal) : below, rest = below - in_element;
        if (o.most - in_element < o.least) return std::nullopt;
        l.elements[at] = o.power(o.most - in_element, negative, odd);
        if (rest == 0) return l;
        const auto lower = o.scale_power(-rest);
        if (!lower) return std::nullopt;
        l.scales[at / o.block] = *lower;
        return l;
    }
    bool apart(std::size_t p, std::size_t q) const { return a_.block != 0 && p / a_.block != q / a_.block; }

    /// Asks every row with every column; c(i, j) is their C.
    void ask(const std::vector<line>& rows, const std::vector<line>& columns, const std::function<code(std::size_t, std::size_t)>& c = {}) {
        if (rows.empty() || columns.empty()) return;
        dot_case q{{rows.size(), columns.size(), k_}, {}, std::vector<code>(k_ * columns.size()), {}, {}, {}};
        for (const line& l : rows) {
            q.a.insert(q.a.end(), l.elements.begin(), l.elements.end());
            q.scale_a.insert(q.scale_a.end(), l.scales.begin(), l.scales.end());
        }
        const std::size_t n = columns.size(), blocks = columns[0].scales.size();
        q.scale_b.resize(blocks * n);
        for (std::size_t j = 0; j < n; ++j) {
            for (std::size_t l = 0; l < k_; ++l) q.b[l * n + j] = columns[j].elements[l];
            for (std::size_t s = 0; s < blocks; ++s) q.scale_b[s * n + j] = columns[j].scales[s];
        }
        for (std::size_t i = 0; i < rows.size(); ++i)
            for (std::size_t j = 0; j < n; ++j) q.c.push_back(c && task_.has_c ? c(i, j) : no_addend(task_));
        groups_.push_back(std::move(q));
    }
    void ask_addends(const std::vector<line>& rows, const std::vector<code>& c) {
        ask(rows, std::vector<line>(task_.has_c ? c.size() : 1, ones(b_)), [&](std::size_t, std::size_t j) { return c[j]; });
    }

    void specials() {
        const auto of = [&](const operand_codes& o) {
            std::vector<line> lines{ones(o), zeros(o)};
            for (const auto& special : {o.nan(), o.infinity(false), o.infinity(true)}) {
                for (const std::size_t p : places_)
                    if (special) lines.push_back(with(ones(o), p, *special));
            }
            if (k_ > 1 && o.infinity(false)) lines.push_back(with(with(ones(o), 0, *o.infinity(false)), k_ - 1, *o.infinity(true)));
            return lines;
        };
        const std::vector<line> rows = of(a_), columns = of(b_);
        if (rows.size() > 2) ask(rows, {ones(b_), zeros(b_), ones(b_, true)});
        if (columns.size() > 2) ask({ones(a_), zeros(a_), ones(a_, true)}, columns);
        std::vector<line> few{ones(a_), zeros(a_)};
        for (const auto& special : {a_.nan(), a_.infinity(false), a_.infinity(true)})
            if (special) few.push_back(with(zeros(a_), k_ / 2, *special));
        if (!whole_ && task_.has_c && c_.nan())
            ask_addends(few, {*c_.nan(), *c_.infinity(false), *c_.infinity(true), c_.highest(), c_.lowest(), c_.zero(true)});
    }

    void ends() {
        const auto of = [&](const operand_codes& o) {
            std::vector<line> lines{filled(o, o.lowest()), filled(o, o.highest()), filled(o, o.lowest(1)), filled(o, o.highest(1)),
                                    ones(o)};
            line turns = filled(o, o.lowest());
            for (std::size_t l = 1; l < k_; l += 2) turns.elements[l] = o.highest();
            lines.push_back(turns);
            for (std::size_t n = 1; n < k_; n *= 2) {
                for (const code end : {o.lowest(), o.highest()}) {
                    line first = zeros(o);
                    std::fill_n(first.elements.begin(), n, end);
                    lines.push_back(first);
                }
            }
            return lines;
        };
        const std::vector<line> rows = of(a_), columns = of(b_);
        ask(rows, columns);
        if (!task_.has_c) return;
        ask(rows, {columns.begin(), columns.begin() + 6},
            [&](std::size_t i, std::size_t j) { return (i + j) % 2 == 0 ? highest_c() : lowest_c(); });
    }
    code highest_c() const { return whole_ ? code{0x7fffffff} : c_.highest(); }
    code lowest_c() const { return whole_ ? static_cast<code>(std::int64_t{-0x7fffffff - 1}) : c_.lowest(); }

    void zeros() {
        const std::vector<line> rows{zeros(a_), zeros(a_, true), with(zeros(a_), k_ - 1, a_.zero(true)),
                                     with(zeros(a_, true), 0, a_.zero())};
        const std::vector<line> columns{ones(b_), ones(b_, true)};
        ask(rows, columns);
        ask(rows, columns, [&](std::size_t, std::size_t) { return whole_ ? code{0} : c_.zero(); });
    }

    void cancellations() {
        std::vector<line> rows;
        for (std::size_t turn = 0; turn < 2 && k_ > 1 && a_.has_sign(); ++turn) {
            const std::size_t p = turn == 0 ? 0 : k_ / 2, q = turn == 0 ? k_ - 1 : (k_ / 2 + 1) % k_;
            const code most = a_.power(a_.most, turn != 0, true);
            rows.push_back(with(with(zeros(a_), p, most), q, a_.power(a_.most, turn == 0, true)));
            for (int bit = 0; bit < a_.mantissa; ++bit)
                rows.push_back(with(with(zeros(a_), p, most), q, a_.power(a_.most - 1, turn == 0) + (code{1} << bit)));
            for (int d = 1; d <= reach_ && k_ > 2; ++d) {
                const std::size_t small = turn == 0 ? k_ / 2 : k_ - 1 == q ? 0 : k_ - 1;
                if (small == p || small == q) continue;
                const line two = with(with(zeros(a_), p, a_.power(a_.most, turn != 0)), q, a_.power(a_.most, turn == 0));
                if (auto l = below(a_, two, small, d, d % 2 != 0, apart(small, p) && apart(small, q))) rows.push_back(*l);
            }
        }
        ask(rows, {ones(b_), filled(b_, b_.power(std::clamp(1, b_.least, b_.most), false, true))});
    }

    void carries() {
        std::vector<line> rows;
        for (std::size_t n = 1; n <= k_; n = n < 4 || 2 * n - 1 > k_      ? n + 1
                                             : std::has_single_bit(n + 1) ? n + 1
                                             : std::has_single_bit(n)     ? n + 1
                                                                          : 2 * (n - 1) - 1) {
            line first = zeros(a_), last = zeros(a_);
            for (std::size_t l = 0; l < n; ++l) first.elements[l] = last.elements[k_ - 1 - l] = a_.highest();
            rows.push_back(first), rows.push_back(last);
            if (rows.size() > 64) break;
        }
        ask(rows, {ones(b_), filled(b_, b_.highest())});
    }

    /// The exponent of a product of this element with an element 1, under scales of 1.
    int product_exponent(int element) const { return element + a_.unit_exponent() + std::clamp(0, b_.least, b_.most) + b_.unit_exponent(); }
    std::optional<code> addend(int e, bool negative, bool odd = false) const {
        if (e < c_.least || e > c_.most) return std::nullopt;
        return c_.power(e, negative, odd);
    }

    /// C is large, and the products decide whether it lies at a tie of the result.
    void ties() {
        const int unit = std::max(a_.least, a_.most - 1);
        std::vector<line> rows;
        for (const bool odd : {false, true}) {
            for (const bool negative : {false, true}) {
                if ((odd && k_ < 2) || (negative && !a_.has_sign())) continue;
                line l = with(zeros(a_), 0, a_.power(unit, negative));
                if (odd) l.elements[1] = a_.power(a_.most, negative);
                rows.push_back(l);
                for (int t = 1; k_ > 2 && unit - t >= a_.least; t += t < 4 ? 1 : t / 2) {
                    rows.push_back(with(l, k_ - 1, a_.power(unit - t, false)));
                    rows.push_back(with(l, k_ - 1, a_.power(unit - t, a_.has_sign())));
                }
            }
        }
        std::vector<code> c;
        for (const int m : result_mantissas()) {
            for (const bool negative : {false, true}) {
                for (const bool odd : {false, true})
                    if (const auto v = addend(product_exponent(unit) + m + 1, negative, odd)) c.push_back(*v);
            }
        }
        if (!c.empty()) ask_addends(rows, c);
    }
    std::vector<int> result_mantissas() const {
        std::vector<int> m = task_.d_bits == 64  ? std::vector<int>{52}
                             : task_.d_bits > 16 ? std::vector<int>{23}
                             : task_.d_bits > 8  ? std::vector<int>{10, 7}
                                                 : std::vector<int>{3, 2};
        if (std::find(m.begin(), m.end(), task_.c.mantissa_bits) == m.end()) m.push_back(task_.c.mantissa_bits);
        return m;
    }
    bool has_floats() const { return std::holds_alternative<floating>(task_.a) && std::holds_alternative<floating>(task_.b); }
    /// Asks every row with every column and every C.
    void ask_all(const std::vector<line>& rows, const std::vector<line>& columns, const std::vector<code>& c) {
        std::vector<line> repeated;
        for (const line& l : columns) repeated.insert(repeated.end(), c.size(), l);
        ask(rows, repeated, [&](std::size_t, std::size_t j) { return c[j % c.size()]; });
    }
    /// One product lies at a tie of the result, (1 + 2^-i) (1 + 2^-j), and a small C decides: down to one of which no bit is left.
    void tied_products() {
        const int x = std::clamp(0, a_.normal, a_.most), y = std::clamp(0, b_.normal, b_.most);
        for (const int m : result_mantissas()) {
            const int i = std::max((m + 2) / 2, m + 1 - b_.mantissa), j = m + 1 - i;
            if (i < 2 || j < 1 || i > a_.mantissa) continue;
            const code tied = a_.power(x) + (code{1} << (a_.mantissa - i)), odd = tied + (code{1} << (a_.mantissa - i + 1));
            std::vector<line> rows;
            for (const code e : {tied, odd}) rows.push_back(with(zeros(a_), 0, e)), rows.push_back(with(zeros(a_), k_ - 1, e));
            std::vector<code> c{c_.zero()};
            for (int below = m + 2; x + y - below >= c_.least; below += below < m + 8 ? 1 : below / 4)
                for (const bool negative : {false, true}) c.push_back(c_.power(x + y - below, negative));
            ask_all(rows, {filled(b_, b_.power(y) + (code{1} << (b_.mantissa - j)))}, c);
        }
    }
    /// One product lies at an end of C's range, and C beside it.
    void ends_of_products() {
        const auto around = [&](int end, const std::vector<code>& c) {
            const int y = std::clamp(end / 2, b_.normal, b_.most);
            std::vector<line> rows;
            for (int x = end - y - 3; x <= end - y + 3; ++x) {
                if (x < a_.normal || x > a_.most) continue;
                for (const bool negative : {false, true}) {
                    if (negative && !a_.has_sign()) continue;
                    const code power = a_.power(x, negative);
                    for (const code e : {power, power + (a_.mantissa == 0 ? 0 : code{1} << (a_.mantissa - 1))})
                        rows.push_back(with(zeros(a_), 0, e));
                }
            }
            std::vector<line> columns{filled(b_, b_.power(y))};
            if (b_.mantissa > 0) columns.push_back(filled(b_, b_.power(y) + (code{1} << (b_.mantissa - 1))));
            if (!rows.empty()) ask_all(rows, columns, c);
        };
        std::vector<code> top, bottom{c_.zero(), c_.zero(true)};
        for (const bool negative : {false, true}) {
            top.insert(top.end(), {negative ? c_.lowest() : c_.highest(), c_.power(c_.most, negative), *c_.infinity(negative)});
            bottom.insert(bottom.end(),
                          {c_.power(c_.normal, negative), c_.power(c_.normal, negative) + 1, c_.power(c_.normal + 1, negative)});
        }
        around(c_.most + 1, top), around(c_.normal - 2, bottom), around(c_.normal - c_.mantissa - 1, bottom);
    }
    /// Products alone make the tie.
    void sums_of_ties() {
        std::vector<line> rows;
        const std::size_t half = k_ / 2, last = k_ - 1;
        for (const int m : result_mantissas()) {
            for (const bool odd : {false, true}) {
                for (int beside = -1; beside <= 1 && k_ > 3; ++beside) {
                    for (const bool negative : {false, true}) {
                        auto l = below(a_, zeros(a_), 0, 0, negative, false);
                        if (l && odd) l = below(a_, *l, half - 1, m, negative, apart(0, half - 1));
                        if (l) l = below(a_, *l, half, m + 1, negative, apart(0, half));
                        if (l && beside != 0)
                            l = below(a_, *l, last, std::min(m + 4, m + 1 + std::max(1, a_.most - a_.least - m - 1)),
                                      negative != (beside < 0), apart(0, last) && !apart(half, last));
                        if (l) rows.push_back(*l);
                    }
                }
            }
        }
        ask(rows, {ones(b_)});
    }

    void addends() {
        const int element = a_.least + (a_.most - a_.least) / 2;
        std::vector<code> c;
        for (int d = -reach_; d <= reach_; ++d) {
            for (const bool odd : {false, true})
                if (const auto v = addend(product_exponent(element) + d, (d % 2 != 0) != odd, odd)) c.push_back(*v);
        }
        const code plain = a_.power(element), odd = a_.power(element, false, true);
        std::vector<line> rows{with(zeros(a_), 0, plain), with(zeros(a_), k_ - 1, odd), filled(a_, odd)};
        for (const std::size_t p : places_)
            if (places_.size() <= 16) rows.push_back(with(zeros(a_), p, a_.power(element, a_.has_sign())));
        if (!c.empty()) ask_addends(rows, c);
        std::vector<code> ends;  // C at the ends of its own range, also where it cancels the products
        for (const bool negative : {false, true})
            for (const int e : {c_.least, c_.normal - 1, c_.normal, c_.most}) ends.push_back(c_.power(e, negative));
        ask_addends({zeros(a_), with(zeros(a_), 0, a_.power(a_.least)), filled(a_, a_.power(a_.most))}, ends);
    }

    void subnormals() {
        const auto of = [&](const operand_codes& o) {
            std::vector<line> lines{ones(o)};
            if (o.least == o.normal) return lines;
            lines.push_back(filled(o, o.power(o.least)));
            lines.push_back(filled(o, o.power(o.normal - 1, o.has_sign())));
            lines.push_back(filled(o, o.power(o.normal) - 1));
            lines.push_back(filled(o, o.power(o.normal)));
            lines.push_back(with(zeros(o), k_ - 1, o.power(o.normal - 1)));
            line turns = filled(o, o.power(o.least));
            for (std::size_t l = 0; l < k_; l += 2) turns.elements[l] = o.power(o.normal);
            lines.push_back(turns);
            lines.push_back(filled(o, o.power(o.most)));
            return lines;
        };
        ask(of(a_), of(b_));
    }

    void scales() {
        const auto of = [&](const operand_codes& o, const qk::format& f) {
            std::vector<line> lines{ones(o)};
            if (o.block == 0) return lines;
            const code last = (code{1} << scale_width(f)) - 1, unit = unit_scale(f);
            for (const code s : {code{0}, code{1}, code{2}, unit - 1, unit, unit + 1, last - 2, last - 1, last}) {
                line all = ones(o);
                std::fill(all.scales.begin(), all.scales.end(), s);
                lines.push_back(all);
                line one = ones(o);
                one.scales.back() = s;
                lines.push_back(one);
            }
            return lines;
        };
        if (a_.block == 0 && b_.block == 0) return;
        std::vector<line> rows = of(a_, task_.a), columns = of(b_, task_.b);
        rows.push_back(zeros(a_));
        ask(rows, columns);
    }

    void distances() {
        std::vector<line> rows;
        for (const std::size_t p : places_) {
            const std::size_t beside = p % 2 == 0 && p + 1 < k_ ? p + 1
                                       : p == 0                 ? 0
                                                                : p - 1,
                              far = a_.block != 0 && k_ > a_.block ? (p + a_.block) % k_ : beside;
            for (int d = 0; d <= reach_; ++d) {
                const std::size_t top = d <= a_.most - a_.normal ? beside : far;
                if (top == p) continue;
                const line one = with(zeros(a_), top, a_.power(a_.most));
                const bool negative = (static_cast<int>(p) + d) % 2 != 0;
                if (auto l = below(a_, one, p, d, negative, apart(p, top), true)) rows.push_back(*l);
            }
        }
        std::vector<line> columns{ones(b_)};
        const int range = a_.most - a_.least;
        if (a_.block == 0 && range < reach_) {  // the rest of the way in b: even or odd places far below the others
            for (int d = range + 1; d < reach_ + range && b_.most - std::min(d, b_.most - b_.least) >= b_.least; d += range + 1) {
                for (std::size_t odd = 0; odd < 2; ++odd) {
                    line l = filled(b_, b_.power(b_.most));
                    for (std::size_t n = odd; n < k_; n += 2) l.elements[n] = b_.power(b_.most - std::min(d, b_.most - b_.least));
                    columns.push_back(l);
                }
                if (d >= b_.most - b_.least) break;
            }
        }
        ask(rows, columns);
    }

    const dot_task& task_;
    operand_codes a_, b_, c_;
    std::size_t k_;
    int reach_;
    bool whole_;
    std::vector<std::size_t> places_;
    std::vector<dot_case> groups_;
};

}  // namespace

std::vector<dot_case> dot_corners(const dot_task& task, int kept, std::size_t places) { return corners(task, kept, places).all(); }

dot_case question_of(const dot_case& c, std::size_t q) {
    const auto [m, n, k] = c.shape;
    const std::size_t i = q / n, j = q % n, blocks_a = c.scale_a.size() / m, blocks_b = c.scale_b.size() / n;
    dot_case one{{1, 1, k}, {}, {}, {c.c[q]}, {}, {}};
    for (std::size_t l = 0; l < k; ++l) one.a.push_back(c.a[i * k + l]), one.b.push_back(c.b[l * n + j]);
    for (std::size_t s = 0; s < blocks_a; ++s) one.scale_a.push_back(c.scale_a[i * blocks_a + s]);
    for (std::size_t s = 0; s < blocks_b; ++s) one.scale_b.push_back(c.scale_b[s * n + j]);
    return one;
}

}  // namespace qk::compare
