// SPDX-License-Identifier: Apache-2.0
// A beam search. A state is a set of mistakes, each with the region where it is made; it predicts for a value what a converter with the
// mistakes of that value's regions gives. The best state has the shortest description in bits: of the mistakes, their regions, and the
// values that they leave wrong. So a further mistake must explain more than it takes to state.
#include "diagnose.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

namespace qk::compare {
namespace {

constexpr double mistake_bits = 10, property_bits = 6, value_bits = 14;
constexpr std::size_t searched = 8192;  ///< differing and agreeing values that the search looks at, each
constexpr std::size_t beam = 10, deepest = 4;

struct made {
    int mistake;
    region where;
    friend bool operator==(const made&, const made&) = default;
};

struct state {
    std::vector<made> mistakes;
    std::vector<float> y;   ///< predicted, at the values that the search looks at
    std::size_t wrong = 0;  ///< how many of `y` are wrong
    double bits = 0;
};

std::vector<std::size_t> up_to(std::size_t n) {
    std::vector<std::size_t> v(n);
    std::iota(v.begin(), v.end(), std::size_t{0});
    return v;
}

/// Returns `most` of them, evenly spaced, or all if they are fewer.
std::vector<std::size_t> thinned(const std::vector<std::size_t>& v, std::size_t most) {
    if (v.size() <= most) return v;
    std::vector<std::size_t> few;
    for (std::size_t k = 0; k < most; ++k) few.push_back(v[k * v.size() / most]);
    return few;
}

std::vector<std::size_t> values_to_search(const problem& p) {
    std::vector<std::size_t> differ, agree;
    for (std::size_t i = 0; i < p.x.size(); ++i) (same_value(p.expected[i], p.device[i]) ? agree : differ).push_back(i);
    std::vector<std::size_t> all = thinned(differ, searched);
    const std::vector<std::size_t> more = thinned(agree, searched);
    all.insert(all.end(), more.begin(), more.end());
    std::sort(all.begin(), all.end());
    return all;
}

class search {
  public:
    search(const problem& p, const properties& all, std::vector<std::size_t> at)
        : p_(p), all_(all), predict_(p, std::move(at)), whole_(up_to(predict_.at().size())) {
        for (const std::size_t i : predict_.at()) device_.push_back(p.device[i]), expected_.push_back(p.expected[i]);
    }

    state nothing() const {
        state s{{}, expected_, 0, 0};
        finish(s);
        return s;
    }
    /// Returns the state of these mistakes, predicted anew.
    state of(std::vector<made> mistakes) {
        state s{std::move(mistakes), expected_, 0, 0};
        predict(s.mistakes, s.y);
        finish(s);
        return s;
    }
    /// Adds a mistake in the region where it does most good. Returns nullopt if it corrects no value, or if the state has a mistake of that
    /// topic.
    std::optional<state> extended(const state& s, int m) {
        for (const made& k : s.mistakes) {
            if (about(k.mistake) == about(m)) return std::nullopt;
        }
        std::vector<made> more = s.mistakes;
        more.push_back({m, {}});
        std::vector<float> y = s.y;
        predict(more, y);
        value_set better(all_.count()), worse(all_.count());
        std::size_t gained = 0, lost = 0;
        for (std::size_t n = 0; n < y.size(); ++n) {
            const bool was = same_value(s.y[n], device_[n]), is = same_value(y[n], device_[n]);
            if (is && !was) better.insert(predict_.at()[n]), ++gained;
            if (was && !is) worse.insert(predict_.at()[n]), ++lost;
        }
        if (gained == 0) return std::nullopt;
        if (lost != 0) more.back().where = all_.separate(better, worse);
        state found{std::move(more), std::move(y), 0, 0};
        const region& where = found.mistakes.back().where;
        for (std::size_t n = 0; n < found.y.size() && !where.properties.empty(); ++n) {
            if (!holds(where, predict_.at()[n])) found.y[n] = s.y[n];
        }
        finish(found);
        return found;
    }
    /// Returns the mistakes that change a value on which the device differs.
    std::vector<int> telling() {
        std::vector<int> found;
        std::vector<float> y(expected_.size());
        for (int m = 0; m < static_cast<int>(known_mistakes().size()); ++m) {
            const mistake& k = known_mistakes()[static_cast<std::size_t>(m)];
            if (k.applies != nullptr && !k.applies(p_)) continue;
            predict_.predict({m}, whole_, y);
            const auto tells = [&](std::size_t n) { return !same_value(expected_[n], device_[n]) && !same_value(y[n], expected_[n]); };
            if (std::any_of(whole_.begin(), whole_.end(), tells)) found.push_back(m);
        }
        return found;
    }
    /// Returns the pairs, made everywhere, that leave the fewest wrong values: the mistakes of a pair may explain nothing alone.
    std::vector<state> best_pairs(const std::vector<int>& known) {
        std::vector<std::size_t> some;  // enough to tell pairs apart
        const std::size_t step = std::max<std::size_t>(1, whole_.size() / 3072);
        for (std::size_t n = 0; n < whole_.size(); n += step) some.push_back(n);
        std::vector<float> y(some.size());
        std::vector<std::pair<std::size_t, std::pair<int, int>>> found;
        for (std::size_t a = 0; a < known.size(); ++a) {
            for (std::size_t b = a + 1; b < known.size(); ++b) {
                if (about(known[a]) == about(known[b])) continue;
                predict_.predict({known[a], known[b]}, some, y);
                std::size_t wrong = 0;
                for (std::size_t n = 0; n < y.size(); ++n) wrong += !same_value(y[n], device_[some[n]]);
                found.push_back({wrong, {known[a], known[b]}});
            }
        }
        std::stable_sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
        if (found.size() > beam) found.resize(beam);
        std::vector<state> states;
        for (const auto& [wrong, pair] : found) states.push_back(of({{pair.first, {}}, {pair.second, {}}}));
        return states;
    }
    /// Leaves out each mistake that the state can do without, and each region that changes nothing.
    state simplified(state s) {
        for (std::size_t k = 0; k < s.mistakes.size();) {
            std::vector<made> fewer = s.mistakes, wider = s.mistakes;
            fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(k));
            wider[k].where = {};
            const state without = of(fewer), everywhere = of(wider);
            if (without.bits <= s.bits) {
                s = without;
                continue;
            }
            if (!(wider == s.mistakes) && everywhere.bits <= s.bits) s = everywhere;
            ++k;
        }
        return s;
    }

  private:
    static topic about(int m) { return known_mistakes()[static_cast<std::size_t>(m)].about; }
    bool holds(const region& r, std::size_t i) const {
        return std::all_of(r.properties.begin(), r.properties.end(), [&](int k) { return all_[k].values.contains(i); });
    }
    /// Predicts each value with the mistakes in whose regions it lies.
    void predict(const std::vector<made>& mistakes, std::vector<float>& y) {
        std::map<unsigned, std::vector<std::size_t>> groups;
        for (std::size_t n = 0; n < whole_.size(); ++n) {
            unsigned mask = 0;
            for (std::size_t k = 0; k < mistakes.size(); ++k) mask |= unsigned{holds(mistakes[k].where, predict_.at()[n])} << k;
            groups[mask].push_back(n);
        }
        for (const auto& [mask, which] : groups) {
            mistake_set set;
            for (std::size_t k = 0; k < mistakes.size(); ++k) {
                if ((mask >> k & 1u) != 0) set.push_back(mistakes[k].mistake);
            }
            std::sort(set.begin(), set.end());
            std::vector<float> part(which.size());
            if (set.empty()) {
                for (std::size_t n = 0; n < which.size(); ++n) part[n] = expected_[which[n]];
            } else {
                predict_.predict(set, which, part);
            }
            for (std::size_t n = 0; n < which.size(); ++n) y[which[n]] = part[n];
        }
    }
    void finish(state& s) const {
        s.wrong = 0;
        for (std::size_t n = 0; n < s.y.size(); ++n) s.wrong += !same_value(s.y[n], device_[n]);
        s.bits = value_bits * static_cast<double>(s.wrong);
        for (const made& m : s.mistakes)
            s.bits +=
                mistake_bits + 0.02 * m.mistake + property_bits * static_cast<double>(m.where.properties.size());  // the likelier first
    }

    const problem& p_;
    const properties& all_;
    predictor predict_;
    std::vector<float> device_, expected_;
    std::vector<std::size_t> whole_;
};

bool shorter(const state& a, const state& b) { return a.bits < b.bits; }

/// Keeps the best states of a level, one for each set of mistakes.
void keep_best(std::vector<state>& level) {
    std::stable_sort(level.begin(), level.end(), shorter);
    std::vector<state> kept;
    std::set<std::vector<int>> seen;
    for (state& s : level) {
        std::vector<int> names;
        for (const made& m : s.mistakes) names.push_back(m.mistake);
        std::sort(names.begin(), names.end());
        if (kept.size() < beam && seen.insert(names).second) kept.push_back(std::move(s));
    }
    level = std::move(kept);
}

/// Returns a region as a location, with how many of its values are in `differ`.
location location_of(const properties& all, const region& r, const value_set& differ) {
    const value_set v = all.values(r);
    return {all.words(r), v.count(), v.count_with(differ)};
}

/// Describes the differences by up to three places; each describes what those before it leave.
std::vector<location> describe(const properties& all, const value_set& differ) {
    std::vector<location> found;
    value_set left = differ;
    while (found.size() < 3 && left.count() != 0) {
        const region r = all.describe(left, 0.25);
        if (r.properties.empty()) break;
        const value_set rest = left.without(all.values(r));
        if (rest.count() == left.count()) break;
        found.push_back(location_of(all, r, differ));
        left = rest;
    }
    if (found.empty()) found.push_back({"", all.count(), differ.count()});
    return found;
}

}  // namespace

void diagnose(const problem& p, const properties& all, report& r) {
    value_set differ(p.x.size());
    for (std::size_t i = 0; i < p.x.size(); ++i) {
        if (!same_value(p.expected[i], p.device[i])) differ.insert(i);
    }
    r.where = describe(all, differ);

    search look(p, all, values_to_search(p));
    const std::vector<int> known = look.telling();
    state best = look.nothing();
    std::vector<state> level{best}, singles;
    for (std::size_t depth = 1; depth <= deepest && best.bits > mistake_bits * static_cast<double>(depth); ++depth) {
        std::vector<state> next;
        for (const state& s : level) {
            for (const int m : known) {
                if (auto more = look.extended(s, m)) next.push_back(std::move(*more));
            }
        }
        if (depth == 2) {
            for (state& s : look.best_pairs(known)) next.push_back(std::move(s));
        }
        if (depth == 1) singles = next;
        keep_best(next);
        if (next.empty()) break;
        if (shorter(next.front(), best)) best = next.front();
        level = std::move(next);
    }
    best = look.simplified(best);

    // The verdict is over all values, not those that were searched.
    search whole(p, all, up_to(p.x.size()));
    const state final = whole.of(best.mistakes);
    r.unexplained = final.wrong;
    const auto cause_of = [&](const state& s, std::size_t k) {
        std::vector<made> others = s.mistakes;
        others.erase(others.begin() + static_cast<std::ptrdiff_t>(k));
        const state without = whole.of(others);
        value_set explained(p.x.size());
        for (std::size_t i = 0; i < p.x.size(); ++i) {
            if (differ.contains(i) && same_value(s.y[i], p.device[i]) && !same_value(without.y[i], p.device[i])) explained.insert(i);
        }
        cause c{sentence_of(known_mistakes()[static_cast<std::size_t>(s.mistakes[k].mistake)], p),
                {},
                !s.mistakes[k].where.properties.empty(),
                explained.count()};
        c.where = location_of(all, c.restricted ? s.mistakes[k].where : all.describe(explained, 0.5), explained);
        return c;
    };
    for (std::size_t k = 0; k < final.mistakes.size(); ++k) r.causes.push_back(cause_of(final, k));
    std::stable_sort(r.causes.begin(), r.causes.end(), [](const cause& a, const cause& b) { return a.explains > b.explains; });
    if (final.mistakes.size() == 1) {
        for (const state& s : singles) {
            if (s.wrong == 0 && s.mistakes.front().where.properties.empty() && s.mistakes.front().mistake != final.mistakes.front().mistake)
                r.alternatives.push_back(sentence_of(known_mistakes()[static_cast<std::size_t>(s.mistakes.front().mistake)], p));
        }
    }
    if (r.causes.empty()) {
        for (const state& s : singles) {  // it may be wrong elsewhere: what counts is how many differences it explains
            const cause c = cause_of(whole.of(s.mistakes), 0);
            if (c.explains > (r.nearest ? r.nearest->explains : 0)) r.nearest = c;
        }
    }
}

}  // namespace qk::compare
