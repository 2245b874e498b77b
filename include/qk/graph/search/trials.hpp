// SPDX-License-Identifier: Apache-2.0
// A search as its strategies see it: layers with several options each, a way to measure an assignment, a target, limits.
// The run keeps every trial and the best so far, so a strategy that is stopped at any point leaves a result.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "qk/graph/base/ranks.hpp"
#include "qk/graph/search/metric.hpp"

namespace qk::graph {

/// The option of every layer; 0 is wide.
using assignment = std::vector<std::uint8_t>;

/// What may be chosen: options[0] is wide, the others are narrow; cost[layer][option] adds up to the cost of an assignment. A layer need
/// not be offered every option.
struct search_space {
    std::vector<std::string> layers;
    std::vector<std::string> options;
    std::vector<std::vector<double>> cost;
    double fixed_cost = 0;                        ///< cost of everything that is not searched
    std::vector<std::vector<bool>> offered = {};  ///< [layer][option]; empty: everything. Wide is always offered

    std::size_t size() const { return layers.size(); }
    bool offers(std::size_t layer, std::size_t option) const { return offered.empty() || offered[layer][option]; }
    /// Returns every layer at that option, or wide where a layer is not offered it.
    assignment all(std::uint8_t option) const;
    /// Returns every layer at the first narrow option that it is offered.
    assignment all_narrow() const;
    double cost_of(const assignment& a) const;
};

/// A measured assignment. `error` is the mean squared error of the output, which adds up over layers better than accuracies do.
struct score {
    double metric = 0;
    double error = 0;
};
struct trial {
    assignment choice;
    score result;
    double cost = 0;
};

struct search_limits {
    std::size_t trials = 0;  ///< 0: no limit
    double seconds = 0;      ///< 0: no limit
    const std::atomic<bool>* interrupted = nullptr;
    ranks together{};  ///< processes of this search; a limit that one of them reaches stops all
};

/// Thrown by evaluate() when a limit is reached; run_strategy catches it, strategies let it pass.
struct search_stopped {
    std::string why;  ///< "time limit", "trial limit", "interrupted"
};

class search_run {
  public:
    using evaluate_function = std::function<std::vector<score>(std::span<const assignment>)>;

    search_run(search_space space, const metric& m, evaluate_function evaluate, search_limits limits = {}, std::uint64_t seed = 0);

    const search_space& space() const { return space_; }
    const metric& measure() const { return *metric_; }
    std::mt19937_64& random() { return random_; }

    /// Value that the metric must reach; unset: no target, every assignment will do.
    std::optional<double> target;
    double rounding = 0;  ///< by how much a metric may miss the target and still be equal to it: the rounding of a computed target
    /// Cost that must not be exceeded; unset: no budget.
    std::optional<double> budget;
    std::string strategy_option;  ///< greedy: "narrow" or "widen"

    /// The estimated effect of setting one layer to one option on top of the wide model, by layer, then option. An empty function or
    /// result: moves are measured.
    struct estimated_move {
        double harm = 0, error = 0;
    };
    using estimate_function = std::function<std::vector<std::vector<estimated_move>>()>;
    estimate_function estimate_moves;
    /// Estimates for the order alone in which a search with few trials narrows layers, before any is measured. May be empty.
    estimate_function order_moves;
    bool estimates_only_rank = false;  ///< estimated harm has no unit that allows a comparison with measured harm
    /// For hawq_v2. Returns by layer the average trace of the Hessian times the squared error of the weights at the option. Empty: not
    /// available.
    std::function<std::vector<double>(const assignment&)> weigh_by_hessian;
    /// Estimates the metric of an assignment for a small part of the time that measuring takes; returns nullopt where it cannot. May be
    /// empty.
    std::function<std::optional<double>(const assignment&)> peek;
    /// Is true when the assignment was measured already.
    bool knows(const assignment& a) const { return known_.contains(a); }

    bool meets_target(double value) const;
    bool fits_budget(double cost) const { return !budget || cost <= *budget * (1 + 1e-12); }
    bool acceptable(const trial& t) const { return meets_target(t.result.metric) && fits_budget(t.cost); }

    /// Returns how many new assignments may still be measured; without a limit more than any search measures.
    std::size_t trials_left() const;
    const search_limits& limits() const { return limits_; }

    /// Measures assignments; those measured before cost nothing. Throws search_stopped at a limit, after the group that was being measured.
    std::vector<score> evaluate(std::span<const assignment> candidates);
    score evaluate(const assignment& candidate) { return evaluate(std::span(&candidate, 1))[0]; }

    /// Returns the best trial so far: acceptable ones come before others; of acceptable ones the cheapest (with a budget and no target: the
    /// most accurate); of others the one nearest to being acceptable. Empty before the first evaluation.
    std::optional<trial> best() const;
    void settle_on(const trial& t) { best_ = t; }                   ///< a strategy's own choice, where there is no target or budget
    const std::vector<trial>& history() const { return history_; }  ///< in the order of measuring
    /// Returns the trials that no other beats in both cost and metric, cheapest first.
    std::vector<trial> front() const;

    /// Called after every new trial (progress bars, caches).
    std::function<void(const trial&)> on_trial;

  private:
    bool preferred(const trial& a, const trial& b) const;
    search_space space_;
    const metric* metric_;
    evaluate_function evaluate_;
    search_limits limits_;
    std::mt19937_64 random_;
    std::chrono::steady_clock::time_point start_;
    std::map<assignment, score> known_;
    std::vector<trial> history_;
    std::optional<trial> best_;
};

/// How a strategy ended.
struct search_outcome {
    /// "target met" (a budget is one, too) | "target out of reach: best is ..." | "no target: the knee of the front is ..." | "time limit"
    /// | "trial limit" | "interrupted"
    std::string status;
    trial best;
    bool target_met = false;
    bool nothing_saved = false;  ///< a limit stopped it before it found anything cheaper than the wide model that meets the target
};

/// A strategy narrows or widens through run.evaluate(); run.best() is its result.
struct strategy {
    std::string_view name;
    void (*search)(search_run&);
    std::string_view what;                       ///< text for --help
    void (*check)(const search_run&) = nullptr;  ///< throws where the strategy cannot be used, before a search with a limit begins
};
std::span<const strategy> all_strategies();
const strategy& find_strategy(std::string_view name);

/// Measures the wide model first, then lets the strategy work until it ends or a limit stops it. With a limit the search begins with
/// everything narrow and ends with what greedy does, so that the strategies differ in what they do between (limited.hpp).
search_outcome run_strategy(const strategy& s, search_run& run);

}  // namespace qk::graph
