// SPDX-License-Identifier: Apache-2.0
// Moves of a search and their order. A move sets one layer to one option; it is ranked by how much it hurts and how much it saves.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "qk/graph/search/trials.hpp"

namespace qk::graph::detail {

/// One layer set to one option on top of some base assignment.
struct move {
    std::size_t layer;
    std::uint8_t option;
    double harm;    ///< how much worse the metric gets; negative: it gets better
    double error;   ///< added to the output's mean squared error
    double saving;  ///< cost saved
};

inline double harm_of(const metric& m, double base, double value) {
    if (std::isnan(value)) return std::numeric_limits<double>::infinity();
    return m.higher_is_better ? base - value : value - base;
}

/// Returns the moves from the wide model with harm and error as `estimate` has them; none if there are no estimates.
inline std::vector<move> estimated_moves(search_run& run, const search_run::estimate_function& estimate) {
    const search_space& space = run.space();
    std::vector<move> moves;
    if (!estimate) return moves;
    run.evaluate(space.all(0));
    const auto estimates = estimate();
    if (estimates.empty()) return moves;
    for (std::size_t l = 0; l < space.size(); ++l)
        for (std::size_t o = 1; o < space.options.size(); ++o)
            if (space.offers(l, o))
                moves.push_back(
                    {l, static_cast<std::uint8_t>(o), estimates[l][o].harm, estimates[l][o].error, space.cost[l][0] - space.cost[l][o]});
    return moves;
}

/// Stops a search under a target that has too few trials left to measure so many assignments: a part of them tells little, and others can
/// use the trials.
inline void needs_trials(const search_run& run, std::size_t count) {
    if (run.target && count > run.trials_left()) throw search_stopped{"trial limit"};
}

/// Measures layers at other options, each alone on top of `base`: those for which `wanted(layer, option)` is true. From the wide model it
/// returns estimates instead, if there are any.
template <class Wanted>
std::vector<move> measure_moves(search_run& run, const assignment& base, Wanted wanted) {
    const search_space& space = run.space();
    if (run.estimate_moves && base == space.all(0)) {
        std::vector<move> estimated = estimated_moves(run, run.estimate_moves);
        std::erase_if(estimated, [&](const move& m) { return !wanted(m.layer, m.option); });
        if (!estimated.empty()) return estimated;
        run.estimate_moves = nullptr;  // from now on moves are measured
    }
    std::vector<assignment> candidates{base};
    std::vector<move> moves;
    std::size_t fresh = 0;
    for (std::size_t l = 0; l < space.size(); ++l) {
        for (std::size_t o = 0; o < space.options.size(); ++o) {
            if (o == base[l] || !space.offers(l, o) || !wanted(l, static_cast<std::uint8_t>(o))) continue;
            assignment a = base;
            a[l] = static_cast<std::uint8_t>(o);
            fresh += !run.knows(a);
            candidates.push_back(a);
            moves.push_back({l, a[l], 0, 0, space.cost[l][base[l]] - space.cost[l][o]});
        }
    }
    needs_trials(run, fresh);
    const std::vector<score> scores = run.evaluate(candidates);
    for (std::size_t i = 0; i < moves.size(); ++i) {
        moves[i].harm = harm_of(run.measure(), scores[0].metric, scores[i + 1].metric);
        moves[i].error = std::isnan(scores[i + 1].error) ? std::numeric_limits<double>::infinity() : scores[i + 1].error - scores[0].error;
    }
    return moves;
}

/// Measures every layer at every other option, alone, on top of `base`.
inline std::vector<move> measure_moves(search_run& run, const assignment& base) {
    return measure_moves(run, base, [](std::size_t, std::uint8_t) { return true; });
}

/// Orders by ascending harm, then ascending error: accuracies often tie, errors hardly ever do.
template <class Row>
void order_by_harm(std::vector<Row>& rows) {
    std::stable_sort(rows.begin(), rows.end(),
                     [](const Row& a, const Row& b) { return a.harm != b.harm ? a.harm < b.harm : a.error < b.error; });
}

inline void order_by_error(std::vector<move>& moves) { std::ranges::stable_sort(moves, {}, &move::error); }
inline void order_by_saving(std::vector<move>& moves) { std::ranges::stable_sort(moves, std::greater(), &move::saving); }

/// Orders by ascending error per unit of cost saved; moves that save nothing come last.
inline void order_by_exchange(std::vector<move>& moves) {
    const auto rate = [](const move& m) {
        return m.saving > 0 ? std::max(m.error, 0.0) / m.saving : std::numeric_limits<double>::infinity();
    };
    std::stable_sort(moves.begin(), moves.end(),
                     [&](const move& a, const move& b) { return rate(a) != rate(b) ? rate(a) < rate(b) : a.error < b.error; });
}

/// Returns error[layer][option], which each move adds alone on top of the base, clamped to at least `least`.
inline std::vector<std::vector<double>> error_table(const search_space& space, const std::vector<move>& moves,
                                                    double least = -std::numeric_limits<double>::infinity()) {
    std::vector<std::vector<double>> error(space.size(), std::vector<double>(space.options.size(), 0.0));
    for (const move& m : moves) error[m.layer][m.option] = std::max(m.error, least);
    return error;
}

/// Measures the estimated moves around `place` of the ordered list, where the order decides, and orders the list again. Returns false if
/// all of them had been measured, if moves are not estimated, or if estimates only rank.
inline bool measure_around(search_run& run, const assignment& base, std::vector<move>& moves, std::size_t place) {
    if (!run.estimate_moves || run.estimates_only_rank) return false;
    const std::size_t reach = std::max<std::size_t>(moves.size() / 10, 4);
    const std::size_t first = place > reach ? place - reach : 0, last = std::min(place + reach, moves.size());
    std::vector<assignment> candidates{base};
    bool any_new = false;
    for (std::size_t i = first; i < last; ++i) {
        candidates.push_back(base);
        candidates.back()[moves[i].layer] = moves[i].option;
        any_new = any_new || !run.knows(candidates.back());
    }
    if (!any_new || candidates.size() > run.trials_left()) return false;
    const std::vector<score> scores = run.evaluate(candidates);
    for (std::size_t i = first; i < last; ++i) {
        const score& found = scores[i - first + 1];
        if (std::isnan(found.error)) continue;
        moves[i].harm = harm_of(run.measure(), scores[0].metric, found.metric);
        moves[i].error = found.error - scores[0].error;
    }
    order_by_harm(moves);
    return true;
}

/// Returns the base with the first `count` moves applied; of several moves of one layer the one that saves most holds.
inline assignment with_moves(const search_space& space, const assignment& base, const std::vector<move>& moves, std::size_t count) {
    assignment a = base;
    for (std::size_t i = 0; i < count; ++i) {
        const move& m = moves[i];
        if (space.cost[m.layer][m.option] < space.cost[m.layer][a[m.layer]] || a[m.layer] == base[m.layer]) a[m.layer] = m.option;
    }
    return a;
}

}  // namespace qk::graph::detail
