// SPDX-License-Identifier: Apache-2.0
// greedy: narrow in ascending order of sensitivity until the target is about to break, skip what breaks it, go on with the rest.
#pragma once

#include "qk/graph/search/moves.hpp"

namespace qk::graph::detail {

/// Index of the cheapest option of a layer; of equally cheap ones the last named.
inline std::uint8_t cheapest(const search_space& space, std::size_t layer) {
    std::size_t best = 0;
    for (std::size_t o = 1; o < space.options.size(); ++o) {
        if (space.cost[layer][o] <= space.cost[layer][best]) best = o;
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

/// The longest run of leading moves that keeps the target, found by bisection and measured at its end: the metric need not be monotone,
/// so what bisection passes over is tried again one by one by the caller.
inline std::size_t longest_prefix(search_run& run, const assignment& base, const std::vector<move>& moves) {
    std::size_t good = 0, bad = moves.size() + 1;
    std::size_t probe = moves.size();  // most searches first ask whether everything may be narrow
    while (bad - good > 1) {
        if (run.meets_target(run.evaluate(with_moves(run.space(), base, moves, probe)).metric)) {
            good = probe;
        } else {
            bad = probe;
        }
        probe = good + (bad - good) / 2;
    }
    return good;
}

inline void greedy_narrow(search_run& run) {
    const search_space& space = run.space();
    const assignment wide = space.all(0);
    std::vector<move> moves = measure_moves(run, wide);
    order_by_harm(moves);
    const std::size_t prefix = longest_prefix(run, wide, moves);
    assignment now = with_moves(space, wide, moves, prefix);
    for (std::size_t i = prefix; i < moves.size(); ++i) {
        assignment next = now;
        next[moves[i].layer] = moves[i].option;
        if (space.cost_of(next) > space.cost_of(now) || next == now) continue;
        if (run.meets_target(run.evaluate(next).metric)) now = next;
    }
}

/// From everything narrow: widen the layers that hurt most, as few as the target allows, then narrow again what proves needless.
inline void greedy_widen(search_run& run) {
    const search_space& space = run.space();
    const assignment narrow = all_cheapest(space);
    if (all_ok(run, narrow)) return;
    std::vector<move> moves;
    for (const move& m : measure_moves(run, narrow)) {
        if (m.option == 0) moves.push_back(m);
    }
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
            if (space.cost_of(next) >= space.cost_of(now)) continue;
            if (run.meets_target(run.evaluate(next).metric)) now = next;
        }
    }
}

inline void greedy(search_run& run) { run.strategy_option == "widen" ? greedy_widen(run) : greedy_narrow(run); }

}  // namespace qk::graph::detail
