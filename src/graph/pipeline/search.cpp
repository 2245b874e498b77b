// SPDX-License-Identifier: Apache-2.0
#include "qk/graph/pipeline/search.hpp"

#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "graph/model/model_bytes.hpp"
#include "graph/pipeline/cancelling.hpp"
#include "graph/pipeline/trial_scorer.hpp"
#include "graph/search/options.hpp"
#include "graph/search/problem.hpp"
#include "qk/graph/base/names.hpp"
#include "qk/graph/export/export.hpp"
#include "qk/graph/files/json_text.hpp"
#include "qk/graph/model/model_files.hpp"
#include "qk/graph/pipeline/expand.hpp"
#include "qk/graph/pipeline/files.hpp"
#include "qk/graph/pipeline/recipe.hpp"
#include "qk/graph/quantize/plan_arrays.hpp"
#include "qk/graph/quantize/plan_file.hpp"
#include "qk/graph/quantize/remarks.hpp"
#include "qk/graph/search/report.hpp"

namespace qk::graph::pipeline {
namespace {

/// Takes over the one target that was given; it names the metric where --metric does not.
void choose_target(const search_settings& settings, search_options& options, std::string& metric) {
    const std::size_t count = settings.targets.size() + settings.drops.size() + (settings.target_metric ? 1 : 0) +
                              (settings.target_drop ? 1 : 0) + (settings.target_relative ? 1 : 0);
    if (count > 1) throw error("give one target; the search has one metric");
    const auto named = [&](const std::pair<const std::string, double>& t) {
        if (!settings.metric.empty() && settings.metric != t.first)
            throw error("--target-" + t.first + " does not fit --metric " + settings.metric);
        if (settings.measured_by_user())
            throw error(
                "with --metric-command or --metric-server the target is --target-metric X, or --target-drop X or --target-relative X, "
                "which "
                "count from what they measure of the reference");
        metric = t.first;
        return t.second;
    };
    if (!settings.targets.empty()) options.target = named(*settings.targets.begin());
    if (!settings.drops.empty()) options.target_drop = named(*settings.drops.begin());
    if (settings.target_metric) options.target = *settings.target_metric;
    options.target_drop = settings.target_drop ? settings.target_drop : options.target_drop;
    options.target_relative = settings.target_relative;
}

/// Takes over the goal of the requests file where the settings give none.
void take_criterion(search_options& options) {
    if (!options.criterion || options.target || options.target_drop || options.target_relative) return;
    (options.criterion->relative ? options.target_relative : options.target_drop) = options.criterion->value;
}

bool makes_model(const search_settings& settings) { return !settings.output.empty() || settings.returns_model; }

bool makes_plan(const search_settings& settings) { return !settings.save_plan.empty() || settings.returns_plan; }

/// Returns how the model is written: for the target, if there is one.
export_options file_options(const search_settings& settings, const quantize_options& options) {
    export_options how{.style = style_of(settings.style), .weights = weight_storage_from(settings.weights)};
    if (options.target) write_for(*options.target, how, !settings.style.empty());
    how.int8_weights = codes_for(options);
    return how;
}

/// Exports every option once and discards the result, so that a format that the export style cannot hold is an error before the search and
/// not after it.
void check_export(const search_settings& settings, const model& m, const calibration& seen, const search_options& options) {
    if (!makes_model(settings)) return;
    planner plans(m, &seen);
    for (const format_pair& pair : list_options(options).pairs) {
        precision_requests requests;
        requests.set_default(pair.activation, pair.weight);
        export_model(m, plans.plan(requests.list(), options.quantize, false).plan, file_options(settings, options.quantize));
    }
}

/// Makes all results before the first file appears.
void write_results(const search_settings& settings, const model& m, const search_options& options, search_outcome& done,
                   const calibration& seen, output_set& files) {
    search_result& result = done.result;
    if (makes_model(settings)) {
        export_result exported = write_plan(with_weights(m, result.weights), result.plan, file_options(settings, options.quantize),
                                            options.quantize.target && options.quantize.target->file.signed_activations);
        if (settings.returns_model) done.model = serialized(exported.exported.proto());
        if (!settings.output.empty()) save(exported.exported, files, settings.output);
        done.export_notes = std::move(exported.notes);
    }
    if (!settings.report.empty()) {
        const std::string name = settings.model.short_name();
        files.write(settings.report, search_html({name, settings.command, &seen}, result));
        files.write(beside_report(settings.report), json_text(to_json(result), 1) + "\n");
    }
    if (!settings.save_plan.empty()) save_plan(result.plan, files, settings.save_plan);
    files.commit();
}

}  // namespace

search_outcome search(const search_settings& settings, const progress_function& progress) {
    const stop_check here(stopping(settings.cancel));
    output_set files(settings.overwrite, settings.together.first());
    std::vector<std::string> remarks = settings.declare(files);
    files.output("-o", settings.output).output("--save-plan", settings.save_plan).appended("--cache", settings.cache);
    std::vector<plan_note> already;
    model m = load_for_planning(settings.model, &already);
    for (std::string& line : remark_lines(already)) remarks.push_back(std::move(line));
    expand_for(m, settings.precision, true);
    const named_tensors inputs = settings.data.load_inputs(m);
    search_options options;
    std::string metric = "l2";
    choose_target(settings, options, metric);
    settings.fill(options, m, inputs, metric, {style_of(settings.style), weight_storage_from(settings.weights)});
    take_criterion(options);
    add_recipe(options, settings, m, makes_model(settings) || makes_plan(settings));
    if (settings.elsewhere) check_elsewhere(settings, options);
    const precision_plan changes = transform_mix(m, settings.data, options);
    options.remarks.insert(options.remarks.begin(), remarks.begin(), remarks.end());
    if (const std::string whole = batch_remark(m, inputs); !whole.empty()) options.remarks.push_back("--inputs: " + whole);
    options.strategy = settings.strategy;
    options.direction = settings.direction;
    options.ranking = settings.ranking;
    options.budget = settings.budget;
    options.budget_ratio = settings.budget_ratio;
    options.wide_share = settings.wide_share;
    options.limits = {settings.max_trials, settings.time_limit, settings.interrupted};
    options.seed = settings.seed;
    options.cache = settings.cache;
    if (settings.interrupted != nullptr) options.scoring.session.stop = [stop = settings.interrupted] { return stop->load(); };
    find_strategy(options.strategy);  // throws for a wrong name before the work starts

    const auto start = std::chrono::steady_clock::now();
    const calibration seen = calibrate_mix(m, settings.data, inputs, options, !settings.report.empty(), progress);
    const double calibration_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    check_export(settings, m, seen, options);
    options.on_trial = [&](std::size_t trials, const trial& best) {
        if (progress) progress(formatted("searching, best %.6g", best.result.metric), trials, settings.max_trials);
    };
    search_outcome done{graph::search(m, inputs, seen, options), {}, {}};
    done.result.seconds += calibration_seconds;
    done.result.plan.rotated = changes.rotated, done.result.plan.scaled = changes.scaled;
    if (settings.together.first()) write_results(settings, m, options, done, seen, files);
    return done;
}

}  // namespace qk::graph::pipeline
