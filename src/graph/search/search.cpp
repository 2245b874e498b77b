// SPDX-License-Identifier: Apache-2.0
// Sensitivity sweeps by measuring, and the search itself.
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdlib>

#include <onnx/onnx_pb.h>

#include "graph/model/element_source.hpp"
#include "graph/search/guided.hpp"
#include "graph/search/problem.hpp"
#include "graph/search/sensitivity_rows.hpp"
#include "qk/graph/base/format_text.hpp"
#include "qk/graph/quantize/remarks.hpp"

namespace qk::graph {
namespace detail {

inline void add_to(content_hash& h, const quantizer& q) {
    h.add(to_string(q.format));
    h.add(q.scale.data(), q.scale.size() * sizeof(float));
    h.add(q.zero_point.data(), q.zero_point.size() * sizeof(std::int64_t));
    const qk::semantics& s = q.semantics;
    const int plain[] = {q.axis,
                         int{q.flatten},
                         q.block_size,
                         int{q.dynamic},
                         static_cast<int>(s.rounding),
                         static_cast<int>(s.overflow),
                         static_cast<int>(s.scale_rule),
                         static_cast<int>(s.integer_mode),
                         static_cast<int>(s.mx_specials),
                         int{s.clamp_mx_scale}};
    h.add(plain, sizeof plain);
    // What caches of earlier versions did not tell apart is added where it is not the default: their keys stay valid.
    const auto others = [](const qk::semantics& t) {
        return std::array{static_cast<int>(t.bfp_specials),
                          int{t.mxint_uses_lowest},
                          static_cast<int>(t.mx_zero),
                          static_cast<int>(t.bfp_zero),
                          static_cast<int>(t.mxint_zero),
                          static_cast<int>(t.nan_without_code),
                          static_cast<int>(t.integer_nan),
                          static_cast<int>(t.integer_infinity),
                          static_cast<int>(t.integer_infinity_per_channel),
                          int{t.zero_point_before},
                          int{t.flush_inputs},
                          int{t.flush_outputs},
                          static_cast<int>(t.scale_objective)};
    };
    if (const auto own = others(s); own != others(qk::semantics::ocp)) h.add(own.data(), sizeof own);
    if (s.seed != 0) h.add(std::to_string(s.seed));
}

inline void add_to(content_hash& h, const precision_plan& p) {
    for (const auto& [name, q] : p.tensors) {
        h.add(name);
        add_to(h, q);
    }
    for (const auto& [where, q] : p.edges) {
        h.add(where.tensor + '\n' + where.consumer + '\n' + std::to_string(where.index));
        add_to(h, q);
    }
    for (const auto& [layer, unit] : p.accumulators) h.add(layer + '\n' + unit);
}

/// Hashes the model's message, and large initializers one by one: together they may exceed the largest message that protobuf can write.
inline void add_to(content_hash& h, const model& m) {
    if (bytes_outside(m.graph()) == 0) return h.add(m.proto().SerializeAsString());
    onnx::ModelProto rest = m.proto();
    for (auto& t : *rest.mutable_graph()->mutable_initializer())
        if (source_of(t) != nullptr) t.clear_external_data();
    h.add(rest.SerializeAsString());
    for (const auto& t : m.graph().initializer())
        if (const source_pointer s = source_of(t)) {
            const tensor value = s->read();
            h.add(value.bytes(), value.size_bytes());
        }
}

/// Returns the options that give a search by this metric its target, for an error.
inline std::string target_options(const metric& m) {
    if (is_users(m)) return "--target-metric, --target-drop or --target-relative";
    return "--target-" + std::string(m.name) + (m.is_accuracy ? "-drop" : "") + ", --target-drop or --target-relative";
}

/// Returns `value` without what the arithmetic of numbers of that magnitude left behind: 0.76 for 0.7699999999999 - 0.01.
inline double without_rounding(double value, double magnitude) {
    const int decimals = std::clamp(12 - static_cast<int>(std::floor(std::log10(magnitude))), 0, 100);
    return std::strtod(formatted("%.*f", decimals, value).c_str(), nullptr);
}

/// Sets the value that the metric must reach. What may be lost counts from the reference's metric, which the same function measured.
inline void set_target(search_run& run, const search_options& options, double reference) {
    const metric& m = run.measure();
    run.target = options.target;
    if (!options.target_drop && !options.target_relative) return;
    if (options.target || (options.target_drop && options.target_relative)) throw error("give one target; the search has one metric");
    const std::string name = is_users(m) ? "metric" : std::string(m.name),
                      option = options.target_drop ? "what may be lost (--target-drop)" : "what may be lost (--target-relative)",
                      instead = is_users(m) ? "--target-metric" : "--target-" + std::string(m.name);
    const double given = options.target_drop ? *options.target_drop : *options.target_relative;
    if (!(given >= 0)) throw error(option + " is a number of at least 0");
    if (m.is_accuracy && given > 1) throw error(option + " is a fraction of " + name + ": 0.01 is one hundredth");
    if (!std::isfinite(reference))
        throw error("nothing is a finite amount worse than the reference, whose " + name + " is " + formatted("%g", reference) + ": give " +
                    instead);
    if (reference == 0 && !options.target_drop)
        throw error("a share of the reference's " + name + " is none, since that is 0: give " + instead + " or --target-drop");
    const double loss = options.target_drop ? given : given * std::abs(reference), magnitude = std::abs(reference) + loss;
    if (magnitude > 0) run.target = without_rounding(m.higher_is_better ? reference - loss : reference + loss, magnitude);
    else run.target = 0;
    run.rounding = 1e-12 * magnitude;  // a loss of exactly that is met
}

inline void require_target(const search_options& options, const metric& m, const std::string& strategy) {
    if (options.target || options.target_drop || options.target_relative) return;
    throw error("a search with strategy " + strategy + " needs a target (" + target_options(m) +
                ") or a budget (--budget, --budget-ratio, --wide-share)");
}

/// Says what a user might not expect of the result.
inline void add_remarks(search_result& result, const search_options& options, const metric& m, const search_outcome& outcome) {
    const bool from_reference = options.target_drop || options.target_relative;
    if (is_users(m) && from_reference && !m.higher_is_better && result.metric < result.float_metric)
        result.remarks.push_back(
            std::string(warning_mark) +
            formatted("your measure of the mix is %.6g, below the reference's %.6g, and a lower one counts as better: say "
                      "--higher-is-better if it is not",
                      result.metric, result.float_metric));
    if (outcome.nothing_saved)
        result.remarks.push_back(std::string(warning_mark) + "the search was stopped (" + outcome.status +
                                 ") before it found a mix that saves anything and meets the target: every layer stays wide, which is no "
                                 "result; give it more, or another target");
}

}  // namespace detail

std::string mix_problem::key(const named_tensors& inputs) const {
    content_hash h;
    detail::add_to(h, *model_);
    for (const auto& [name, value] : inputs) {
        h.add(name + to_string(value.shape()) + name_of(value.type()));
        h.add(value.bytes(), value.size_bytes());
        if (const auto own = inputs.ragged.find(name); own != inputs.ragged.end())
            for (const dims& shape : own->second) h.add(to_string(shape));
    }
    for (std::size_t o = 0; o < mix_->options(); ++o) detail::add_to(h, mix_->uniform(o));
    for (const auto& [name, each] : rounded_->all())
        for (const auto& [how, value] : each) h.add(value.bytes(), value.size_bytes());
    for (const std::string& layer : space_.layers) h.add(layer);
    if (inputs.batch_axis) h.add("samples along axis " + std::to_string(*inputs.batch_axis));
    h.add(scorer_->description());
    return h.text();
}

sensitivity_result measure_sensitivity(const model& m, const named_tensors& inputs, const calibration& seen, const mix_options& options,
                                       bool widen) {
    const auto start = std::chrono::steady_clock::now();
    mix_problem problem(m, inputs, seen, options);
    const search_space& space = problem.space();
    const assignment base = widen ? space.all_narrow() : space.all(0);
    detail::planned_rows planned = detail::sensitivity_rows(problem, base, widen);
    const std::vector<score> scores = problem.score()(planned.plans());
    for (std::size_t i = 0; i < planned.rows.size(); ++i)
        detail::put_measured(planned.rows[i], problem.score().measure(), scores[0], scores[i + 1]);
    return detail::result_of(problem, std::move(planned.rows), scores[0], widen, start);
}

search_result search(const model& m, const named_tensors& inputs, const calibration& seen, const search_options& options) {
    const auto start = std::chrono::steady_clock::now();
    // Nothing stops the measuring of the all-wide model.
    std::atomic<bool> may_stop = false;
    mix_options stoppable = options;
    if (const auto stop = options.scoring.session.stop) stoppable.scoring.session.stop = [&may_stop, stop] { return may_stop && stop(); };
    mix_problem problem(m, inputs, seen, stoppable);
    const metric& measure = problem.score().measure();
    search_space space = problem.space();
    search_result result;
    result.cost_unit = problem.cost_unit();
    std::optional<double> budget = options.budget;
    std::string strategy_name = options.strategy;
    if (options.wide_share) {  // the cost is the number of wide layers
        if (*options.wide_share < 0 || *options.wide_share > 1) throw error("--wide-share must be between 0 and 1");
        for (auto& row : space.cost) {
            std::fill(row.begin(), row.end(), 0.0);
            row[0] = 1;
        }
        space.fixed_cost = 0;
        result.cost_unit = "wide layers";
        budget = std::round(*options.wide_share * double(space.size()));
        strategy_name = "budget";
    } else if (options.budget_ratio) {
        budget = *options.budget_ratio * space.cost_of(space.all(0));
    }
    if (strategy_name != "pareto" && !budget) detail::require_target(options, measure, strategy_name);

    search_cache cache(options.cache, options.cache.empty() ? "" : problem.key(inputs), options.scoring.session.together);
    result.cached = cache.size();
    const auto measure_plans = [&](std::span<const assignment> candidates) {
        may_stop = candidates.size() > 1 || candidates[0] != space.all(0);
        return problem.evaluate(candidates);
    };
    search_limits limits = options.limits;
    limits.together = options.scoring.session.together;
    search_run run(space, measure, cache.around(measure_plans), limits, options.seed);
    run.strategy_option = options.direction;
    run.budget = budget;
    result.float_metric = problem.score().reference_score().metric;
    detail::set_target(run, options, result.float_metric);
    if (options.on_trial) run.on_trial = [&](const trial&) { options.on_trial(run.history().size(), *run.best()); };
    run.peek = [&problem](const assignment& a) { return problem.score().peek(problem.mix().plan(a)); };
    guide_by_gradients(run, problem, m, inputs, options);
    const search_outcome outcome = run_strategy(find_strategy(strategy_name), run);
    result.status = outcome.status;
    result.strategy = strategy_name;
    result.target_met = outcome.target_met;
    result.metric_name = problem.score().title();
    result.metric = outcome.best.result.metric;
    result.baseline_metric = run.history().front().result.metric;
    result.target = run.target;
    result.choice = outcome.best.choice;
    result.plan = problem.mix().plan(result.choice);
    result.weights = problem.rounded().take(result.plan);
    result.cost = outcome.best.cost;
    result.wide_cost = space.cost_of(space.all(0));
    result.float_cost = options.wide_share ? double(space.size()) : problem.float_cost();
    result.modules = problem.modules();
    result.history = run.history();
    result.front = run.front();
    result.space = std::move(space);
    result.remarks = problem.remarks();
    detail::add_remarks(result, options, measure, outcome);
    result.samples = problem.score().samples();
    if (measure.is_accuracy) result.sampling_error = std::sqrt(std::max(result.metric * (1 - result.metric), 0.0) / double(result.samples));
    const session_statistics& statistics = problem.score().statistics();
    result.evaluations = result.history.size();
    result.layer_evaluations = statistics.layer_evaluations;
    result.naive_layer_evaluations = statistics.naive_layer_evaluations;
    result.peak_bytes = statistics.peak_bytes;
    try {
        const bool stopped = options.scoring.session.stop && options.scoring.session.stop();
        if (!stopped) result.over_wide = problem.compare(result.space.all(0), result.choice);
    } catch (const search_stopped&) {  // what was found stays
    }
    result.seconds = detail::seconds_since(start);
    return result;
}

}  // namespace qk::graph
