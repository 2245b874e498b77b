// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "qk/graph/search/choose_method.hpp"

namespace qk::graph {

method_choice choose_method(const std::function<precision_plan(range_method)>& plan_by, const calibration& seen, scorer& measured,
                            const progress& report) {
    std::vector<precision_plan> distinct;
    std::vector<std::pair<range_method, std::size_t>> methods;  // each with the index of its plan
    for (const range_method method : all_range_methods()) {
        if (!std::ranges::all_of(seen.tensors, [&](const auto& t) { return can_choose(t.second, method); })) continue;
        precision_plan plan = plan_by(method);
        const auto place = static_cast<std::size_t>(std::ranges::find(distinct, plan) - distinct.begin());
        if (place == distinct.size()) distinct.push_back(std::move(plan));
        methods.emplace_back(method, place);
    }
    if (report) report(0, distinct.size());
    const std::vector<score> scores = measured.here(distinct);
    method_choice choice{.metric = std::string(measured.measure().name), .samples = measured.samples(), .tried = {}};
    // The first method stays unless another does better by more than chance, as far as samples are measured one by one.
    const std::span<const metric_terms> terms = measured.last_terms();
    const std::size_t n = terms.size() / std::max<std::size_t>(distinct.size(), 1);
    const auto is_noise = [&](std::size_t place) {
        const std::size_t first = methods.front().second;
        return n > 0 && difference_of(measured.measure(), terms.subspan(first * n, n), terms.subspan(place * n, n)).is_noise();
    };
    for (const auto& [method, place] : methods) {
        choice.tried.push_back({method, scores[place].metric, scores[place].error});
        const method_choice::trial &now = choice.tried.back(), &best = choice.tried[choice.best];
        if (better(measured.measure(), now.metric, best.metric) && !is_noise(place)) choice.best = choice.tried.size() - 1;
    }
    return choice;
}

method_choice choose_method(const model& m, const std::vector<request>& requests, quantize_options options, const calibration& seen,
                            named_tensors inputs, score_options scoring, const progress& report) {
    planner plans(m, &seen);
    scorer measured(m, std::move(inputs), std::move(scoring));
    return choose_method(
        [&](range_method method) {
            options.method = method;
            return plans.plan(requests, options, false).plan;
        },
        seen, measured, report);
}

}  // namespace qk::graph
