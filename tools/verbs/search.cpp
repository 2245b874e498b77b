// SPDX-License-Identifier: Apache-2.0
// `qk search`: the mix of formats that meets a target or a budget, saved as plan, model and report.
#include <fmt/format.h>

#include <cmath>
#include <memory>

#include "options/mix_options.hpp"
#include "options/precision_options.hpp"
#include "options/words.hpp"
#include "qk/graph/pipeline.hpp"
#include "qk/graph/search.hpp"
#include "support/caller.hpp"
#include "support/checkpoints.hpp"
#include "support/console.hpp"
#include "support/processes.hpp"
#include "verbs.hpp"

namespace qk::tool {
namespace {

struct search_arguments : with_json<graph::pipeline::search_settings> {
    std::vector<std::string> formats{"q2_k", "q3_k", "q4_k", "q5_k", "q6_k", "q8_0"};
    std::vector<std::string> share;
    std::string importance;
    bool budget_is_bits = false, names_as_they_are = false;
};

void search(const search_arguments& given, verb_result& verdict) {
    watch_interrupts();
    graph::pipeline::search_outcome done = with_progress([&](const auto& report) { return graph::pipeline::search(given, report); });
    const graph::search_result& result = done.result;
    if (!result.target_met) verdict.status = status::failed;
    if (!processes::together().first()) return;
    if (caller* by = keeper_of_results()) {
        by->results.model = std::move(done.model);
        if (given.save_plan.empty()) by->keep(result.plan);
    }
    for (const std::string& r : result.remarks) print(stderr, "{}\n", r);
    for (const std::string& note : done.export_notes) print(stderr, "{}\n", note);
    if (given.json) return print_json(graph::to_json(result));

    if (result.choice == result.space.all(0)) print(stderr, "the mix found changes nothing: every layer stays wide\n");
    print("status            {}\n{:<17} {:.6g}", result.status, result.metric_name, result.metric);
    if (result.target) print(" (target {:.6g})", *result.target);
    if (std::isfinite(result.float_metric) && result.float_metric != 0) print("\nreference         {:.6g}", result.float_metric);
    print("\nall wide          {:.6g}\ncost              {:.6g} {} of {:.6g} all wide\n", result.baseline_metric, result.cost,
          result.cost_unit, result.wide_cost);
    if (const std::string chance = graph::chance_text(result); !chance.empty()) print("{}\n", chance);
    print("evaluations       {}; layers {} instead of {}\nseconds           {:.2f}\n\n", result.evaluations, result.layer_evaluations,
          result.naive_layer_evaluations, result.seconds);
    for (std::size_t l = 0; l < result.space.size(); ++l) {
        const auto module = result.modules.find(result.space.layers[l]);
        print("{:<40} {}{}\n", result.space.layers[l], result.space.options[result.choice[l]],
              module == result.modules.end() ? "" : "  module " + module->second);
    }
}

std::string strategies() {
    std::string s;
    for (const graph::strategy& each : graph::all_strategies()) s += fmt::format("\n  {:<11} {}", each.name, each.what);
    return s;
}

void add_targets(option_table& verb, const std::shared_ptr<search_arguments>& given) {
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
    verb.add_option("--target-drop", given->target_drop, "any metric at most this much worse than the reference's (--baseline)")
        .type_name("X")
        .at_least(0, "it is how much worse the metric may be");
    verb.add_option("--target-relative", given->target_relative,
                    "any metric worse by at most this share of the reference's: 0.01 is one hundredth of it")
        .type_name("X")
        .at_least(0, "it is a share of the reference's metric: 0.01 is one hundredth of it");
    verb.add_option("--budget", given->budget, "cost at most this, in the cost's unit; of a checkpoint bytes, or bits a weight as 4.7bpw")
        .with_unit("bpw", given->budget_is_bits)
        .type_name("C")
        .also_for(input_kind::checkpoint)
        .at_least(0, "it is a cost; a search prints the unit");
    verb.add_option("--budget-ratio", given->budget_ratio, "cost at most this share of all wide")
        .type_name("R")
        .between(0, 1, "it is a share of what the model costs all wide: 0.5 is half");
    verb.add_option("--wide-share", given->wide_share, "this share of the layers stays wide, chosen for the best metric")
        .type_name("R")
        .between(0, 1, "it is a share of the searched layers: 0.25 keeps a quarter wide");
}

/// Returns whether the budget can be met.
bool search_checkpoint(const search_arguments& given) {
    if (!given.budget)
        throw graph::error(given.model.file +
                           " is a checkpoint; --budget gives the bytes that its matrices may take, or the bits of each value, as 4.7bpw");
    return search_formats({.input = given.model.file,
                           .save_plan = given.save_plan,
                           .output = given.output,
                           .importance = given.importance,
                           .formats = given.formats,
                           .share = given.share,
                           .budget = *given.budget,
                           .budget_is_bits = given.budget_is_bits,
                           .threads = given.data.threads,
                           .json = given.json,
                           .overwrite = given.overwrite,
                           .names_as_they_are = given.names_as_they_are});
}

void add_checkpoint_options(option_table& verb, search_arguments& given) {
    verb.only_for(input_kind::checkpoint);
    verb.section("Checkpoints");
    verb.add_option("--formats", given.formats,
                    "ggml's types to choose from (q2_k to q8_0); or formats of `qk formats`, int4_g128 in groups, which -o does not write")
        .delimiter(',')
        .type_name("F[,F...]");
    verb.add_option("--share", given.share,
                    "weights of one layer that fit get one format, as a runtime that fuses them needs: '*.experts.*', or "
                    "'*.q_proj.*,*.k_proj.*,*.v_proj.*'; may be repeated")
        .one_each()
        .type_name("GLOB[,GLOB...]");
    verb.add_option(
            "--importance", given.importance,
            "weights of the columns, for the choice and for -o: an .npz with a float32 vector for each tensor, or llama.cpp's imatrix "
            "(.gguf, .dat)")
        .type_name("V.npz")
        .reads();
    verb.add_flag("--names-as-they-are", given.names_as_they_are, "-o writes a .gguf of a Hugging Face model all the same");
    verb.only_for({});
}

}  // namespace

void add_search(command& app, verb_result& result) {
    auto given = std::make_shared<search_arguments>();
    option_table& verb = app.add_subcommand("search", "Find the narrowest mix of formats that keeps a target, or the best within a budget");
    verb.takes(input_kind::model | input_kind::checkpoint,
               [given] { return checkpoint_or(input_kind::model, given->model.file, "a model"); });
    verb.only_for(input_kind::model);
    add_recipe(verb, given->precision);
    add_mix(verb, *given, given->json);
    verb.at("--overwrite").also_for(input_kind::checkpoint);
    verb.section("Search");
    verb.add_option("--strategy", given->strategy, comma_separated(strategy_words()) + " (below)")
        .type_name("S")
        .common()
        .suggest(strategy_words());
    verb.add_option("--ranking", given->ranking,
                    "of single layers: measured, estimated by gradient with those near the target measured, or auto (default): what "
                    "should take less time. What is returned is measured")
        .one_of({"gradient", "measured", "auto"});
    verb.add_option("--direction", given->direction, "greedy: from all wide, or from all narrow").one_of({"narrow", "widen"});
    add_targets(verb, given);
    verb.section("Search");
    verb.add_option("--max-trials", given->max_trials, "stop after so many evaluations with the best so far")
        .type_name("N")
        .at_least(0, "0 sets no limit");
    verb.add_option("--time-limit", given->time_limit, "stop after so many seconds with the best so far")
        .type_name("SECONDS")
        .at_least(0, "leave --time-limit out for none");
    verb.add_option("--seed", given->seed, "of bayesian and random").type_name("N");
    verb.add_option("--cache", given->cache, "keep measurements here; the same search goes on where it was stopped").type_name("FILE");
    add_checkpoint_options(verb, *given);
    verb.section("Output");
    verb.add_option("-o,--output", given->output, "write the quantized model").type_name("OUT.onnx").common().writes();
    verb.add_option("--export", given->style, style_lines()).type_name("STYLE").suggest(style_words()).only_for(input_kind::model);
    verb.add_option("--weights", given->weights, "packed (default), float or product")
        .type_name("W")
        .suggest(weight_storage_words())
        .only_for(input_kind::model);
    verb.add_option("--save-plan", given->save_plan, "write the chosen plan").type_name("P.json").common().writes();
    verb.footer(
        "Strategies:" + strategies() + "\n\n" + metric_definitions() +
        "\n\nCtrl-C ends a search with the best so far. Exit status 1: the target was not met (results are written all the same).\n\n"
        "Examples:\n"
        "  qk search model.onnx --inputs x.npy --wide int16/int8 --narrow int8/int8 --target-l2 0.5 -o mixed.onnx --report mix.html\n"
        "  qk search model.onnx --inputs x.npy --labels y.npy --wide int8/int8 --narrow int8/int4 --strategy budget --target-top1-drop "
        "0.02\n"
        "  qk search model.onnx --inputs x.npy --wide int16/int8 --narrow \"int8@min_max|entropy/int8@per_tensor|per_channel\" "
        "--target-sqnr "
        "20\n"
        "  mpirun -n 4 qk search model.onnx --inputs x.npy --threads 2 --target-l2 0.5   (built with MPI: the samples divided among "
        "processes)\n"
        "  qk search model.onnx --inputs x.npy --wide bf16/bf16 --narrow bfp16/bfp16,mxfp4/mxfp4 --strategy pareto --metric sqnr --report "
        "front.html\n"
        "  qk search model.safetensors --budget 100000 --formats q4_0,q8_0 --save-plan formats.json\n"
        "  qk search model.gguf --budget 4.7bpw --formats q3_k,q4_k,q5_k --share 'blk.*' -o mix.gguf");
    verb.callback([given, &result] {
        take_from_caller(*given);
        if (is_checkpoint(given->model.file)) {
            if (!search_checkpoint(*given)) result.status = status::failed;
            return;
        }
        if (given->budget_is_bits)
            throw graph::error("--budget in bpw, bits a weight, is for checkpoints; a model's --budget is in the cost's unit");
        place(*given);
        given->returns_plan = keeper_of_results() != nullptr;
        given->returns_model = given->returns_plan && given->output.empty();
        given->interrupted = this_caller() != nullptr ? &this_caller()->interrupted : &interrupted();
        search(*given, result);
    });
}

}  // namespace qk::tool
