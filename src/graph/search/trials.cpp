// SPDX-License-Identifier: Apache-2.0
// Bookkeeping of a search: trials, limits, the best trial so far, the front.
#include <algorithm>
#include <cmath>
#include <limits>

#include "qk/graph/search/trials.hpp"

namespace qk::graph {

assignment search_space::all(std::uint8_t option) const {
    assignment a(size(), option);
    for (std::size_t l = 0; l < size(); ++l)
        if (!offers(l, option)) a[l] = 0;
    return a;
}

assignment search_space::all_narrow() const {
    assignment a(size(), 0);
    for (std::size_t l = 0; l < size(); ++l)
        while (++a[l] < options.size() && !offers(l, a[l])) {
        }
    return a;
}

double search_space::cost_of(const assignment& a) const {
    double sum = fixed_cost;
    for (std::size_t l = 0; l < size(); ++l) sum += cost[l][a[l]];
    return sum;
}

search_run::search_run(search_space space, const metric& m, evaluate_function evaluate, search_limits limits, std::uint64_t seed)
    : space_(std::move(space)),
      metric_(&m),
      evaluate_(std::move(evaluate)),
      limits_(limits),
      random_(seed),
      start_(std::chrono::steady_clock::now()) {}

bool search_run::meets_target(double value) const {
    if (std::isnan(value)) return false;
    if (!target) return true;
    return metric_->higher_is_better ? value >= *target - rounding : value <= *target + rounding;
}

/// Is true when a is strictly better than b. The first of equals therefore stays, and the result does not depend on threads.
bool search_run::preferred(const trial& a, const trial& b) const {
    const bool a_fits = acceptable(a), b_fits = acceptable(b);
    if (a_fits != b_fits) return a_fits;
    const bool a_finer = better(*metric_, a.result.metric, b.result.metric), b_finer = better(*metric_, b.result.metric, a.result.metric);
    if (a_fits && !(budget && !target)) {  // cheapest first
        if (a.cost != b.cost) return a.cost < b.cost;
        return a_finer;
    }
    if (!a_fits && budget) {  // a trial within the budget first, else the cheaper one
        const bool a_within = fits_budget(a.cost), b_within = fits_budget(b.cost);
        if (a_within != b_within) return a_within;
        if (!a_within && a.cost != b.cost) return a.cost < b.cost;
    }
    if (a_finer != b_finer) return a_finer;
    return a.cost < b.cost;
}

std::size_t search_run::trials_left() const {
    if (limits_.trials == 0) return std::numeric_limits<std::size_t>::max() / 2;
    return limits_.trials - std::min(limits_.trials, history_.size());
}

std::vector<score> search_run::evaluate(std::span<const assignment> candidates) {
    std::vector<assignment> fresh;
    if (history_.empty()) fresh.push_back(space_.all(0));  // measured first, together with candidates that share most of the network
    for (const assignment& a : candidates) {
        if (!known_.contains(a) && std::find(fresh.begin(), fresh.end(), a) == fresh.end()) fresh.push_back(a);
    }
    const auto interrupted = [&] { return limits_.together.any(limits_.interrupted && limits_.interrupted->load()); };
    const auto stop_if = [&] {
        const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
        if (interrupted()) throw search_stopped{"interrupted"};
        if (limits_.seconds > 0 && limits_.together.any(seconds >= limits_.seconds)) throw search_stopped{"time limit"};
        if (trials_left() == 0) throw search_stopped{"trial limit"};
    };
    for (std::size_t begin = 0; begin < fresh.size();) {
        if (!history_.empty()) stop_if();
        // Groups keep a limit from being overrun by much, and let candidates that share a prefix of the network run together.
        std::size_t count = std::min<std::size_t>(fresh.size() - begin, 64);
        if (history_.empty() && (limits_.seconds > 0 || interrupted())) count = 1;
        count = std::min(count, std::max<std::size_t>(trials_left(), 1));
        const std::span group = std::span(fresh).subspan(begin, count);
        const std::vector<score> scores = evaluate_(group);
        for (std::size_t i = 0; i < count; ++i) {
            known_[group[i]] = scores[i];
            history_.push_back({group[i], scores[i], space_.cost_of(group[i])});
            if (!best_ || preferred(history_.back(), *best_)) best_ = history_.back();
            if (on_trial) on_trial(history_.back());
        }
        begin += count;
    }
    std::vector<score> result;
    for (const assignment& a : candidates) result.push_back(known_.at(a));
    return result;
}

std::optional<trial> search_run::best() const { return best_; }

std::vector<trial> search_run::front() const {
    std::vector<trial> sorted = history_;
    std::stable_sort(sorted.begin(), sorted.end(), [&](const trial& a, const trial& b) {
        return a.cost != b.cost ? a.cost < b.cost : better(*metric_, a.result.metric, b.result.metric);
    });
    std::vector<trial> front;
    for (const trial& t : sorted) {
        if (front.empty() ? !std::isnan(t.result.metric) : better(*metric_, t.result.metric, front.back().result.metric))
            front.push_back(t);
    }
    return front;
}

}  // namespace qk::graph
