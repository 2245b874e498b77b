// SPDX-License-Identifier: Apache-2.0
// A beam search. A state is a set of mistakes, each with the region where it is made; it predicts for a value what a converter with the
// mistakes of that value's regions gives. The best state has the shortest description in bits: of the mistakes, their regions, and the
// values that they leave wrong. So a further mistake must explain more than it takes to state. The search looks at some values; what it
// finds is judged over all of them, and only what explains at least four fifths of the differences there, and makes none, is a cause.
#include "diagnose.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

namespace qk::compare {

value_set differing(const problem& p) {
    value_set differ(p.x.size());
    for (std::size_t i = 0; i < p.x.size(); ++i) {
        if (!same_value(p.expected[i], p.device[i])) differ.insert(i);
    }
    return differ;
}

location location_of(const properties& all, const region& r, const value_set& differ) {
    const value_set v = all.values(r);
    return {all.words(r), v.count(), v.count_with(differ)};
}

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

namespace {

constexpr double mistake_bits = 10, property_bits = 6, value_bits = 14;
constexpr std::size_t searched = 2048;  ///< differing and agreeing values that the search looks at, each
constexpr std::size_t of_each = 32;     ///< differing and agreeing values of every property that are among them
constexpr std::size_t beam = 8, deepest = 4, judged = 6, rounds = 3;
constexpr std::size_t noise = 8;         ///< a mistake that explains less than this part of what is left wrong fits by chance
constexpr std::size_t most_arrays = 24;  ///< mistakes of whole arrays that extend a state with one; each converts the array anew

struct made {
    int mistake;
    region where;
    friend bool operator==(const made&, const made&) = default;
};

struct state {
    std::vector<made> mistakes;
    std::vector<float> y;   ///< predicted, at the values that the search looks at
    std::size_t wrong = 0;  ///< how many of `y` are wrong
    std::size_t added = 0;  ///< how many of these the device gives rightly
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

/// Returns values to look at: of those that differ and of those that agree some of every property, and some of all.
std::vector<std::size_t> values_to_search(const properties& all, const value_set& differ) {
    const auto positions = [](const value_set& v) {
        std::vector<std::size_t> at;
        for (std::size_t i = 0; i < v.size(); ++i) {
            if (v.contains(i)) at.push_back(i);
        }
        return at;
    };
    value_set everything(all.count());
    for (std::size_t i = 0; i < all.count(); ++i) everything.insert(i);
    value_set taken(all.count());
    for (const value_set& side : {differ, everything.without(differ)}) {
        for (const std::size_t i : thinned(positions(side), searched)) taken.insert(i);
        for (int k = 0; k < static_cast<int>(all.size()); ++k) {
            for (const std::size_t i : thinned(positions(side & all[k].values), of_each)) taken.insert(i);
        }
    }
    return positions(taken);
}

class search {
  public:
    search(const problem& p, const properties& all, std::vector<std::size_t> at)
        : p_(p), predict_(p, std::move(at)), all_(all.among(predict_.at())), whole_(up_to(predict_.at().size())) {
        for (const std::size_t i : predict_.at()) device_.push_back(p.device[i]), expected_.push_back(p.expected[i]);
    }

    state nothing() const {
        state s{{}, expected_};
        finish(s);
        return s;
    }
    /// Returns the state of these mistakes, predicted anew.
    state of(std::vector<made> mistakes) {
        state s{std::move(mistakes), expected_};
        predict(s.mistakes, s.y);
        finish(s);
        return s;
    }
    /// Adds a mistake in the region where it does most good. Returns nullopt if it corrects no value, or if the state has a mistake of that
    /// topic, unless it is the same mistake in some region: this is another one then.
    std::optional<state> extended(const state& s, int m) {
        for (const made& k : s.mistakes) {
            if (about(k.mistake) == about(m) && (k.mistake != m || k.where.properties.empty())) return std::nullopt;
        }
        std::vector<made> more = s.mistakes;
        more.push_back({m, {}});
        std::vector<float> y = s.y;
        predict(more, y);
        value_set better(all_.count()), worse(all_.count());
        std::size_t gained = 0, lost = 0;
        for (std::size_t n = 0; n < y.size(); ++n) {
            const bool was = same_value(s.y[n], device_[n]), is = same_value(y[n], device_[n]);
            if (is && !was) better.insert(n), ++gained;
            if (was && !is) worse.insert(n), ++lost;
        }
        if (gained == 0) return std::nullopt;
        if (lost != 0) more.back().where = all_.separate(better, worse, 1, changes_scales(m));
        state found{std::move(more), std::move(y)};
        const region& where = found.mistakes.back().where;
        for (std::size_t n = 0; n < found.y.size() && !where.properties.empty(); ++n) {
            if (!holds(where, n)) found.y[n] = s.y[n];
        }
        finish(found);
        return found;
    }
    /// Returns the mistakes that change a value. One that changes none of those that differ may still belong to a pair.
    std::vector<int> telling() {
        std::vector<int> found;
        alone_.resize(known_mistakes().size());
        for (int m = 0; m < static_cast<int>(known_mistakes().size()); ++m) {
            const mistake& k = known_mistakes()[static_cast<std::size_t>(m)];
            if (k.applies != nullptr && !k.applies(p_)) continue;
            std::vector<float> y(expected_.size());
            predict_.predict({m}, whole_, y);
            if (std::all_of(whole_.begin(), whole_.end(), [&](std::size_t n) { return same_value(y[n], expected_[n]); })) continue;
            found.push_back(m);
            alone_[static_cast<std::size_t>(m)] = std::move(y);
        }
        return found;
    }
    /// Returns those of `known` that may extend a state: they change a value that it leaves wrong. If both it and they convert the whole
    /// array anew, those that give most of these values alone.
    std::vector<int> promising(const state& s, const std::vector<int>& known) const {
        if (s.mistakes.empty()) return known;
        const bool has_array = std::any_of(s.mistakes.begin(), s.mistakes.end(), [](const made& k) { return converts_arrays(k.mistake); });
        std::vector<int> found;
        std::vector<std::pair<std::size_t, int>> arrays;
        for (const int m : known) {
            std::size_t given = 0, changed = 0;
            const std::vector<float>& y = alone_[static_cast<std::size_t>(m)];
            for (std::size_t n = 0; n < y.size(); ++n) {
                if (same_value(s.y[n], device_[n])) continue;
                given += same_value(y[n], device_[n]);
                changed += !same_value(y[n], expected_[n]);
            }
            if (changed == 0) continue;
            if (has_array && converts_arrays(m)) arrays.push_back({4 * given + changed, m});
            else found.push_back(m);
        }
        std::stable_sort(arrays.begin(), arrays.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
        for (std::size_t k = 0; k < std::min(most_arrays, arrays.size()); ++k) found.push_back(arrays[k].second);
        return found;
    }
    /// Returns the pairs, made everywhere, that leave the fewest wrong values: the mistakes of a pair may explain nothing alone.
    std::vector<state> best_pairs(const std::vector<int>& known) {
        std::vector<std::size_t> some;  // enough to tell pairs apart
        const std::size_t step = std::max<std::size_t>(1, whole_.size() / 512);
        for (std::size_t n = 0; n < whole_.size(); n += step) some.push_back(n);
        std::vector<float> y(some.size());
        std::vector<std::pair<std::size_t, std::pair<int, int>>> found;
        for (std::size_t a = 0; a < known.size(); ++a) {
            for (std::size_t b = a + 1; b < known.size(); ++b) {
                if (about(known[a]) == about(known[b]) || (converts_arrays(known[a]) && converts_arrays(known[b]))) continue;
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
    /// Narrows the regions of mistakes that make differences where the device is right.
    state narrowed(state s) {
        for (std::size_t k = 0; k < s.mistakes.size() && s.added != 0; ++k) {
            std::vector<made> others = s.mistakes, wider = s.mistakes;
            others.erase(others.begin() + static_cast<std::ptrdiff_t>(k));
            wider[k].where = {};
            const state without = of(others), everywhere = of(wider);
            value_set better(all_.count()), worse(all_.count());
            for (std::size_t n = 0; n < device_.size(); ++n) {
                const bool was = same_value(without.y[n], device_[n]), is = same_value(everywhere.y[n], device_[n]);
                if (is && !was) better.insert(n);
                if (was && !is) worse.insert(n);
            }
            wider[k].where = all_.separate(better, worse, 64, changes_scales(wider[k].mistake));
            state narrow = of(wider);
            if (narrow.added < s.added) s = std::move(narrow);
        }
        return s;
    }
    /// Returns the values that a state gives as the device does.
    value_set given(const state& s) const {
        value_set v(device_.size());
        for (std::size_t n = 0; n < device_.size(); ++n) {
            if (same_value(s.y[n], device_[n])) v.insert(n);
        }
        return v;
    }
    /// Returns the positions that a state gets wrong.
    std::vector<std::size_t> wrong(const state& s) const {
        std::vector<std::size_t> at;
        for (std::size_t n = 0; n < device_.size(); ++n) {
            if (!same_value(s.y[n], device_[n])) at.push_back(predict_.at()[n]);
        }
        return at;
    }

  private:
    static topic about(int m) { return known_mistakes()[static_cast<std::size_t>(m)].about; }
    /// A wrong scale is that of a whole block: where only some of its values would be explained, it fits by chance.
    static bool changes_scales(int m) { return known_mistakes()[static_cast<std::size_t>(m)].scales != nullptr; }
    static bool converts_arrays(int m) {
        const mistake& k = known_mistakes()[static_cast<std::size_t>(m)];
        return k.settings != nullptr || k.input != nullptr || k.scales != nullptr || k.arrange != nullptr || k.path != nullptr;
    }
    /// Does value n, counted among those that the search looks at, lie in the region?
    bool holds(const region& r, std::size_t n) const {
        return std::all_of(r.properties.begin(), r.properties.end(), [&](int k) { return all_[k].values.contains(n); });
    }
    /// Predicts each value with the mistakes in whose regions it lies.
    void predict(const std::vector<made>& mistakes, std::vector<float>& y) {
        std::map<unsigned, std::vector<std::size_t>> groups;
        for (std::size_t n = 0; n < whole_.size(); ++n) {
            unsigned mask = 0;
            for (std::size_t k = 0; k < mistakes.size(); ++k) mask |= unsigned{holds(mistakes[k].where, n)} << k;
            groups[mask].push_back(n);
        }
        for (const auto& [mask, which] : groups) {
            mistake_set set;
            for (std::size_t k = 0; k < mistakes.size(); ++k) {
                if ((mask >> k & 1u) != 0) set.push_back(mistakes[k].mistake);
            }
            std::sort(set.begin(), set.end());
            set.erase(std::unique(set.begin(), set.end()), set.end());
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
        s.wrong = s.added = 0;
        for (std::size_t n = 0; n < s.y.size(); ++n) {
            const bool wrong = !same_value(s.y[n], device_[n]);
            s.wrong += wrong;
            s.added += wrong && same_value(expected_[n], device_[n]);
        }
        s.bits = value_bits * static_cast<double>(s.wrong);
        for (const made& m : s.mistakes)
            s.bits += mistake_bits + 0.02 * m.mistake + (about(m.mistake) == topic::semantics ? 2 : 0) +
                      property_bits * static_cast<double>(m.where.properties.size());  // the likelier first
    }

    const problem& p_;
    predictor predict_;
    properties all_;  ///< of the values that the search looks at
    std::vector<float> device_, expected_;
    std::vector<std::size_t> whole_;
    std::vector<std::vector<float>> alone_;  ///< by mistake: what it predicts alone
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

/// Returns the best states of every depth, the best first, and those of one mistake.
std::pair<std::vector<state>, std::vector<state>> best_states(search& look) {
    const std::vector<int> known = look.telling();
    const state nothing = look.nothing();
    double least = nothing.bits;
    std::vector<state> level{nothing}, found, singles;
    for (std::size_t depth = 1; depth <= deepest && least > mistake_bits * static_cast<double>(depth); ++depth) {
        std::vector<state> next;
        for (const state& s : level) {
            for (const int m : look.promising(s, known)) {
                if (auto more = look.extended(s, m)) next.push_back(std::move(*more));
            }
        }
        if (depth == 2) {
            for (state& s : look.best_pairs(known)) next.push_back(std::move(s));
        }
        if (depth == 1) singles = next;
        keep_best(next);
        if (next.empty()) break;
        least = std::min(least, next.front().bits);
        found.insert(found.end(), next.begin(), next.end());
        level = std::move(next);
    }
    std::erase_if(found, [&](const state& s) { return s.bits >= nothing.bits; });
    std::stable_sort(found.begin(), found.end(), shorter);
    std::stable_sort(singles.begin(), singles.end(), [](const state& a, const state& b) { return a.wrong < b.wrong; });
    return {std::move(found), std::move(singles)};
}

/// The judge of states, over all values.
class court {
  public:
    court(const problem& p, const properties& all, const value_set& differ)
        : p_(p), all_(all), differ_(differ), mismatches_(differ.count()), whole_(p, all, up_to(p.x.size())) {}

    /// Returns the state over all values, without mistakes that explain nothing or little beside what is left, if it explains four fifths
    /// of the differences and makes none where the device is right.
    std::optional<state> accepted(const state& s) {
        state w = whole_.of(s.mistakes);
        if (w.added != 0) w = whole_.narrowed(std::move(w));
        for (std::size_t k = 0; k < w.mistakes.size();) {
            const state others = without(w, k);
            if (noise * whole_.given(w).without(whole_.given(others)).count() > w.wrong) ++k;
            else w = others, k = 0;
        }
        if (w.mistakes.empty() || w.added != 0 || 5 * w.wrong > mismatches_) return std::nullopt;
        return w;
    }
    state over_all(const state& s) { return whole_.of(s.mistakes); }
    std::vector<std::size_t> wrong(const state& s) const { return whole_.wrong(s); }

    /// Describes mistake k of a state over all values.
    cause cause_of(const state& s, std::size_t k) {
        const state alone = whole_.of({s.mistakes[k]});
        const value_set given = whole_.given(s).without(whole_.given(without(s, k)));
        value_set explained = given & differ_;
        cause c{.sentence = sentence_of(known_mistakes()[static_cast<std::size_t>(s.mistakes[k].mistake)], p_),
                .where = {},
                .restricted = !s.mistakes[k].where.properties.empty(),
                .explains = explained.count(),
                .keeps = given.count() - explained.count(),
                .alone = whole_.given(alone).count_with(differ_),
                .makes = s.added};
        if (c.explains == 0) explained = given;
        c.where = location_of(all_, c.restricted ? s.mistakes[k].where : all_.describe(explained, 0.5), explained);
        return c;
    }
    /// Returns the mistake that comes nearest: it explains most differences, less those that it makes.
    std::optional<cause> nearest(const std::vector<state>& singles) {
        std::optional<cause> best;
        for (std::size_t k = 0; k < std::min(judged, singles.size()); ++k) {
            const cause c = cause_of(whole_.of(singles[k].mistakes), 0);
            const auto worth = [](const cause& a) {
                return std::pair(static_cast<double>(a.explains) - static_cast<double>(a.makes), a.explains);
            };
            if (c.explains > c.makes && (!best || worth(c) > worth(*best))) best = c;
        }
        return best;
    }

  private:
    state without(const state& s, std::size_t k) {
        std::vector<made> others = s.mistakes;
        others.erase(others.begin() + static_cast<std::ptrdiff_t>(k));
        return whole_.of(std::move(others));
    }
    const problem& p_;
    const properties& all_;
    const value_set& differ_;
    std::size_t mismatches_;
    search whole_;
};

}  // namespace

std::vector<hypothesis> diagnose(const problem& p, const properties& all, report& r) {
    const value_set differ = differing(p);
    r.where = describe(all, differ);

    court judge(p, all, differ);
    std::vector<std::size_t> at = values_to_search(all, differ);
    std::optional<state> final;
    std::vector<state> singles;
    for (std::size_t round = 0; round < rounds; ++round) {
        search look(p, all, at);
        std::vector<state> found;
        std::tie(found, singles) = best_states(look);
        std::optional<state> here;
        for (std::size_t k = 0; k < std::min(judged, found.size()) && !here; ++k) here = judge.accepted(look.simplified(found[k]));
        if (here && (!final || here->wrong < final->wrong)) final = here;
        if ((final && final->wrong == 0) || found.empty() || at.size() == p.x.size()) break;
        // What the best leaves wrong belongs to what the search looks at.
        std::vector<std::size_t> more = thinned(judge.wrong(here ? *here : judge.over_all(found.front())), searched / 2);
        more.insert(more.end(), at.begin(), at.end());
        std::sort(more.begin(), more.end());
        more.erase(std::unique(more.begin(), more.end()), more.end());
        if (more.size() == at.size()) break;
        at = std::move(more);
    }
    r.unexplained = final ? final->wrong : r.mismatches;
    if (!final) {
        r.nearest = judge.nearest(singles);
        return {};
    }
    for (std::size_t k = 0; k < final->mistakes.size(); ++k) r.causes.push_back(judge.cause_of(*final, k));
    std::stable_sort(r.causes.begin(), r.causes.end(), [](const cause& a, const cause& b) { return a.explains > b.explains; });
    if (final->mistakes.size() == 1) {
        for (const state& s : singles) {
            const made& other = s.mistakes.front();
            if (s.wrong != 0 || !other.where.properties.empty() || other.mistake == final->mistakes.front().mistake) continue;
            if (judge.over_all(s).wrong == 0)
                r.alternatives.push_back(sentence_of(known_mistakes()[static_cast<std::size_t>(other.mistake)], p));
        }
    }
    std::vector<hypothesis> made_of;
    for (const made& m : final->mistakes) {
        made_of.push_back({m.mistake, {}});
        for (const int k : m.where.properties) made_of.back().where.push_back(all[k].words);
    }
    return made_of;
}

std::vector<float> predicted(const problem& p, const properties& all, const std::vector<hypothesis>& hypotheses) {
    std::vector<made> mistakes;
    for (const hypothesis& h : hypotheses) {
        made m{h.mistake, {}};
        bool there = true;
        for (const std::string& words : h.where) {
            int k = 0;
            while (k < static_cast<int>(all.size()) && all[k].words != words) ++k;
            there = there && k < static_cast<int>(all.size());
            if (there) m.where.properties.push_back(k);
        }
        if (there) mistakes.push_back(std::move(m));
    }
    return search(p, all, up_to(p.x.size())).of(std::move(mistakes)).y;
}

}  // namespace qk::compare
