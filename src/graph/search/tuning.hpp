// SPDX-License-Identifier: Apache-2.0
// The accuracy-aware strategies of Intel Neural Compressor: basic, mse, hawq_v2, bayesian, random, exhaustive.
#pragma once

#include <Eigen/Cholesky>
#include <Eigen/Core>
#include <cmath>
#include <set>

#include "graph/search/narrow_end.hpp"

namespace qk::graph::detail {

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

}  // namespace qk::graph::detail
