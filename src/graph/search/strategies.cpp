// SPDX-License-Identifier: Apache-2.0
// The table of strategies, and how one runs. To add one, write a function of search_run& and name it here.
#include <Eigen/Cholesky>
#include <Eigen/Core>

#include <cmath>
#include <cstdio>
#include <set>

#include "graph/search/narrow_end.hpp"
#include "graph/search/pareto.hpp"

namespace qk::graph {
namespace detail {

// The accuracy-aware strategies of Intel Neural Compressor: basic, mse, hawq_v2, bayesian, random, exhaustive.

/// Widens one layer after the other, in the given order, until the target is met. Where there are too few trials for that it finds their
/// number by bisection.
inline void fall_back(search_run& run, const assignment& narrow, const std::vector<std::size_t>& order) {
    assignment now = narrow;
    if (order.size() > run.trials_left()) {
        std::size_t bad = 0, good = order.size();
        while (good > bad + 1) {
            const std::size_t probe = bad + (good - bad) / 2;
            now = narrow;
            for (std::size_t i = 0; i < probe; ++i) now[order[i]] = 0;
            (all_ok(run, now) ? good : bad) = probe;
        }
        return;
    }
    for (const std::size_t l : order) {
        now[l] = 0;
        if (all_ok(run, now)) return;
    }
}

/// basic: tries everything narrow, then each single layer wide, then widens the best of these together until the target is met.
inline void basic(search_run& run) {
    const std::optional<assignment> narrow = narrow_base(run);
    if (!narrow) return;
    std::vector<move> moves = widenings(run, *narrow);
    order_by_harm(moves);
    std::vector<std::size_t> order;
    bool enough = false;  // one layer was
    for (const move& m : moves) {
        assignment alone = *narrow;
        alone[m.layer] = 0;
        enough = enough || all_ok(run, alone);
        order.push_back(m.layer);
    }
    if (!enough) fall_back(run, *narrow, order);
}

/// mse: widens layers in the order of the output error that each causes when it alone is narrow, largest first.
inline void mse(search_run& run) {
    const std::optional<assignment> narrow = narrow_base(run);
    if (!narrow) return;
    std::vector<move> moves = measure_moves(run, run.space().all(0), [&](std::size_t l, std::uint8_t o) { return o == (*narrow)[l]; });
    std::stable_sort(moves.begin(), moves.end(), [](const move& a, const move& b) { return a.error > b.error; });
    std::vector<std::size_t> order;
    for (const move& m : moves) order.push_back(m.layer);
    fall_back(run, *narrow, order);
}

inline void check_hawq_v2(const search_run& run) {
    if (!run.weigh_by_hessian) throw error("strategy hawq_v2 needs a model that gradients flow through");
}

/// hawq_v2: widens layers in the order of the average Hessian trace times the squared error of the weights, largest first.
inline void hawq_v2(search_run& run) {
    check_hawq_v2(run);
    const narrow_start start = start_narrow(run, std::max<std::size_t>(run.trials_left() / 4, 1));
    if (start.met && *start.met == start.base) return;
    const std::vector<double> weight = run.weigh_by_hessian(start.base);
    std::vector<std::size_t> order(weight.size());
    for (std::size_t l = 0; l < order.size(); ++l) order[l] = l;
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return weight[a] > weight[b]; });
    fall_back(run, start.base, order);
}

inline assignment random_assignment(search_run& run) {
    assignment a(run.space().size());
    for (std::size_t l = 0; l < a.size(); ++l) do
            a[l] = static_cast<std::uint8_t>(run.random()() % run.space().options.size());
        while (!run.space().offers(l, a[l]));
    return a;
}

/// Returns the number of assignments, or `limit` if there are more.
inline std::size_t count_assignments(const search_space& space, std::size_t limit) {
    std::size_t n = 1;
    for (std::size_t l = 0; l < space.size() && n < limit; ++l) {
        std::size_t own = 0;
        for (std::size_t o = 0; o < space.options.size(); ++o) own += space.offers(l, o);
        n *= own;
    }
    return std::min(n, limit);
}

inline constexpr std::size_t default_trials = 100;  ///< of strategies that would not end by themselves

/// Returns how many trials such a strategy makes: the limit's, or those.
inline std::size_t trials_of(const search_run& run) { return run.limits().trials > 0 ? run.limits().trials : default_trials; }

/// random: measures everything narrow, then draws assignments uniformly; ends after 100 of them if there is no limit.
inline void random(search_run& run) {
    const std::size_t all = count_assignments(run.space(), std::size_t{1} << 40);
    std::set<assignment> seen{run.space().all(0)};
    const auto draw = [&](assignment a) {
        if (seen.insert(a).second) run.evaluate(a);
    };
    const std::size_t most = std::min(all, trials_of(run));
    for (const assignment& a : uniform_narrow(run.space())) {
        draw(a);
        if (run.target && all_ok(run, a) && run.space().cost_of(a) <= run.space().cost_of(all_cheapest(run.space()))) return;
    }
    for (std::size_t tries = 0; seen.size() < most && tries < 100 * most; ++tries) draw(random_assignment(run));
}

inline void check_exhaustive(const search_run& run) {
    const search_space& space = run.space();
    constexpr std::size_t most = std::size_t{1} << 20;
    if (count_assignments(space, most + 1) > most) {
        throw error("strategy exhaustive: " + std::to_string(space.size()) + " layers with " + std::to_string(space.options.size()) +
                    " options each are more than 2^20 assignments; restrict --layers or choose another strategy");
    }
}

/// exhaustive: measures every assignment, cheapest first, until one meets the target. Assignments of equal cost are all measured, so the
/// best of them is found.
inline void exhaustive(search_run& run) {
    check_exhaustive(run);
    const search_space& space = run.space();
    std::vector<assignment> all;
    assignment a = space.all(0);
    do {
        all.push_back(a);
        std::size_t l = 0;
        const auto next = [&] {
            while (++a[l] < space.options.size() && !space.offers(l, a[l])) {
            }
            return a[l] < space.options.size();
        };
        while (l < a.size() && !next()) a[l++] = 0;
        if (l == a.size()) break;
    } while (true);
    std::stable_sort(all.begin(), all.end(), [&](const assignment& x, const assignment& y) { return space.cost_of(x) < space.cost_of(y); });
    for (std::size_t i = 0; i < all.size(); ++i) {
        const bool met = all_ok(run, all[i]);
        const bool last_of_rank = i + 1 == all.size() || space.cost_of(all[i + 1]) > space.cost_of(all[i]);
        if (last_of_rank && (met || run.acceptable(*run.best())) && run.best()->cost <= space.cost_of(all[i])) return;
    }
}

/// bayesian: a Gaussian process over assignments (kernel: exp(-share of layers that differ / 0.2)) models the objective; the next trial is
/// the candidate of largest expected improvement. Objective: the cost, plus a penalty for missing the target.
inline void bayesian(search_run& run) {
    const search_space& space = run.space();
    const std::size_t all = count_assignments(space, std::size_t{1} << 40), budget_trials = std::min(all, trials_of(run));
    for (const assignment& a : uniform_narrow(space)) {
        run.evaluate(a);
        if (run.target && all_ok(run, a) && space.cost_of(a) <= space.cost_of(all_cheapest(space))) return;
    }
    for (int i = 0; i < 6; ++i) run.evaluate(random_assignment(run));
    const auto kernel = [&](const assignment& a, const assignment& b) {
        std::size_t differ = 0;
        for (std::size_t l = 0; l < a.size(); ++l) differ += a[l] != b[l];
        return std::exp(-double(differ) / (0.2 * double(a.size())));
    };
    const double least_cost = space.cost_of(all_cheapest(space)), cost_span = std::max(space.cost_of(space.all(0)) - least_cost, 1e-300);
    const auto objective = [&](const trial& t) {
        double miss = run.fits_budget(t.cost) ? 0.0 : 1.0;
        if (!run.meets_target(t.result.metric))
            miss += 1.0 + std::min(std::abs(t.result.metric - *run.target) / (std::abs(*run.target) + 1e-12), 1.0);
        return (t.cost - least_cost) / cost_span + miss;
    };
    for (std::size_t stalled = 0; run.history().size() < budget_trials && stalled < 20;) {
        const std::vector<trial>& h = run.history();
        const auto n = static_cast<Eigen::Index>(h.size());
        Eigen::MatrixXd gram(n, n);
        Eigen::VectorXd y(n);
        for (Eigen::Index i = 0; i < n; ++i) {
            y[i] = objective(h[static_cast<std::size_t>(i)]);
            for (Eigen::Index j = 0; j <= i; ++j) {
                gram(i, j) = gram(j, i) =
                    kernel(h[static_cast<std::size_t>(i)].choice, h[static_cast<std::size_t>(j)].choice) + (i == j ? 1e-6 : 0.0);
            }
        }
        const double mean = y.mean(), spread = std::sqrt((y.array() - mean).square().mean()) + 1e-12;
        const Eigen::LLT<Eigen::MatrixXd> solver(gram);
        const Eigen::VectorXd weights = solver.solve(((y.array() - mean) / spread).matrix());
        const double lowest = (y.minCoeff() - mean) / spread;
        assignment chosen;
        double most = -1;
        for (int c = 0; c < 200; ++c) {  // every other candidate lies near the best one, the rest anywhere
            assignment a = random_assignment(run);
            if (c % 2 == 0) {
                const assignment near = run.best()->choice;
                for (std::size_t l = 0; l < a.size(); ++l) {
                    if (run.random()() % 8 != 0) a[l] = near[l];
                }
            }
            Eigen::VectorXd k(n);
            for (Eigen::Index i = 0; i < n; ++i) k[i] = kernel(a, h[static_cast<std::size_t>(i)].choice);
            if (k.maxCoeff() >= 1.0) continue;  // measured already
            const double mu = k.dot(weights), sigma = std::sqrt(std::max(1.0 - k.dot(solver.solve(k)), 1e-12));
            const double z = (lowest - mu) / sigma;
            const double gain =
                sigma * (z * 0.5 * std::erfc(-z / std::sqrt(2.0)) + std::exp(-0.5 * z * z) / std::sqrt(2.0 * 3.14159265358979323846));
            if (gain > most) {
                most = gain;
                chosen = a;
            }
        }
        if (chosen.empty()) {
            ++stalled;
            continue;
        }
        run.evaluate(chosen);
    }
}

// Searches that a limit may stop. Whatever the strategy, such a search begins with everything narrow, then narrows as much as a few trials
// can tell, then goes on as greedy does; the strategy gets the other trials. So none returns a mix that saves less than greedy's with that
// limit.

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

inline constexpr strategy strategies[] = {
    {"greedy", greedy, "narrow in ascending order of sensitivity until the target is about to break; skip what breaks it and go on"},
    {"pareto", pareto, "the front of accuracy against cost; without a target, the knee of the front"},
    {"budget", budget,
     "the best metric under a cost (or the least cost under a target): a knapsack over sensitivities, verified and repaired"},
    {"basic", basic, "everything narrow, then single layers back to wide, then these added up (Intel Neural Compressor)"},
    {"mse", mse, "everything narrow, then back to wide in the order of each layer's output error (Intel Neural Compressor)"},
    {"hawq_v2", hawq_v2,
     "everything narrow, then back to wide in the order of the average Hessian trace times the weights' squared error (Intel Neural "
     "Compressor; Dong et al. 2020)",
     check_hawq_v2},
    {"bayesian", bayesian, "a Gaussian process chooses each trial by expected improvement (Intel Neural Compressor)"},
    {"random", random, "assignments drawn at random (Intel Neural Compressor)"},
    {"exhaustive", exhaustive, "every assignment, cheapest first (Intel Neural Compressor)", check_exhaustive},
};
}  // namespace detail

std::span<const strategy> all_strategies() { return detail::strategies; }

const strategy& find_strategy(std::string_view name) { return detail::named_entry(all_strategies(), "strategy", name); }

search_outcome run_strategy(const strategy& s, search_run& run) {
    std::string stopped;
    try {
        const bool limited = run.limits().trials > 0 || run.limits().seconds > 0;
        limited ? detail::search_within_limits(s, run) : s.search(run);
    } catch (const search_stopped& stop) {
        stopped = stop.why;
        if (!run.target && !run.budget && run.history().size() > 1) run.settle_on(detail::knee(run.front()));
    }
    if (!run.best()) run.evaluate(run.space().all(0));  // the wide model is always measured
    search_outcome outcome;
    outcome.best = *run.best();
    outcome.target_met = run.acceptable(outcome.best);
    const search_space& space = run.space();
    outcome.nothing_saved = !stopped.empty() && run.target && outcome.target_met && outcome.best.cost >= space.cost_of(space.all(0));
    outcome.target_met = outcome.target_met && !outcome.nothing_saved;
    const auto with_best = [&](const char* what) {
        char text[128];
        std::snprintf(text, sizeof text, "%s %.*s %.6g", what, static_cast<int>(run.measure().name.size()), run.measure().name.data(),
                      outcome.best.result.metric);
        return std::string(text);
    };
    if (!stopped.empty()) outcome.status = stopped;
    else if (!outcome.target_met) outcome.status = with_best("target out of reach: best is");
    else if (run.target || run.budget) outcome.status = "target met";
    else outcome.status = with_best("no target: the knee of the front is");
    return outcome;
}

}  // namespace qk::graph
