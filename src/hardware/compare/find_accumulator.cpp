// SPDX-License-Identifier: Apache-2.0
// Searches for an accumulator: from devices that are known and from accumulators of each kind, it changes one field after the other as long
// as more answers are met. Then it asks questions on which the accumulator found differs from its neighbours, until there are none.
#include <algorithm>
#include <bit>
#include <optional>
#include <set>

#include "accumulator_fields.hpp"
#include "dot_mistakes.hpp"
#include "dot_questions.hpp"
#include "find_requantization.hpp"
#include "qk/compare/bins.hpp"
#include "qk/compare/cases.hpp"
#include "qk/dot/devices.hpp"
#include "qk/dot/text.hpp"

namespace qk::compare {
namespace {

struct answered {
    dot_case raw;
    questions asked;
    std::vector<std::uint64_t> d;
};

/// Sums that a search computes before it gives up.
constexpr std::size_t patience = 20'000'000;

struct candidate {
    accumulator a;
    std::size_t missed = 0;
};

class finder {
  public:
    explicit finder(const dot_task& task) : task_(task), fields_(fields_of(task, {})) {}

    void add(const dot_case& c, std::vector<std::uint64_t> d) {
        asked_ += d.size();
        for (const std::uint64_t v : d) seen_.look(task_, v);
        fields_ = fields_of(task_, seen_);
        answers_.push_back({c, questions(task_, c), std::move(d)});
    }
    std::size_t asked() const { return asked_; }
    /// Sets how every candidate makes codes of its sums.
    void requantize_by(const std::optional<requantization>& r) { requantize_ = r; }

    /// Returns how many answers of every `step`-th question `a` misses; stops counting beyond `most`.
    std::size_t missed(const accumulator& a, std::size_t most, std::size_t step = 1) const {
        std::size_t n = 0;
        for (const answered& batch : answers_) {
            for (std::size_t q = 0; q < batch.d.size(); q += step) {
                ++computed_;
                if (!same_answer(task_, a, batch.asked.answer(a, q), batch.d[q]) && ++n > most) return n;
            }
        }
        return n;
    }
    /// Aligned sums are looked for in lanes by powers of two: others too easily answer alike by chance.
    bool allowed(const accumulator& a) const {
        if (a.sum == summation::aligned && !std::has_single_bit(static_cast<unsigned>(a.lanes))) return false;
        return check(a).empty() && check_operands(task_.a, task_.b, a).empty();
    }

    /// Returns the allowed accumulators that differ from `a` by one field.
    std::vector<accumulator> neighbours(const accumulator& a) const {
        std::vector<accumulator> all;
        for (const field& f : fields_) {
            for (const int v : f.values) {
                accumulator b = a;
                f.set(b, v);
                b = meaningful(b);
                if (!(b == a) && allowed(b)) all.push_back(b);
            }
        }
        return all;
    }
    /// Descends to neighbours that miss fewer answers, first with a fifth of the questions.
    candidate descend(candidate c) const {
        for (const std::size_t step : {std::size_t{5}, std::size_t{1}}) c = descended(c.a, step);
        return c;
    }
    /// Descends from the most promising seeds; returns the best candidate.
    candidate search() const {
        std::vector<candidate> all;
        for (accumulator a : seeds_of(task_, seen_)) {
            if (requantize_) a.requantize = *requantize_;
            if (allowed(a)) all.push_back({a, missed(a, asked_, 5)});
        }
        std::stable_sort(all.begin(), all.end(), fewer);
        candidate best{all.front().a, missed(all.front().a, asked_)};
        std::set<summation> kinds;
        for (std::size_t k = 0; k < all.size() && best.missed != 0 && computed_ < patience; ++k) {
            if (k >= 4 && kinds.contains(all[k].a.sum)) continue;  // the best four, then the best of each kind
            kinds.insert(all[k].a.sum);
            const candidate c = descend(all[k]);
            if (c.missed < best.missed) best = c;
        }
        return best;
    }
    /// Sets fields that make no difference to an accumulator's defaults.
    candidate simplified(candidate c) const {
        accumulator simple = c.a;
        simple.sum = summation::exact;
        simple.align = simple.join = 0;
        for (const qk::place where : {qk::place::inside, qk::place::after}) {
            simple.place = where;
            simple = meaningful(simple);
            if (c.a.sum == summation::aligned && allowed(simple) && missed(simple, c.missed) <= c.missed) c.a = simple;
        }
        const accumulator plain{.sum = c.a.sum,
                                .addend = c.a.addend,
                                .partial = usual_partial(c.a.result),
                                .result = c.a.result,
                                .partial_round = c.a.round,
                                .round = c.a.round};
        using a = accumulator;
        take(c, plain, &a::lanes, &a::chunked);
        take_each(c, plain, &a::chunked, &a::lanes, &a::bundle, &a::groups, &a::place, &a::join_drop, &a::join_cut, &a::join_addend,
                  &a::join, &a::cut, &a::lost_is_zero, &a::fused, &a::reverse, &a::partial, &a::partial_round, &a::operand_bits,
                  &a::flush_inputs, &a::flush_partials, &a::flush_tiny, &a::product_overflow, &a::product_range, &a::overflow, &a::zero,
                  &a::width, &a::saturate);
        if (c.a.sum != summation::aligned) take(c, plain, &a::align);
        return c;
    }
    /// Sets fields that make no difference to those of `expected`.
    candidate closer(candidate c, const accumulator& expected) const {
        using a = accumulator;
        take(c, expected, &a::sum, &a::align, &a::cut, &a::place);
        take(c, expected, &a::partial, &a::result);
        take(c, expected, &a::partial_round, &a::round);
        take_each(c, expected, &a::lost_is_zero, &a::groups, &a::lanes, &a::chunked, &a::bundle, &a::place, &a::align, &a::cut, &a::join,
                  &a::join_addend, &a::join_drop, &a::join_cut, &a::fused, &a::partial, &a::result, &a::partial_round, &a::round,
                  &a::operand_bits, &a::reverse, &a::flush_inputs, &a::flush_partials, &a::flush_tiny, &a::product_overflow,
                  &a::product_range, &a::overflow, &a::zero, &a::nan, &a::width, &a::saturate);
        return c;
    }
    /// Returns a case on which `a` differs from one of its neighbours that meet every answer, too, if one is found.
    std::optional<dot_case> telling(const accumulator& a, std::size_t m, std::size_t n, random_source& random) const {
        std::vector<accumulator> equal;
        for (const accumulator& b : neighbours(a)) {
            if (missed(b, 0) == 0) equal.push_back(b);
        }
        for (int attempt = 0; attempt < 4 && !equal.empty(); ++attempt) {
            dot_case c = make_questions(task_, m, n, random);
            const questions asked(task_, c);
            for (std::size_t q = 0; q < asked.size(); ++q) {
                const std::uint64_t here = asked.answer(a, q);
                for (const accumulator& b : equal) {
                    if (!same_answer(task_, a, asked.answer(b, q), here)) return c;
                }
            }
        }
        return std::nullopt;
    }
    /// Returns the accumulators that meet every answer as `a` does: its neighbours, and for exact sums all that cut somewhere.
    std::vector<accumulator> rivals(const accumulator& a) const {
        std::vector<accumulator> all;
        const auto add = [&](const accumulator& b) {
            if (!(b == a) && std::ranges::find(all, b) == all.end() && allowed(b) && missed(b, 0) == 0) all.push_back(b);
        };
        for (const accumulator& b : neighbours(a)) add(b);
        if (a.sum != summation::exact) return all;
        for (int align = 1; align <= 48; ++align)
            for (const rounding cut : {rounding::toward_zero, rounding::down})
                for (const qk::place where : {qk::place::inside, qk::place::after}) {
                    accumulator b = a;
                    b.sum = summation::aligned, b.align = align, b.cut = cut, b.place = where;
                    add(meaningful(b));
                }
        return all;
    }
    /// Returns a case about the last bits that are kept on which a rival differs from `a`, if one is found.
    std::optional<dot_case> telling_border(const accumulator& a, const std::vector<accumulator>& others, std::size_t m, std::size_t n,
                                           random_source& random) const {
        for (int attempt = 0; attempt < 6 && !others.empty(); ++attempt) {
            dot_case c = make_border_questions(task_, m, n, random);
            const questions asked(task_, c);
            for (std::size_t q = 0; q < asked.size(); ++q) {
                const std::uint64_t here = asked.answer(a, q);
                for (const accumulator& b : others)
                    if (!same_answer(task_, a, asked.answer(b, q), here)) return c;
            }
        }
        return std::nullopt;
    }
    dot_counts counts(const accumulator& a) const {
        dot_counts n;
        for (const answered& batch : answers_) {
            for (std::size_t q = 0; q < batch.d.size(); ++q) batch.asked.answer(a, q, &n);
        }
        return n;
    }
    /// Returns up to four questions that `a` answers otherwise than the device.
    std::vector<unmet_question> unmet(const accumulator& a) const {
        std::vector<unmet_question> all;
        for (const answered& batch : answers_) {
            for (std::size_t q = 0; q < batch.d.size() && all.size() < 4; ++q) {
                const std::uint64_t computed = batch.asked.answer(a, q);
                if (!same_answer(task_, a, computed, batch.d[q])) all.push_back({question_of(batch.raw, q), computed, batch.d[q]});
            }
        }
        return all;
    }
    /// Look for a mistake that no accumulator makes, on top of `best`, of the expected one, or of a device's.
    void explain(found_accumulator& r) const {
        if (const auto found = explained(r.best)) r.mistake = found->sentence, r.best = found->by;
    }
    std::optional<explained_answers> explained(const accumulator& best) const {
        std::vector<answered_case> cases;
        for (const answered& batch : answers_) cases.push_back({&batch.raw, batch.d});
        std::vector<accumulator> bases;
        const auto add = [&](const accumulator& a) {
            if (allowed(a) && std::ranges::find(bases, a) == bases.end()) bases.push_back(a);
        };
        if (task_.expected) add(*task_.expected);
        add(best);
        for (const accumulator& a : seeds_of(task_, seen_)) add(a);
        return find_dot_mistake(task_, cases, bases);
    }
    /// Sets a.nan if the device's NaN has all bits set, as NVIDIA's has; comparisons of answers do not show it.
    void take_nan(accumulator& a) const {
        if (is_narrow_result(a.result)) return;
        for (const answered& batch : answers_) {
            for (const std::uint64_t d : batch.d) {
                const std::uint64_t ones = task_.d_bits < 32 ? (std::uint64_t{1} << (task_.d_bits - 1)) - 1 : 0x7fffffff;
                if (a.sum != summation::integer && (d & ((std::uint64_t{1} << task_.d_bits) - 1)) == ones) a.nan = nan_answer::all_ones;
            }
        }
    }

  private:
    static bool fewer(const candidate& x, const candidate& y) { return x.missed < y.missed; }

    /// Sets these members together to those of `from` if no more answers are missed then.
    void take(candidate& c, const accumulator& from, auto... members) const {
        accumulator b = c.a;
        ((b.*members = from.*members), ...);
        b = meaningful(b);
        if (!(b == c.a) && allowed(b) && missed(b, c.missed) <= c.missed) c.a = b;
    }
    void take_each(candidate& c, const accumulator& from, auto... members) const { (take(c, from, members), ...); }

    /// Moves to the best neighbour as long as one is better; if none is, tries pairs of changes. Every `step`-th question counts.
    candidate descended(const accumulator& from, std::size_t step) const {
        candidate c{from, missed(from, asked_, step)};
        while (c.missed != 0 && computed_ < patience) {
            candidate best = c;
            std::vector<candidate> tried;
            for (const accumulator& a : neighbours(c.a)) {
                tried.push_back({a, missed(a, c.missed + c.missed / 4 + 8, step)});
                if (tried.back().missed < best.missed) best = tried.back();
            }
            if (best.missed == c.missed && c.missed < asked_ / step / 3) {
                std::stable_sort(tried.begin(), tried.end(), fewer);
                for (std::size_t k = 0; k < std::min<std::size_t>(24, tried.size()) && computed_ < patience && best.missed == c.missed;
                     ++k) {
                    for (const accumulator& a : neighbours(tried[k].a)) {
                        const std::size_t n = missed(a, best.missed, step);
                        if (n < best.missed) best = {a, n};
                    }
                }
            }
            if (best.missed == c.missed) break;
            c = best;
        }
        return c;
    }

    const dot_task& task_;
    std::vector<field> fields_;
    seen_results seen_;
    std::vector<answered> answers_;
    std::optional<requantization> requantize_;
    std::size_t asked_ = 0;
    mutable std::size_t computed_ = 0;  ///< sums computed for candidates
};

found_accumulator result_of(const dot_task& task, const finder& f, candidate c) {
    found_accumulator r;
    r.best = f.simplified(c).a;
    f.take_nan(r.best);
    r.questions = f.asked();
    r.met = f.asked() - f.missed(r.best, f.asked());
    if (!r.complete()) f.explain(r);
    r.counts = f.counts(r.best);
    if (task.expected) r.expected_met = f.asked() - f.missed(*task.expected, f.asked());
    if (task.expected || !r.complete()) r.unmet = f.unmet(task.expected ? *task.expected : r.best);
    if (r.complete()) {
        devices::each([&](const device& d) {
            accumulator a = d.accumulator;
            if (a.addend == task.c && f.allowed(a) && f.missed(a, 0) == 0) r.same.emplace_back(std::string_view(d.name));
        });
    }
    return r;
}

}  // namespace

std::string check(const dot_task& task) {
    const auto is_operand = [](const qk::format& f) {
        if (const auto* m = std::get_if<microscaling>(&f)) return !has_integer_elements(*m);
        if (const auto* g = std::get_if<floating>(&f)) return *g != e8m0 && *g != fp64;
        return !std::holds_alternative<microexponent>(f) && !is_table_format(f);
    };
    if (!is_operand(task.a) || !is_operand(task.b))
        return "operands are floating formats of up to 32 bits, integers, block floats, NVFP4, or MX formats with floating elements";
    if (is_integer_format(task.a) != is_integer_format(task.b)) return "an integer format is multiplied with an integer format";
    if (is_integer_format(task.a) && task.float_sum) return "a sum of floats of integer operands is not searched";
    for (const qk::format& f : {task.a, task.b}) {
        if (block_size(f) != 0 && task.k % static_cast<std::size_t>(block_size(f)) != 0)
            return "k must be a multiple of the block, " + std::to_string(block_size(f)) + ": it is " + std::to_string(task.k);
    }
    if (task.k < 1 || task.k > 4096) return "k is " + std::to_string(task.k) + "; it must be 1 to 4096";
    return {};
}

found_accumulator fit_accumulator(const dot_task& task, const dot_case& asked, std::span<const std::uint64_t> d) {
    finder f(task);
    f.add(asked, {d.begin(), d.end()});
    return result_of(task, f, f.search());
}

found_accumulator fit_accumulator(const dot_task& task, std::span<const dot_case> asked, std::span<const std::uint64_t> d,
                                  const accumulator& expected) {
    finder f(task);
    for (const dot_case& c : asked) {
        const std::size_t n = c.shape.m * c.shape.n;
        f.add(c, {d.begin(), d.begin() + static_cast<std::ptrdiff_t>(n)});
        d = d.subspan(n);
    }
    candidate c = f.descend({expected});
    if (c.missed != 0) {
        const candidate other = f.search();
        if (other.missed < c.missed) c = other;
    }
    found_accumulator r = result_of(task, f, c);
    if (r.mistake.empty()) r.best = f.closer({r.best, r.questions - r.met}, expected).a;
    r.counts = f.counts(r.best);
    return r;
}

found_accumulator find_accumulator(const dot_task& task, const black_box& device) {
    finder f(task);
    random_source random{task.seed * 2 + 1};
    const auto ask = [&](const dot_case& c) { f.add(c, device(c)); };
    const std::size_t m = 36, n = 16;
    if (is_integer_format(task.a) && task.most_questions >= 7000) {  // find_requantization may ask 5000
        f.requantize_by(find_requantization(task.d_bits, task.seed, [&](const std::vector<std::int64_t>& sums) {
            dot_case c{{1, sums.size(), task.k},
                       std::vector<std::uint64_t>(task.k, 0),
                       std::vector<std::uint64_t>(task.k * sums.size(), 0),
                       {},
                       {},
                       {}};
            for (const std::int64_t s : sums) c.c.push_back(static_cast<std::uint64_t>(s));
            std::vector<std::uint64_t> d = device(c);
            f.add(c, d);
            return d;
        }));
    }
    const auto room = [&](std::size_t more) { return f.asked() + more <= task.most_questions; };
    for (int batch = 0; batch < 3 && (batch == 0 || room(m * n)); ++batch) ask(make_questions(task, m, n, random));
    candidate c = f.search();
    int confirmed = 0;
    while (c.missed == 0 && room(m * n)) {
        const auto more = f.telling(f.simplified(c).a, m, n, random);
        if (!more && ++confirmed > 3) break;  // no neighbour differs: three more batches at random
        ask(more ? *more : make_questions(task, m, n, random));
        c.a = f.simplified(c).a;
        c.missed = f.missed(c.a, f.asked());
        if (c.missed != 0) c = f.descend(c);
        if (c.missed != 0) c = f.search();
    }
    // Chance seldom meets the last bits that a sum keeps. These questions have a random stream of their own.
    random_source at_the_border{task.seed * 2 + 0x10001};
    while (c.missed == 0 && !is_integer_format(task.a) && room(m * n)) {
        const accumulator simple = f.simplified(c).a;
        const std::vector<accumulator> rivals = f.rivals(simple);
        const auto more = f.telling_border(simple, rivals, m, n, at_the_border);
        if (!more) break;
        ask(*more);
        c = {simple, f.missed(simple, f.asked())};
        for (const accumulator& b : rivals)
            if (c.missed != 0 && f.missed(b, 0) == 0) c = {b, 0};
        if (c.missed != 0) c = f.descend(c);
        if (c.missed != 0) c = f.search();
    }
    // What no random question meets: special values beside zeros, the ends of the range, every distance.
    constexpr std::size_t places = 24;
    for (const dot_case& corner : dot_corners(task, std::max(24, kept_bits(c.a)), places)) {
        if (c.missed != 0 || !room(corner.c.size())) continue;
        ask(corner);
        c.missed = f.missed(c.a, f.asked());
        if (c.missed != 0) c = f.descend(c);
        // A mistake that shows on corners alone is likelier than an accumulator that answers every random question alike.
        if (c.missed != 0 && !f.explained(c.a)) c = f.search();
    }
    return result_of(task, f, c);
}

}  // namespace qk::compare
