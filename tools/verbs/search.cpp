// SPDX-License-Identifier: Apache-2.0
// `qk search`: the mix of formats that meets a target or a budget, saved as plan, model and report.
#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>

#include "options/mix_options.hpp"
#include "options/words.hpp"
#include "qk/graph/export/export.hpp"
#include "qk/graph/files/json_text.hpp"
#include "qk/graph/model/model_files.hpp"
#include "qk/graph/quantize/plan_file.hpp"
#include "qk/graph/search/report.hpp"
#include "support/console.hpp"
#include "support/declared.hpp"
#include "support/processes.hpp"
#include "support/written.hpp"
#include "verbs.hpp"

namespace qk::tool {
namespace {

struct arguments : mix_arguments {
    std::string strategy = "greedy", direction = "narrow", output, save_plan, cache, export_style = "portable", weights = "packed";
    std::map<std::string, double> targets, drops;  // by metric
    std::optional<double> target_metric, budget, budget_ratio, wide_share;
    std::size_t trials = 0;
    double time_limit = 0;
    std::uint64_t seed = 0;
};

/// The one target that was given; it names the metric where --metric does not.
void choose_target(const arguments& given, graph::search_options& options, std::string& metric) {
    const std::size_t count = given.targets.size() + given.drops.size() + (given.target_metric ? 1 : 0);
    if (count > 1) throw graph::error("give one target; the search has one metric");
    const auto named = [&](const std::pair<const std::string, double>& t) {
        if (!given.metric.empty() && given.metric != t.first)
            throw graph::error(fmt::format("--target-{} does not fit --metric {}", t.first, given.metric));
        if (given.measured_by_user()) throw graph::error("with --metric-command or --metric-server the target is --target-metric");
        metric = t.first;
        return t.second;
    };
    if (!given.targets.empty()) options.target = named(*given.targets.begin());
    if (!given.drops.empty()) options.target_drop = named(*given.drops.begin());
    if (given.target_metric) options.target = *given.target_metric;
}

/// A format that the export style cannot hold is an error before the search, not after it: every option is exported once and thrown away.
void check_export(const arguments& given, const graph::model& m, const graph::calibration& seen, const graph::search_options& options) {
    if (given.output.empty()) return;
    graph::planner plans(m, &seen);
    std::vector<std::string> all{options.wide};
    all.insert(all.end(), options.narrow.begin(), options.narrow.end());
    for (const std::string& option : all) {
        const graph::format_pair pair = graph::parse_format_pair(option);
        graph::precision_requests requests;
        requests.set_default(pair.activation, pair.weight);
        graph::export_model(m, plans.plan(requests.list(), options.quantize, false).plan,
                            {graph::export_style_from(given.export_style), graph::weight_storage_from(given.weights)});
    }
}

void write_results(const arguments& given, const graph::model& m, const graph::search_options& options, const graph::search_result& result,
                   const graph::calibration& seen, graph::output_set& files) {
    // Everything is made before anything appears.
    std::optional<graph::export_result> exported;
    if (!given.output.empty()) {
        const bool keeps_signed = options.quantize.target && options.quantize.target->signed_int8;
        exported = write_plan(m, result.plan,
                              {graph::export_style_from(given.export_style), graph::weight_storage_from(given.weights),
                               keeps_signed ? graph::int8_codes::as_signed : graph::int8_codes::as_unsigned});
        graph::save(exported->exported, files, given.output);
    }
    if (!given.report.empty()) {
        files.write(given.report,
                    graph::search_html({std::filesystem::path(given.model).filename().string(), command_line(), &seen}, result));
        files.write(beside_report(given.report), graph::json_text(graph::to_json(result), 1) + "\n");
    }
    if (!given.save_plan.empty()) files.write(given.save_plan, graph::json_text(graph::to_json(result.plan), 1) + "\n");
    files.commit();
    if (!exported) return;
    for (const std::string& note : exported->notes) print(stderr, "{}\n", note);
}

void search(const arguments& given, verb_result& verdict) {
    graph::output_set files(given.overwrite, processes::together().first());
    given.declare(files);
    files.output("-o", given.output).output("--save-plan", given.save_plan).appended("--cache", given.cache);
    const graph::model m = load_for_planning(given.model);
    const graph::named_tensors inputs = given.data.load_inputs(m);
    graph::search_options options;
    std::string metric = "l2";
    choose_target(given, options, metric);
    given.fill(options, m, metric, {graph::export_style_from(given.export_style), graph::weight_storage_from(given.weights)});
    options.strategy = given.strategy;
    options.direction = given.direction;
    options.budget = given.budget;
    options.budget_ratio = given.budget_ratio;
    options.wide_share = given.wide_share;
    options.limits = {given.trials, given.time_limit, &interrupted()};
    options.seed = given.seed;
    options.cache = given.cache;
    options.scoring.session.stop = [] { return interrupted().load(); };
    graph::find_strategy(options.strategy);  // a wrong name before the work, not after it
    graph::export_style_from(given.export_style);

    watch_interrupts();
    const auto start = std::chrono::steady_clock::now();
    const graph::calibration seen = calibrate_mix(m, given.data, inputs, options, !given.report.empty());
    const double calibration_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    check_export(given, m, seen, options);
    graph::search_result result;
    {
        progress bar("searching", 0);
        options.on_trial = [&](std::size_t done, const graph::trial& best) {
            bar.label(fmt::format("searching, best {:.6g}", best.result.metric));
            bar.show(done, given.trials);
        };
        result = graph::search(m, inputs, seen, options);
    }
    result.seconds += calibration_seconds;
    if (!result.target_met) verdict.status = status::failed;
    if (!processes::together().first()) return;
    for (const std::string& r : result.remarks) print(stderr, "{}\n", r);
    write_results(given, m, options, result, seen, files);
    if (given.json) return print_json(graph::to_json(result));

    if (result.choice == result.space.all(0)) print(stderr, "the mix found changes nothing: every layer stays wide\n");
    print("status            {}\n{:<17} {:.6g}", result.status, result.metric_name, result.metric);
    if (result.target) print(" (target {:.6g})", *result.target);
    print("\nall wide          {:.6g}\ncost              {:.6g} {} of {:.6g} all wide\n", result.baseline_metric, result.cost,
          result.cost_unit, result.wide_cost);
    print("evaluations       {}; layers {} instead of {}\nseconds           {:.2f}\n\n", result.evaluations, result.layer_evaluations,
          result.naive_layer_evaluations, result.seconds);
    for (std::size_t l = 0; l < result.space.size(); ++l)
        print("{:<40} {}\n", result.space.layers[l], result.space.options[result.choice[l]]);
}

std::string strategies() {
    std::string s;
    for (const graph::strategy& each : graph::all_strategies()) s += fmt::format("\n  {:<11} {}", each.name, each.what);
    return s;
}

}  // namespace

void add_search(command& app, verb_result& result) {
    auto given = std::make_shared<arguments>();
    option_table& verb = app.add_subcommand("search", "Find the narrowest mix of formats that keeps a target, or the best within a budget");
    given->add(verb);
    verb.section("Search");
    verb.add_option("--strategy", given->strategy, comma_separated(strategy_words()) + " (below)")
        .type_name("S")
        .common()
        .suggest(strategy_words());
    verb.add_option("--direction", given->direction, "greedy: from all wide, or from all narrow").one_of({"narrow", "widen"});
    verb.section("Target");
    for (const graph::metric& m : graph::all_metrics()) {
        const std::string name(m.name);
        verb.add_function(
                "--target-" + name, [given, name](double v) { given->targets[name] = v; },
                fmt::format("{} {} (and sets --metric)", m.higher_is_better ? "at least this" : "at most this", name))
            .type_name("X");
        if (!m.is_accuracy) continue;
        verb.add_function(
                "--target-" + name + "-drop", [given, name](double v) { given->drops[name] = v; },
                fmt::format("{} at most this fraction below the baseline's", name))
            .type_name("X")
            .between(0, 1, "it is a fraction: 0.01 is one percentage point");
    }
    verb.add_option("--target-metric", given->target_metric, "of --metric, --metric-command or --metric-server").type_name("X");
    verb.add_option("--budget", given->budget, "cost at most this, in the cost's unit")
        .type_name("C")
        .at_least(0, "it is a cost; a search prints the unit");
    verb.add_option("--budget-ratio", given->budget_ratio, "cost at most this share of all wide")
        .type_name("R")
        .between(0, 1, "it is a share of what the model costs all wide: 0.5 is half");
    verb.add_option("--wide-share", given->wide_share, "this share of the layers stays wide, chosen for the best metric")
        .type_name("R")
        .between(0, 1, "it is a share of the searched layers: 0.25 keeps a quarter wide");
    verb.section("Search");
    verb.add_option("--max-trials", given->trials, "stop after so many evaluations with the best so far")
        .type_name("N")
        .at_least(0, "0 sets no limit");
    verb.add_option("--time-limit", given->time_limit, "stop after so many seconds with the best so far")
        .type_name("SECONDS")
        .at_least(0, "leave --time-limit out for none");
    verb.add_option("--seed", given->seed, "of bayesian and random").type_name("N");
    verb.add_option("--cache", given->cache, "keep measurements here; the same search goes on where it was stopped").type_name("FILE");
    verb.section("Output");
    verb.add_option("-o,--output", given->output, "write the quantized model").type_name("OUT.onnx").common().writes();
    verb.add_option(
            "--export", given->export_style,
            "portable (default): every format, in standard operators or functions of them; qdq, qoperator, qinteger, amd: docs/export.md")
        .type_name("STYLE")
        .suggest(style_words());
    verb.add_option("--weights", given->weights, "packed (default) or float").type_name("W").suggest(weight_storage_words());
    verb.add_option("--save-plan", given->save_plan, "write the chosen plan").type_name("P.json").common().writes();
    verb.footer(
        "Strategies:" + strategies() + "\n\n" + metric_definitions() +
        "\n\nCtrl-C ends a search with the best so far. Exit status 1: the target was not met (results are written all the same).\n\n"
        "Examples:\n"
        "  qk search model.onnx --inputs x.npy --wide int16/int8 --narrow int8/int8 --target-l2 0.5 -o mixed.onnx --report mix.html\n"
        "  qk search model.onnx --inputs x.npy --labels y.npy --wide int8/int8 --narrow int8/int4 --strategy budget --target-top1-drop "
        "0.02\n"
        "  mpirun -n 4 qk search model.onnx --inputs x.npy --threads 2 --target-l2 0.5   (built with MPI: the samples divided among "
        "processes)\n"
        "  qk search model.onnx --inputs x.npy --wide bf16/bf16 --narrow bfp16/bfp16,mxfp4/mxfp4 --strategy pareto --metric sqnr --report "
        "front.html");
    verb.callback([given, &result] { search(*given, result); });
}

}  // namespace qk::tool
