// SPDX-License-Identifier: Apache-2.0
// The table of strategies, and how one runs. To add one, write a function of search_run& and name it here.
#include <cstdio>

#include "graph/search/limited.hpp"
#include "graph/search/pareto.hpp"
#include "graph/search/tuning.hpp"

namespace qk::graph {
namespace detail {
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
