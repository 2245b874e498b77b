// SPDX-License-Identifier: Apache-2.0
// The narrow end of a search: which assignments have every layer narrow, which of them to start from, and greedy from there.
#pragma once

#include <cmath>
#include <map>

#include "graph/search/moves.hpp"

namespace qk::graph::detail {

// The strategy greedy from the wide end: narrows in ascending order of sensitivity until the target is about to break, skips what breaks
// it, goes on with the rest.

/// Returns the cheapest option of a layer; of equally cheap ones the last.
inline std::uint8_t cheapest(const search_space& space, std::size_t layer) {
    std::size_t best = 0;
    for (std::size_t o = 1; o < space.options.size(); ++o) {
        if (space.offers(layer, o) && space.cost[layer][o] <= space.cost[layer][best]) best = o;
    }
    return static_cast<std::uint8_t>(best);
}

inline assignment all_cheapest(const search_space& space) {
    assignment a = space.all(0);
    for (std::size_t l = 0; l < space.size(); ++l) a[l] = cheapest(space, l);
    return a;
}

inline bool all_ok(search_run& run, const assignment& a) {
    return run.meets_target(run.evaluate(a).metric) && run.fits_budget(run.space().cost_of(a));
}

/// Guesses the output error at which the metric reaches the target, from the trials so far: the logarithms of the two (for decibels, the
/// metric itself) lie near a line. Returns nullopt for accuracies, which small errors do not move, and where no line can be fitted.
inline std::optional<double> error_at_target(const search_run& run) {
    const metric& m = run.measure();
    const auto position = [&](double value) { return m.higher_is_better ? value : std::log(value); };
    if (m.is_accuracy || !run.target || !std::isfinite(position(*run.target))) return std::nullopt;
    double n = 0, x = 0, y = 0, xx = 0, xy = 0;
    for (const trial& t : run.history()) {
        const double at = position(t.result.metric), error = std::log(t.result.error);
        if (!std::isfinite(at) || !std::isfinite(error)) continue;
        n += 1, x += at, y += error, xx += at * at, xy += at * error;
    }
    const double spread = n * xx - x * x;
    if (n < 2 || !(spread > 0)) return std::nullopt;
    const double slope = (n * xy - x * y) / spread, guess = std::exp((y + slope * (n * position(*run.target) - x)) / n);
    return std::isfinite(guess) ? std::optional(guess) : std::nullopt;
}

/// Guesses how many leading moves keep the target, assuming that the errors which they cause alone add up.
inline std::optional<std::size_t> guess_prefix(const search_run& run, const assignment& base, const std::vector<move>& moves) {
    const std::optional<double> limit = error_at_target(run);
    if (!limit) return std::nullopt;
    const search_space& space = run.space();
    const std::vector<std::vector<double>> error = error_table(space, moves);
    for (std::size_t count = moves.size(); count > 0; --count) {
        const assignment a = with_moves(space, base, moves, count);
        double sum = run.history().front().result.error;
        for (std::size_t l = 0; l < a.size(); ++l) sum += error[l][a[l]];
        if (sum <= *limit) return count;
    }
    return 1;
}

/// Returns the length of the longest run of leading moves that keeps the target: searches from a guess outwards in growing steps, then by
/// bisection; the run it returns was measured. The metric need not be monotone, so the caller tries the remaining moves again one by one.
inline std::size_t longest_prefix(search_run& run, const assignment& base, const std::vector<move>& moves) {
    const std::size_t all = moves.size();
    const std::optional<std::size_t> guess = guess_prefix(run, base, moves);
    std::size_t good = 0, bad = all + 1, probe = guess.value_or(all), step = guess ? 1 : std::max<std::size_t>(all / 2, 1);
    while (bad - good > 1) {
        (run.meets_target(run.evaluate(with_moves(run.space(), base, moves, probe)).metric) ? good : bad) = probe;
        if (bad > all) probe = std::min(good + step, all);
        else if (good == 0 && bad > step) probe = bad - step;
        else probe = good + (bad - good) / 2;
        step *= 2;
    }
    return good;
}

/// Tries the moves from `first` on and keeps each with which the target still holds. A move that alone, on top of `base`, breaks the target
/// is skipped. The next moves are measured together, since they share most of the network, and more of them the longer none was kept.
/// Behind the longest run of leading moves hardly any is kept (in two of 22 searches), so the first batch is large.
inline assignment add_one_by_one(search_run& run, const assignment& base, assignment now, const std::vector<move>& moves,
                                 std::size_t first) {
    const search_space& space = run.space();
    const bool limited = run.limits().trials > 0;  // then a measurement too many is one too few elsewhere
    std::size_t together = limited ? 1 : 16;
    for (std::size_t i = first; i < moves.size();) {
        std::vector<assignment> next;
        std::vector<std::size_t> index;
        for (; i < moves.size() && next.size() < together; ++i) {
            assignment alone = base, a = now;
            alone[moves[i].layer] = a[moves[i].layer] = moves[i].option;
            if (a == now || space.cost_of(a) > space.cost_of(now)) continue;
            const bool to_measure =
                run.knows(alone) || (!run.estimate_moves && !limited);  // estimated moves are not measured just for this check
            if (to_measure && !run.meets_target(run.evaluate(alone).metric)) continue;
            next.push_back(std::move(a));
            index.push_back(i);
        }
        const std::vector<score> scores = run.evaluate(next);
        const auto kept =
            std::find_if(scores.begin(), scores.end(), [&](const score& s) { return run.meets_target(s.metric); }) - scores.begin();
        if (!limited) together *= 2;
        if (kept == static_cast<std::ptrdiff_t>(next.size())) continue;
        now = next[static_cast<std::size_t>(kept)];
        i = index[static_cast<std::size_t>(kept)] + 1;
        if (!limited) together = 4;
    }
    return now;
}

/// Is true when every layer has one option that is cheaper than all its others.
inline bool has_one_cheapest(const search_space& space) {
    const assignment last = all_cheapest(space);
    for (std::size_t l = 0; l < space.size(); ++l)
        for (std::size_t o = 0; o < space.options.size(); ++o)
            if (o != last[l] && space.offers(l, o) && space.cost[l][o] == space.cost[l][last[l]]) return false;
    return true;
}

/// Is true when it is worth measuring everything at its cheapest first: always if moves are estimated or a user's program measures, whose
/// trials are dear, else if a peek says so.
inline bool may_be_cheapest(const search_run& run) {
    if (run.estimate_moves || is_users(run.measure())) return true;
    const std::optional<double> about = run.peek ? run.peek(all_cheapest(run.space())) : std::nullopt;
    return about && run.meets_target(*about);
}

inline void greedy_narrow(search_run& run) {
    const assignment wide = run.space().all(0);
    // If the cheapest assignment meets the target, no moves need to be measured or estimated.
    if (run.target && has_one_cheapest(run.space()) && may_be_cheapest(run) && all_ok(run, all_cheapest(run.space()))) return;
    std::vector<move> moves = measure_moves(run, wide);
    order_by_harm(moves);
    std::size_t prefix = longest_prefix(run, wide, moves);
    while (measure_around(run, wide, moves, prefix)) prefix = longest_prefix(run, wide, moves);
    add_one_by_one(run, wide, with_moves(run.space(), wide, moves, prefix), moves, prefix);
}

/// Returns assignments with every layer narrow, cheapest first: of layers that are offered the same options all have the same one. With
/// lists of alternatives the first has the first of each list.
inline std::vector<assignment> uniform_narrow(const search_space& space) {
    std::map<std::vector<bool>, std::vector<std::size_t>> alike;  // layers, by what they are offered
    for (std::size_t l = 0; l < space.size(); ++l)
        alike[space.offered.empty() ? std::vector<bool>(space.options.size(), true) : space.offered[l]].push_back(l);
    std::vector<std::pair<std::vector<std::size_t>, std::vector<std::uint8_t>>> groups;
    std::size_t longest = 1;
    for (const auto& [offered, layers] : alike) {
        std::vector<std::uint8_t> options;
        for (std::size_t o = 1; o < offered.size(); ++o)
            if (offered[o]) options.push_back(static_cast<std::uint8_t>(o));
        const auto cost = [&, &layers = layers](std::uint8_t o) {
            double sum = 0;
            for (const std::size_t l : layers) sum += space.cost[l][o];
            return sum;
        };
        std::ranges::stable_sort(options, {}, cost);
        longest = std::max(longest, options.size());
        if (!options.empty()) groups.emplace_back(layers, std::move(options));
    }
    std::vector<assignment> all;
    for (std::size_t k = 0; k < longest; ++k) {
        assignment a = space.all(0);
        for (const auto& [layers, options] : groups)
            for (const std::size_t l : layers) a[l] = options[std::min(k, options.size() - 1)];
        all.push_back(std::move(a));
    }
    const assignment cheapest_each = all_cheapest(space);  // where the order of costs is not the same in all layers
    if (space.cost_of(cheapest_each) < space.cost_of(all.front())) all.insert(all.begin(), cheapest_each);
    return all;
}

/// What measuring uniform_narrow() found.
struct narrow_start {
    assignment base;                ///< the one that does best among those that cost hardly more than the cheapest
    std::optional<assignment> met;  ///< the cheapest that meets target and budget
};

/// Measures everything narrow, cheapest first, until target and budget are met: at most `most` new assignments, and those that are known.
inline narrow_start start_narrow(search_run& run, std::size_t most) {
    const search_space& space = run.space();
    const std::vector<assignment> all = uniform_narrow(space);
    const double least = space.cost_of(all.front()), near = least + 0.05 * (space.cost_of(space.all(0)) - least);
    narrow_start start{all.front(), std::nullopt};
    std::optional<double> best;
    for (const assignment& a : all) {
        if (!run.knows(a) && most == 0) continue;
        if (!run.knows(a)) --most;
        const score s = run.evaluate(a);
        if (space.cost_of(a) <= near && (!best || better(run.measure(), s.metric, *best))) start.base = a, best = s.metric;
        if (all_ok(run, a)) {
            start.met = a;
            break;
        }
    }
    return start;
}

/// Returns all_cheapest(), but where several options of a layer cost the same (one format under several calibration methods), takes the one
/// whose output error is least when that layer alone is narrow.
inline assignment all_narrowest(search_run& run) {
    const search_space& space = run.space();
    const assignment wide = space.all(0), last = all_cheapest(space);
    std::vector<assignment> candidates;
    std::vector<std::pair<std::size_t, std::uint8_t>> which;
    for (std::size_t l = 0; l < space.size(); ++l) {
        std::vector<std::uint8_t> equal;
        for (std::size_t o = 1; o < space.options.size(); ++o)
            if (space.offers(l, o) && space.cost[l][o] == space.cost[l][last[l]]) equal.push_back(static_cast<std::uint8_t>(o));
        for (const std::uint8_t o : equal) {
            if (equal.size() == 1) break;
            candidates.push_back(wide);
            candidates.back()[l] = o;
            which.emplace_back(l, o);
        }
    }
    if (candidates.empty()) return last;
    needs_trials(run, candidates.size());
    const std::vector<score> scores = run.evaluate(candidates);
    assignment a = last;
    std::vector<double> least(space.size(), std::numeric_limits<double>::infinity());
    for (std::size_t i = 0; i < which.size(); ++i) {
        const auto [l, o] = which[i];
        if (scores[i].error < least[l]) least[l] = scores[i].error, a[l] = o;
    }
    return a;
}

/// Returns everything narrow, as widening starts from it: at one option in all layers, or at the best of equally cheap ones in each,
/// whichever does better. Returns nullopt if it meets target and budget.
inline std::optional<assignment> narrow_base(search_run& run) {
    const narrow_start start = start_narrow(run, std::max<std::size_t>(run.trials_left() / 4, 1));
    if (start.met && *start.met == start.base) return std::nullopt;
    const search_space& space = run.space();
    if (has_one_cheapest(space) || run.trials_left() < space.size() * space.options.size()) return start.base;
    const assignment each = all_narrowest(run);
    if (all_ok(run, each)) return std::nullopt;
    return better(run.measure(), run.evaluate(start.base).metric, run.evaluate(each).metric) ? start.base : each;
}

/// Measures each layer alone wide, on top of `narrow`.
inline std::vector<move> widenings(search_run& run, const assignment& narrow) {
    return measure_moves(run, narrow, [](std::size_t, std::uint8_t o) { return o == 0; });
}

/// Starts from everything narrow, widens the layers that hurt most, as few as the target allows, then narrows again those that need not be
/// wide.
inline void greedy_widen(search_run& run) {
    const search_space& space = run.space();
    const std::optional<assignment> base = narrow_base(run);
    if (!base) return;
    const assignment& narrow = *base;
    std::vector<move> moves = widenings(run, narrow);
    order_by_harm(moves);  // most negative harm first: widening helps most there
    std::size_t bad = 0, good = moves.size();
    const auto widened = [&](std::size_t count) {
        assignment a = narrow;
        for (std::size_t i = 0; i < count; ++i) a[moves[i].layer] = 0;
        return a;
    };
    if (!run.meets_target(run.evaluate(widened(good)).metric)) return;
    while (good - bad > 1) {
        const std::size_t probe = bad + (good - bad) / 2;
        (run.meets_target(run.evaluate(widened(probe)).metric) ? good : bad) = probe;
    }
    assignment now = widened(good);
    for (std::size_t i = good; i-- > 0;) {  // least helpful first
        for (std::size_t o = space.options.size(); o-- > 1;) {
            assignment next = now;
            next[moves[i].layer] = static_cast<std::uint8_t>(o);
            if (!space.offers(moves[i].layer, o) || space.cost_of(next) >= space.cost_of(now)) continue;
            if (run.meets_target(run.evaluate(next).metric)) now = next;
        }
    }
}

inline void greedy(search_run& run) { run.strategy_option == "widen" ? greedy_widen(run) : greedy_narrow(run); }

}  // namespace qk::graph::detail
