// SPDX-License-Identifier: Apache-2.0
// The table of strategies. To add one, write a function of search_run& and name it here.
#include "qk/graph/search/greedy.hpp"
#include "qk/graph/search/pareto.hpp"
#include "qk/graph/search/tuning.hpp"

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
     "Compressor; Dong et al. 2020)"},
    {"bayesian", bayesian, "a Gaussian process chooses each trial by expected improvement (Intel Neural Compressor)"},
    {"random", random, "assignments drawn at random (Intel Neural Compressor)"},
    {"exhaustive", exhaustive, "every assignment, cheapest first (Intel Neural Compressor)"},
};
}  // namespace detail

std::span<const strategy> all_strategies() { return detail::strategies; }

const strategy& find_strategy(std::string_view name) { return detail::named_entry(all_strategies(), "strategy", name); }

}  // namespace qk::graph
