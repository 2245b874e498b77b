// SPDX-License-Identifier: Apache-2.0
// Searches that a limit may stop. Whatever the strategy, such a search begins with everything narrow, then narrows as much as a few trials
// can tell, then goes on as greedy does; the strategy gets the other trials. So none returns a mix that saves less than greedy's with that
// limit.
#pragma once

#include "graph/search/narrow_end.hpp"
#include "graph/search/pareto.hpp"

namespace qk::graph::detail {

/// Returns the moves that lead from one assignment to another, one for each layer that differs. They are in the order of what they are
/// estimated to add to the error for the cost that they save, or where nothing is estimated the largest saving comes first.
inline std::vector<move> moves_between(search_run& run, const assignment& from, const assignment& to) {
    const search_space& space = run.space();
    const std::vector<move> estimated = estimated_moves(run, run.order_moves ? run.order_moves : run.estimate_moves);
    const std::vector<std::vector<double>> error = error_table(space, estimated, 0);
    std::vector<move> moves;
    for (std::size_t l = 0; l < space.size(); ++l) {
        if (from[l] == to[l]) continue;
        const double added = error[l][to[l]] - error[l][from[l]];
        moves.push_back({l, to[l], added, added, space.cost[l][from[l]] - space.cost[l][to[l]]});
    }
    if (estimated.empty()) order_by_saving(moves);
    else order_by_exchange(moves);
    return moves;
}

/// Measures everything narrow, then by bisection how many layers can be narrow, in the order of moves_between(). Returns true if the search
/// is over: nothing is cheaper than what meets the target.
inline bool begin(search_run& run) {
    const search_space& space = run.space();
    const assignment wide = space.all(0);
    run.evaluate(wide);
    const narrow_start start = start_narrow(run, std::max<std::size_t>(run.trials_left() / 4, 1));
    const assignment cheapest_each = all_cheapest(space);
    if (start.met && space.cost_of(*start.met) <= space.cost_of(cheapest_each)) return true;
    const assignment from = start.met ? *start.met : wide;
    const std::vector<move> moves = moves_between(run, from, start.met ? cheapest_each : start.base);
    if (run.estimate_moves && !start.met) {
        longest_prefix(run, from, moves);
        return false;
    }
    std::size_t good = 0, bad = moves.size();
    while (bad > good + 1) {
        const std::size_t probe = good + (bad - good) / 2;
        (all_ok(run, with_moves(space, from, moves, probe)) ? good : bad) = probe;
    }
    return false;
}

/// From the best assignment that meets the target, tries what costs less in one layer after the other, and keeps what still meets it.
inline void narrow_on(search_run& run) {
    const search_space& space = run.space();
    if (!run.best() || !run.acceptable(*run.best())) return;
    assignment now = run.best()->choice;
    std::vector<assignment> aims{start_narrow(run, 0).base, all_cheapest(space)};
    for (assignment& a : uniform_narrow(space)) aims.push_back(std::move(a));
    for (const assignment& aim : aims)
        for (const move& m : moves_between(run, now, aim)) {
            assignment next = now;
            next[m.layer] = m.option;
            if (space.cost_of(next) < space.cost_of(now) && all_ok(run, next)) now = next;
        }
}

/// Narrows as greedy does where the trials suffice for it, and in any case layer by layer. Returns false if they did not suffice.
inline bool narrow_greedily(search_run& run) {
    bool complete = true;
    try {
        greedy_narrow(run);
    } catch (const search_stopped&) {
        if (run.trials_left() == 0 || run.limits().trials == 0) throw;
        complete = false;
    }
    narrow_on(run);
    return complete;
}

/// Without target and budget: measures a few mixes all along the front, so that it has both ends and something between.
inline void begin_front(search_run& run) {
    const search_space& space = run.space();
    const assignment wide = space.all(0);
    run.evaluate(wide);
    const std::size_t some = std::max<std::size_t>(run.trials_left() / 4, 1);
    const std::vector<assignment> narrow = uniform_narrow(space);
    for (std::size_t i = 0; i < std::min(some, narrow.size()); ++i) run.evaluate(narrow[i]);
    const std::vector<move> moves = moves_between(run, wide, start_narrow(run, 0).base);
    for (std::size_t i = 1; i <= some; ++i) run.evaluate(with_moves(space, wide, moves, moves.size() * i / (some + 1)));
}

inline void search_within_limits(const strategy& s, search_run& run) {
    if (s.check != nullptr) s.check(run);
    if (!run.target) {
        if (run.budget) run.evaluate(all_cheapest(run.space()));
        else begin_front(run);
        return s.search(run);
    }
    if (begin(run)) return;
    const bool complete = narrow_greedily(run);
    if (s.search != greedy || run.strategy_option == "widen") {
        s.search(run);
        narrow_on(run);
    }
    if (!complete) throw search_stopped{"trial limit"};
}

}  // namespace qk::graph::detail
