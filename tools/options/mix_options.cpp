// SPDX-License-Identifier: Apache-2.0
#include "options/mix_options.hpp"

#include <fmt/format.h>

#include <csignal>

#include "options/words.hpp"
#include "qk/graph/search/scorer.hpp"
#include "support/declared.hpp"
#include "support/processes.hpp"
#include "support/written.hpp"

namespace qk::tool {
namespace {}  // namespace

std::string metric_definitions() {
    std::string s =
        "Metrics (y: an output, r: the same output of the float model, or of the wide one with --baseline wide; a sample is what stands at "
        "one index\n"
        "of axis 0, all its values counted alike whatever the rank: docs/search.md):";
    for (const graph::metric& m : graph::all_metrics()) s += fmt::format("\n  {:<11} {}", m.name, m.what);
    return s;
}

namespace {

extern "C" void on_interrupt(int) {
    interrupted().store(true);
    std::signal(SIGINT, SIG_DFL);
}

}  // namespace

std::atomic<bool>& interrupted() {
    static std::atomic<bool> flag{false};
    return flag;
}

void watch_interrupts() {
    interrupted();  // made before a handler may ask for it
    std::signal(SIGINT, on_interrupt);
}

void mix_arguments::add(option_table& verb) {
    verb.add_option("MODEL", model, "ONNX model").required().reads();
    data.add(verb);
    verb.section("Formats and layers");
    verb.add_option("--wide", wide, "formats that every layer can bear, ACTIVATION/WEIGHT").type_name("A/W").common();
    verb.add_option("--narrow", narrow, "formats to get to, one or several ACTIVATION/WEIGHT; FORMAT@RULE names an MX scale rule")
        .delimiter(',')
        .type_name("A/W[,A/W...]")
        .common();
    verb.section("Measure");
    verb.add_option("--metric", metric, "what is measured: " + comma_separated(metric_words()))
        .type_name("M")
        .common()
        .suggest(metric_words());
    verb.add_option("--metric-command", metric_command,
                    "measure with a command of your own: it gets OUTPUT.npy REFERENCE.npy [LABELS.npy] and prints a number")
        .type_name("CMD");
    verb.add_option("--metric-server", metric_server,
                    "likewise, started once: it answers each trial with a line (docs/search.md, examples/metric_server)")
        .type_name("CMD");
    verb.add_option("--metric-timeout", metric_timeout, "longest time for an answer of --metric-server (600); 0: as long as it takes")
        .type_name("SECONDS")
        .at_least(0);
    verb.add_flag("--higher-is-better", higher_is_better, "of --metric-command or --metric-server");
    verb.add_option("--baseline", baseline, "whose outputs errors and drops count from").one_of({"float", "wide"});
    verb.add_option("--output-index", output_index, "which model output is measured, from 0").type_name("I");
    verb.section("Formats and layers");
    verb.add_option("--op-types", op_types, "only layers of these operator types").delimiter(',').type_name("TYPE[,TYPE...]");
    verb.add_option("--layers", layers, "only these layers, by name or pattern").delimiter(',').type_name("NAME[,NAME...]");
    verb.add_option("--exclude", exclude, "these layers stay wide").delimiter(',').type_name("NAME[,NAME...]");
    verb.section("Cost");
    verb.add_option("--cost", cost, "what is saved: size of the weights, bit_operations, or auto (size where the weights differ)")
        .one_of({"auto", "size", "bit_operations"});
    verb.add_option("--latency-table", latency_table, "costs from a table of yours (docs/search.md)").type_name("FILE.json").reads();
    precision.add(verb, false);
    verb.section("Output");
    verb.add_option("--report", report, "HTML page with plots; JSON beside it").type_name("R.html").common();
    add_overwrite(verb, overwrite);
    verb.add_flag("--json", json, "one JSON object on standard output").common();
}

void mix_arguments::declare(graph::output_set& files) const {
    tool::declare(files, model);
    tool::declare(files, data);
    tool::declare(files, precision);
    files.input("--latency-table", latency_table);
    declare_report(files, report);
}

void mix_arguments::fill(graph::mix_options& options, const graph::model& m, const std::string& default_metric,
                         const graph::export_options& style) const {
    options.wide = wide;
    options.narrow = narrow;
    options.op_types = op_types;
    options.layers = layers;
    options.exclude = exclude;
    const precision_options::asked asked = precision.read(m);
    if (asked.options.rounding == graph::weight_rounding::compensated)
        throw graph::error(
            "a search rounds weights to nearest: leave \"weight_rounding\" out, and give --weight-rounding compensated to `qk quantize "
            "--plan` of what was found");
    if (asked.options.best_method)
        throw graph::error(
            "a search measures mixes under one calibration method: ask `qk quantize --calibration-method best` first, and give its answer "
            "here");
    options.fixed = asked.requests;
    if (asked.saved) options.fixed_plan = *asked.saved;
    for (const graph::plan_note& n : asked.notes) options.remarks.push_back(n.origin + ": " + n.subject + ": " + n.text);
    options.quantize = asked.options;
    options.per_channel = asked.options.per_channel;
    options.baseline_wide = baseline == "wide";
    options.cost = cost == "size"             ? graph::cost_kind::size
                   : cost == "bit_operations" ? graph::cost_kind::bit_operations
                                              : graph::cost_kind::automatic;
    options.latency_table = latency_table;
    options.scoring.metric = metric.empty() ? default_metric : metric;
    if (!metric.empty() + !metric_command.empty() + !metric_server.empty() > 1)
        throw graph::error("give one of --metric, --metric-command and --metric-server");
    if (!metric_command.empty()) options.scoring.user = graph::metric_from_command(metric_command);
    if (!metric_server.empty()) {
        const auto write = [&m, style](const graph::precision_plan& plan, const std::filesystem::path& file) {
            write_plan(m, plan, style).exported.save(file);
        };
        options.scoring.server = std::make_shared<graph::metric_server>(graph::metric_server_options{metric_server, metric_timeout, write});
    }
    options.scoring.user_name = metric_command + metric_server;
    options.scoring.user_higher_is_better = higher_is_better && measured_by_user();
    options.scoring.output_index = output_index;
    options.scoring.labels = data.load_labels();
    options.scoring.session.threads = data.threads;
    options.scoring.session.together = processes::together();
}

graph::calibration calibrate_mix(const graph::model& m, const data_options& data, const graph::named_tensors& inputs,
                                 graph::mix_options& options, bool histograms) {
    precision_options::asked asked{options.fixed, options.quantize, std::nullopt};
    const auto ask = [&](const std::string& pair) {
        graph::request r{
            .scope = graph::scope::everything, .role = graph::role::activation, .what = graph::parse_format_pair(pair).activation};
        asked.requests.push_back(std::move(r));
    };
    ask(options.wide);
    for (const std::string& pair : options.narrow) ask(pair);
    return calibrate_for(m, data, asked, histograms, &inputs, &options.scoring.float_outputs);
}

}  // namespace qk::tool
