// SPDX-License-Identifier: Apache-2.0
// The strategies pareto, which finds the front of accuracy against cost, and budget, which finds the best metric under a cost as a knapsack
// over measured sensitivities.
#pragma once

#include <cmath>

#include "graph/search/narrow_end.hpp"

namespace qk::graph::detail {

/// Chooses one option per layer with the least sum of errors whose cost stays within `budget` (multiple-choice knapsack). Layer by layer it
/// keeps the partial choices that no other beats in both cost and error, which is exact; above `most_states` of them it keeps only the most
/// accurate in each step of cost, which bounds time and memory. Returns nullopt if no choice fits.
inline std::optional<assignment> knapsack(const search_space& space, const std::vector<std::vector<double>>& error, double budget,
                                          std::size_t most_states = 8192) {
    struct state {
        double cost, error;
        std::uint32_t before;  // index into the states of the layer before
        std::uint8_t option;
    };
    // rest[l] is the least cost of layer l and all behind it. A state that leaves less room than that is dropped at once.
    std::vector<double> rest(space.size() + 1, 0.0);
    for (std::size_t l = space.size(); l-- > 0;) rest[l] = rest[l + 1] + space.cost[l][cheapest(space, l)];
    const double room = budget - space.fixed_cost + 1e-9 * std::abs(budget);
    std::vector<std::vector<state>> layers{{{0, 0, 0, 0}}};
    for (std::size_t l = 0; l < space.size(); ++l) {
        std::vector<state> next;
        for (std::size_t i = 0; i < layers[l].size(); ++i) {
            for (std::size_t o = 0; o < space.options.size(); ++o) {
                const double cost = layers[l][i].cost + space.cost[l][o];
                if (!space.offers(l, o) || cost + rest[l + 1] > room || !std::isfinite(error[l][o])) continue;
                next.push_back({cost, layers[l][i].error + error[l][o], static_cast<std::uint32_t>(i), static_cast<std::uint8_t>(o)});
            }
        }
        if (next.empty()) return std::nullopt;
        std::sort(next.begin(), next.end(),
                  [](const state& x, const state& y) { return x.cost != y.cost ? x.cost < y.cost : x.error < y.error; });
        std::vector<state> kept;
        for (const state& s : next) {
            if (kept.empty() || s.error < kept.back().error) kept.push_back(s);
        }
        if (kept.size() > most_states) {
            const double step = (kept.back().cost - kept.front().cost) / double(most_states);
            std::vector<state> thinned{kept.front()};
            for (std::size_t i = 1; i < kept.size(); ++i) {  // errors fall as costs rise: the last of a step is its most accurate
                if (i + 1 == kept.size() || std::floor(kept[i + 1].cost / step) != std::floor(kept[i].cost / step))
                    thinned.push_back(kept[i]);
            }
            kept = std::move(thinned);
        }
        layers.push_back(std::move(kept));
    }
    assignment a(space.size());
    std::size_t at = layers.back().size() - 1;
    for (std::size_t l = space.size(); l-- > 0;) {
        a[l] = layers[l + 1][at].option;
        at = layers[l + 1][at].before;
    }
    return a;
}

/// Tries each move once, from an acceptable assignment, and keeps those whose result is better and still acceptable: without a budget it
/// narrows layers while the target has room, with a budget it widens them while the budget has room. Returns the last assignment kept.
inline assignment polish(search_run& run, assignment now, const std::vector<move>& moves) {
    const search_space& space = run.space();
    double metric_now = run.evaluate(now).metric;
    for (const move& m : moves) {
        assignment next = now;
        next[m.layer] = run.budget ? 0 : m.option;
        const double cost = space.cost_of(next);
        if (next == now || !run.fits_budget(cost) || (!run.budget && cost >= space.cost_of(now))) continue;
        const double value = run.evaluate(next).metric;
        if (run.budget ? better(run.measure(), value, metric_now) : run.meets_target(value)) {
            now = next;
            metric_now = value;
        }
    }
    return now;
}

/// Returns the point of the front farthest above the line between its ends, both axes scaled to 1.
inline const trial& knee(const std::vector<trial>& front) {
    const trial &a = front.front(), &b = front.back();
    const double cost_span = std::max(b.cost - a.cost, 1e-300), metric_span = b.result.metric - a.result.metric;
    const trial* best = &b;
    double farthest = -1;
    for (const trial& t : front) {
        const double gain = metric_span == 0 ? 0 : (t.result.metric - a.result.metric) / metric_span;
        const double distance = gain - (t.cost - a.cost) / cost_span;
        if (distance > farthest) {
            farthest = distance;
            best = &t;
        }
    }
    return *best;
}

/// Appends to `to` the knapsack solutions for budgets evenly spaced between `least` and `most`.
inline void add_knapsacks(const search_space& space, const std::vector<std::vector<double>>& error, double least, double most,
                          std::vector<assignment>& to) {
    constexpr int steps = 16;
    for (int i = 1; i < steps; ++i) {
        if (auto a = knapsack(space, error, least + (most - least) * i / steps)) to.push_back(*a);
    }
}

/// Appends candidates from the narrow end, where errors do not add up as they do at the wide end: prefixes of the widenings, ordered by
/// error removed per cost, and knapsack solutions over the error that each layer's narrowness adds there.
inline void from_narrow(search_run& run, const assignment& narrow, std::vector<assignment>& candidates) {
    const search_space& space = run.space();
    std::vector<move> moves = measure_moves(run, narrow);
    std::vector<std::vector<double>> error = error_table(space, moves);
    for (std::vector<double>& row : error) {
        const double lowest = *std::min_element(row.begin(), row.end());
        for (double& e : row) e -= lowest;
    }
    add_knapsacks(space, error, space.cost_of(narrow), space.cost_of(space.all(0)), candidates);
    const auto gain = [](const move& m) { return m.error / std::max(-m.saving, 1e-300); };  // the most negative gains most
    std::stable_sort(moves.begin(), moves.end(), [&](const move& a, const move& b) { return gain(a) < gain(b); });
    assignment a = narrow;
    for (const move& m : moves) {
        a[m.layer] = m.option;
        candidates.push_back(a);
    }
}

/// Finds mixes that the assumption of additive errors misses: for a few rounds it measures mixtures of two neighbours on the front, half of
/// them with the options of two layers exchanged, most of them where the front has its widest gaps.
inline void refine(search_run& run) {
    const search_space& space = run.space();
    const auto below = [&](std::size_t n) { return static_cast<std::size_t>(run.random()() % n); };
    const std::size_t each_round = 2 * space.size() * (space.options.size() - 1);
    for (int round = 0; round < 4; ++round) {
        const std::vector<trial> front = run.front();
        if (front.size() < 2) return;
        const double span = front.back().cost - front.front().cost;
        std::vector<assignment> candidates;
        for (std::size_t i = 0; i < each_round; ++i) {
            const double at = front.front().cost + span * double(below(1u << 20)) / double(1u << 20);
            std::size_t gap = 0;
            while (gap + 2 < front.size() && front[gap + 1].cost <= at) ++gap;
            assignment a = front[gap].choice;
            for (std::size_t l = 0; l < a.size(); ++l) {
                if (below(2) == 0) a[l] = front[gap + 1].choice[l];
            }
            if (i % 2 == 0) {
                const std::size_t x = below(a.size()), y = below(a.size());
                if (space.offers(x, a[y]) && space.offers(y, a[x])) std::swap(a[x], a[y]);
            }
            candidates.push_back(std::move(a));
        }
        run.evaluate(candidates);
    }
}

/// pareto: measures candidates for the front. From the wide end come prefixes of the narrowings (ordered by error per cost saved, by error
/// alone and by cost saved alone) and knapsack solutions; then candidates from the narrow end; then mixtures around the front so far.
/// Without target and budget the result is the knee.
inline void pareto(search_run& run) {
    const search_space& space = run.space();
    const assignment wide = space.all(0);
    std::vector<move> moves = measure_moves(run, wide);
    const assignment narrow = all_narrowest(run);
    const double least = space.cost_of(narrow), most = space.cost_of(wide);
    std::vector<assignment> candidates;
    add_knapsacks(space, error_table(space, moves, 0), least, most, candidates);  // errors below 0 count as 0: they are noise
    for (const auto order : {order_by_error, order_by_exchange, order_by_saving}) {
        order(moves);
        for (std::size_t k = 1; k <= moves.size(); ++k) candidates.push_back(with_moves(space, wide, moves, k));
    }
    for (std::size_t o = 1; o < space.options.size(); ++o) candidates.push_back(space.all(static_cast<std::uint8_t>(o)));

    if (std::isfinite(run.evaluate(narrow).error)) from_narrow(run, narrow, candidates);
    run.evaluate(candidates);
    refine(run);
    if (run.target || run.budget) {
        const trial best = *run.best();
        if (run.acceptable(best)) polish(run, best.choice, moves);  // ordered by saving here, largest first
    } else {
        run.settle_on(knee(run.front()));
    }
}

/// budget: with a budget, measures and polishes its knapsack solution. With a target alone, bisects for the smallest budget whose knapsack
/// solution meets the target.
inline void budget(search_run& run) {
    const search_space& space = run.space();
    std::vector<move> moves = measure_moves(run, space.all(0));
    const std::vector<std::vector<double>> error = error_table(space, moves, 0);
    order_by_exchange(moves);
    if (run.budget) {
        if (const auto a = knapsack(space, error, *run.budget)) {
            run.evaluate(*a);
            polish(run, *a, moves);
        } else {  // nothing fits: measure the cheapest, which comes nearest to the budget
            run.evaluate(all_cheapest(space));
        }
        return;
    }
    double high = space.cost_of(space.all(0)), low = space.fixed_cost;
    for (std::size_t l = 0; l < space.size(); ++l) low += space.cost[l][cheapest(space, l)];
    std::optional<assignment> good;
    if (auto a = knapsack(space, error, low); a && run.meets_target(run.evaluate(*a).metric)) return;
    for (int i = 0; i < 12 && high - low > 1e-4 * high; ++i) {
        const double middle = low + (high - low) / 2;
        const auto a = knapsack(space, error, middle);
        if (a && run.meets_target(run.evaluate(*a).metric)) {
            good = a;
            high = std::min(middle, space.cost_of(*a));
        } else {
            low = middle;
        }
    }
    if (good) polish(run, *good, moves);
}

}  // namespace qk::graph::detail
