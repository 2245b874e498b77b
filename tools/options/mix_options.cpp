// SPDX-License-Identifier: Apache-2.0
#include "options/mix_options.hpp"

#include <fmt/format.h>

#include <csignal>

#include "options/words.hpp"
#include "qk/graph/search.hpp"
#include "support/caller.hpp"
#include "support/console.hpp"
#include "support/declared.hpp"
#include "support/processes.hpp"

namespace qk::tool {
std::string metric_definitions() {
    std::string s =
        "Metrics (y: an output, r: the same output of the float model, or of the wide one with --baseline wide; a sample is what stands at "
        "one index\n"
        "of axis 0; of an output [N,S,C] kl, loss, perplexity, top1, top5 and agreement count each of the S positions: "
        "docs/guide/search.md):";
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
    if (this_caller() != nullptr) return;  // the caller hears Ctrl-C itself
    interrupted();                         // constructs the flag before the handler can use it
    std::signal(SIGINT, on_interrupt);
}

void add_mix(option_table& verb, graph::pipeline::mix_settings& mix, bool& json) {
    verb.add_option("MODEL", mix.model.file, "ONNX model").required().reads().also_for(input_kind::checkpoint);
    add_data(verb, mix.data);
    add_positions(verb, mix.data);
    verb.section("Formats and layers");
    verb.add_option("--wide", mix.wide, "formats that every layer can bear, ACTIVATION/WEIGHT").type_name("A/W").common();
    verb.add_option("--narrow", mix.narrow,
                    "formats to get to, one or several ACTIVATION/WEIGHT; FORMAT@WORD says how (a calibration method, asym, per_channel, "
                    "compensated, adaround, an MX scale rule), and bars stand between alternatives: int8@min_max|entropy/int8 "
                    "(docs/guide/search.md)")
        .delimiter(',')
        .type_name("A/W[,A/W...]")
        .common();
    verb.add_option("--narrow-for", mix.narrow_for, "the same for an operator type or some layers alone: Conv=int8@min_max|entropy/int8")
        .one_each()
        .type_name("LAYERS=A/W[,A/W...]");
    verb.section("Measure");
    verb.add_option("--metric", mix.metric, "what is measured: " + comma_separated(metric_words()))
        .type_name("M")
        .common()
        .suggest(metric_words());
    verb.add_option("--metric-command", mix.metric_command,
                    "measure with a command of your own: it gets OUTPUT.npy REFERENCE.npy [LABELS.npy] and prints a number")
        .type_name("CMD");
    verb.add_option("--metric-server", mix.metric_server,
                    "likewise, started once: it answers each trial with a line (docs/guide/search.md, examples/metric_server)")
        .type_name("CMD");
    verb.add_option("--metric-timeout", mix.metric_timeout, "longest time for an answer of --metric-server (600); 0: as long as it takes")
        .type_name("SECONDS")
        .at_least(0);
    verb.add_flag("--higher-is-better", mix.higher_is_better, "of --metric-command or --metric-server");
    verb.add_option("--baseline", mix.baseline, "whose outputs errors and drops count from").one_of({"float", "wide"});
    verb.add_option("--output-index", mix.output_index, "which model output is measured, from 0").type_name("I");
    verb.section("Formats and layers");
    verb.add_option("--op-types", mix.op_types, "only layers of these operator types").delimiter(',').type_name("TYPE[,TYPE...]");
    verb.add_option("--layers", mix.layers, "only these layers, by name or pattern").delimiter(',').type_name("NAME[,NAME...]");
    verb.add_option("--exclude", mix.exclude, "these layers stay wide").delimiter(',').type_name("NAME[,NAME...]");
    verb.section("Cost");
    verb.add_option("--cost", mix.cost, "what is saved: size of the weights, bit_operations, or auto (size where the weights differ)")
        .one_of({"auto", "size", "bit_operations"});
    verb.add_option("--latency-table", mix.latency_table, "costs from a table of yours (docs/guide/search.md)")
        .type_name("FILE.json")
        .reads();
    add_precision(verb, mix.precision, false);
    verb.section("Output");
    verb.add_option("--report", mix.report, "HTML page with plots; JSON beside it").type_name("R.html").common();
    add_overwrite(verb, mix.overwrite);
    verb.add_flag("--json", json, "one JSON object on standard output").common().also_for(input_kind::checkpoint);
}

void place(graph::pipeline::mix_settings& mix) {
    mix.command = command_line();
    if (const caller* by = this_caller()) {
        mix.measure_outputs = by->measure_outputs;
        mix.measures_any_samples = by->measures_any_samples;
        mix.measure_model = by->measure_model;
        mix.measure_name = by->measure_name;
        mix.elsewhere = by->elsewhere;
        if (by->take_settings) by->take_settings(mix);
    }
    mix.together = processes::together();
}

}  // namespace qk::tool
