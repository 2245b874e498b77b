// SPDX-License-Identifier: Apache-2.0
#include "graph/search/estimated.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>

#include "graph/gradient/estimate.hpp"
#include "graph/search/moves.hpp"
#include "graph/search/options.hpp"
#include "graph/search/problem.hpp"
#include "graph/search/sensitivity_rows.hpp"

namespace qk::graph {
namespace {

constexpr double not_known = std::numeric_limits<double>::quiet_NaN();

bool is_about_distributions(std::string_view metric) {
    for (const char* name : {"kl", "loss", "top1", "top5", "agreement"})
        if (metric == name) return true;
    return false;
}

/// Estimates the metric of a model from the squared `error` and the added `divergence` of its output; NaN where the metric cannot be
/// estimated.
double estimated_metric(std::string_view metric, const score& base, double error, double divergence, const change_estimates& seen) {
    if (metric == "mse") return error;
    if (metric == "kl" || metric == "loss") return base.metric + divergence;
    if (metric == "l2")
        return base.error > 0 ? base.metric * std::sqrt(error / base.error) : std::sqrt(error * static_cast<double>(seen.values));
    if (metric == "sqnr") return 10 * std::log10(seen.power / error);
    if (metric == "psnr" && base.error > 0) return base.metric - 10 * std::log10(error / base.error);
    return not_known;
}

/// Returns the rows whose errors are too large to be linear, the largest first, at most eight or a tenth of all rows, whichever is more.
std::vector<std::size_t> rows_to_measure(const std::vector<sensitivity_row>& rows, double power) {
    std::vector<std::size_t> chosen;
    for (std::size_t i = 0; i < rows.size(); ++i)
        if (std::abs(rows[i].added) > 0.05 * power) chosen.push_back(i);
    std::stable_sort(chosen.begin(), chosen.end(),
                     [&](std::size_t a, std::size_t b) { return std::abs(rows[a].added) > std::abs(rows[b].added); });
    chosen.resize(std::min(chosen.size(), std::max<std::size_t>(rows.size() / 10, 8)));
    return chosen;
}

}  // namespace

std::string why_not_estimated(const named_tensors& inputs, const mix_options& options, bool only_order) {
    if (options.scoring.has_user() && !only_order) return "a metric of your own cannot be estimated from gradients";
    if (!inputs.ragged.empty() || !(options.scoring.positions == position_options{}) || options.scoring.metric == "perplexity")
        return "gradients are those of whole outputs, not of positions";
    if (!options.fixed_plan.accumulators.empty()) return "what an accumulator does to a layer is measured, not estimated from gradients";
    return {};
}

estimated_harms estimate_harms(const metric& measure, const model& m, const named_tensors& inputs, const precision_plan& base,
                               const plan_list& plans, const score& start, estimate_options options, bool widen) {
    const bool distribution = is_about_distributions(measure.name);
    options.form = estimated_form::squared_error;
    const change_estimates errors = estimate_changes(m, inputs, base, plans, options);
    change_estimates divergences;
    if (distribution) {
        options.form = estimated_form::divergence;
        divergences = estimate_changes(m, inputs, base, plans, options);
    }
    estimated_harms found;
    found.power = errors.power;
    found.standard_error = errors.standard_error;
    found.unknown = errors.unknown;
    const double sign = widen ? -1 : 1;
    for (std::size_t i = 0; i < plans.count; ++i) {
        const double added = sign * errors.added[i], error = std::max(start.error + added, 0.0);
        const double divergence = distribution ? sign * divergences.added[i] : 0;
        const double value = estimated_metric(measure.name, start, error, divergence, errors);
        found.added.push_back(added);
        found.error.push_back(error);
        found.metric.push_back(value);
        found.harm.push_back(!std::isnan(value) ? detail::harm_of(measure, start.metric, value) : distribution ? divergence : added);
    }
    return found;
}

sensitivity_result estimate_sensitivity(const model& m, const named_tensors& inputs, const calibration& seen, const mix_options& options,
                                        bool widen, const estimation_options& how) {
    const std::string obstacle = how.method == sensitivity_method::measured ? "" : why_not_estimated(inputs, options);
    if (how.method == sensitivity_method::measured || (how.method == sensitivity_method::automatic && !obstacle.empty()))
        return measure_sensitivity(m, inputs, seen, options, widen);
    if (!obstacle.empty()) throw error(obstacle + ": leave --method out, or give --method measured");
    const auto start = std::chrono::steady_clock::now();
    mix_problem problem(m, inputs, seen, options);
    const assignment all_base = widen ? problem.space().all_narrow() : problem.space().all(0);
    detail::planned_rows planned = detail::sensitivity_rows(problem, all_base, widen);
    std::vector<sensitivity_row>& rows = planned.rows;
    const precision_plan base_plan = planned.base_plan();
    const score base = problem.score()(std::span(&base_plan, 1))[0];
    problem.score().rest();  // a large model's packed weights take as much memory as gradients need
    const metric& measure = problem.score().measure();
    const estimate_options estimate{
        .threads = options.scoring.session.threads,
        .output_index = options.scoring.output_index,
        .passes = how.passes,
        .seed = how.seed,
        .rounded = [&problem](const std::string& weight, const quantizer& q) { return problem.rounded().find(weight, q); }};
    const plan_list changed{rows.size(), [&](std::size_t row) { return planned.plan(row); }};
    const estimated_harms errors = estimate_harms(measure, m, inputs, base_plan, changed, base, estimate, widen);
    for (std::size_t i = 0; i < rows.size(); ++i) {
        sensitivity_row& row = rows[i];
        row.measured = false;
        row.added = errors.added[i];
        row.error = errors.error[i];
        row.standard_error = errors.standard_error[i];
        row.metric = errors.metric[i];
        row.harm = errors.harm[i];
    }
    std::vector<std::size_t> again;
    if (how.method == sensitivity_method::automatic) again = rows_to_measure(rows, errors.power);
    for (std::size_t i = 0; i < rows.size(); ++i)
        if (errors.unknown[i] != 0 && std::find(again.begin(), again.end(), i) == again.end()) again.push_back(i);
    std::vector<precision_plan> few;
    for (const std::size_t i : again) few.push_back(changed.plan(i));
    const std::vector<score> found = few.empty() ? std::vector<score>{} : problem.score()(few);
    for (std::size_t k = 0; k < found.size(); ++k) detail::put_measured(rows[again[k]], measure, base, found[k]);
    return detail::result_of(problem, std::move(rows), base, widen, start);
}

}  // namespace qk::graph
