// SPDX-License-Identifier: Apache-2.0
// The narrow end of a search: which assignments have every layer narrow, which of them to start from, and greedy from there.
#pragma once

#include <map>

#include "graph/search/greedy.hpp"

namespace qk::graph::detail {

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
