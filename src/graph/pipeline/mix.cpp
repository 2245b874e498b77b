// SPDX-License-Identifier: Apache-2.0
#include "qk/graph/pipeline/mix.hpp"

#include <onnx/onnx_pb.h>

#include <algorithm>

#include "graph/export/style.hpp"
#include "graph/pipeline/transform.hpp"
#include "graph/plan/operand_tables.hpp"
#include "graph/quantize/pair_safe.hpp"
#include "graph/search/options.hpp"
#include "qk/graph/base/names.hpp"
#include "qk/graph/pipeline/files.hpp"
#include "qk/graph/quantize/remarks.hpp"
#include "qk/graph/search/metric_server.hpp"
#include "qk/graph/search/rounded_weights.hpp"
#include "qk/graph/search/scorer.hpp"

namespace qk::graph::pipeline {

std::vector<std::string> mix_settings::declare(output_set& files) const {
    std::vector<std::string> remarks = declare_run(files, model, data, precision);
    files.input("--latency-table", latency_table);
    declare_report(files, report);
    return remarks;
}

void mix_settings::fill(mix_options& options, const graph::model& m, const named_tensors& inputs, const std::string& default_metric,
                        const export_options& style) const {
    options.wide = wide;
    options.narrow = narrow;
    options.op_types = op_types;
    options.layers = layers;
    options.exclude = exclude;
    precision_settings own = precision;
    own.floor_scales = style.style.row().floor_scales;
    const asked_precision asked = own.read(m, true);
    if (asked.options.rounding != weight_rounding::nearest)
        throw error(
            "a search rounds weights to nearest unless a choice says otherwise: leave \"weight_rounding\" out, and say --narrow "
            "int8/int4@nearest|compensated|adaround");
    if (asked.options.correct_bias)
        throw error("a search leaves biases as they are: leave \"bias_correction\" out, and give it to `qk quantize` with what was found");
    options.fixed = asked.requests;
    std::erase_if(options.fixed, [](const request& r) { return r.of_choice; });
    options.choices = asked.choices;
    options.criterion = asked.criterion;
    for (const std::string& text : narrow_for) options.choices.push_back(parse_choice_request(text, "--narrow-for"));
    options.rounded = std::make_shared<rounded_weights>();
    if (asked.saved) options.fixed_plan = *asked.saved;
    if (asked.saved && asked.options.transforms())
        throw error("scaling of channels and rotation go before a plan is made, and a saved plan is given: leave one of them out");
    options.fixed_plan.accumulators.insert(asked.accumulators.begin(), asked.accumulators.end());
    for (const auto& notes : {asked.unused, asked.notes})
        for (std::string& line : remark_lines(notes)) options.remarks.push_back(std::move(line));
    options.quantize = asked.options;
    options.pair_safe = style.style.row().for_onnxruntime && codes_for(asked.options) == int8_codes::where_safe;
    options.per_channel = asked.options.per_channel;
    options.baseline_wide = baseline == "wide";
    options.cost = cost == "size" ? cost_kind::size : cost == "bit_operations" ? cost_kind::bit_operations : cost_kind::automatic;
    options.latency_table = latency_table;
    options.scoring.metric = metric.empty() ? default_metric : metric;
    if (!metric.empty() + !metric_command.empty() + !metric_server.empty() + bool(measure_outputs) + bool(measure_model) > 1)
        throw error("give one of --metric, --metric-command and --metric-server, or a function that measures");
    options.scoring.of_outputs = measure_outputs;
    options.scoring.of_any_samples = measures_any_samples;
    if (elsewhere)
        options.scoring.elsewhere = [rounded = options.rounded, score = elsewhere](std::span<const precision_plan> plans) {
            std::vector<precision_plan> whole(plans.begin(), plans.end());
            for (precision_plan& p : whole) rounded->take(p);  // a trial travels with the weights that it takes
            return score(whole);
        };
    if (measure_model)
        options.scoring.of_plan = [&m, style, rounded = options.rounded, f = measure_model](precision_plan plan) {
            const auto weights = rounded->take(plan);
            return f(write_plan(with_weights(m, weights), plan, style).exported);
        };
    if (!metric_command.empty()) options.scoring.user = metric_from_command(metric_command);
    if (!metric_server.empty()) {
        const auto write = [&m, style, rounded = options.rounded](precision_plan plan, const std::filesystem::path& file) {
            const auto weights = rounded->take(plan);
            write_plan(with_weights(m, weights), plan, style).exported.save(file);
        };
        options.scoring.server = std::make_shared<graph::metric_server>(metric_server_options{metric_server, metric_timeout, write});
    }
    options.scoring.user_name = metric_command + metric_server + (measure_outputs || measure_model ? "a function" : "");
    options.scoring.user_title = measure_name;
    options.scoring.user_higher_is_better = higher_is_better && measured_by_user();
    options.scoring.output_index = output_index;
    options.scoring.labels = data.load_labels(m, inputs, measured_by_user() ? std::nullopt : std::optional(output_index));
    options.scoring.positions = data.positions;
    options.scoring.session.threads = data.threads;
    options.scoring.session.together = together;
}

/// Adds a remark on weights that belong to no searchable layer: they stay as they are, unless one of the user's requests says otherwise.
static void note_held_weights(const model& m, mix_options& options) {
    const layer_view layers(m);
    const resolution asked = resolve(layers, options.fixed, options.quantize.resolving());
    std::vector<std::string> left;
    for (int i = 0; i < m.graph().node_size(); ++i)
        for (const held_weight& w : held_weights(layers, i)) {
            const onnx::NodeProto& n = m.graph().node(i);
            if (w.what != held_weight::kind::embedding && !asked.edges.contains({n.input(w.input), n.name(), w.input}) &&
                (left.empty() || left.back() != n.name()))
                left.push_back(n.name());
        }
    if (!left.empty())
        options.remarks.push_back("the weights in " + listed(left) +
                                  " are no layers to search and stay as they are: a request in --plan gives them a format");
}

precision_plan transform_mix(model& m, const data_settings& data, mix_options& options) {
    precision_plan changes;
    note_held_weights(m, options);
    if (!options.quantize.transforms()) return changes;
    const option_list all = list_options(options);
    const auto bits = [](const format_pair& p) { return bits_per_value(p.activation.format) + bits_per_value(p.weight.format); };
    const format_pair& narrowest = *std::ranges::min_element(all.pairs, {}, bits);
    std::vector<request> requests{{.scope = scope::everything, .role = role::activation, .what = narrowest.activation},
                                  {.scope = scope::everything, .role = role::weight, .what = narrowest.weight}};
    requests.insert(requests.end(), options.fixed.begin(), options.fixed.end());
    quantize_report report;
    const transformation done = transform(m, data, requests, options.quantize);
    done.into(changes);
    add_to(report, done);
    throw_violations(report, options.quantize);
    for (std::string& line : remark_lines(report.notes)) options.remarks.push_back(std::move(line));
    return changes;
}

calibration calibrate_mix(const model& m, const data_settings& data, const named_tensors& inputs, mix_options& options, bool histograms,
                          const progress_function& progress) {
    asked_precision asked{options.fixed, options.quantize, std::nullopt};
    const option_list all = list_options(options);
    for (const format_pair& pair : all.pairs)
        asked.requests.push_back({.scope = scope::everything, .role = role::activation, .what = pair.activation});
    const bool compensates = std::ranges::any_of(all.pairs, [](const format_pair& p) { return p.rounding != weight_rounding::nearest; });
    if ((compensates || options.pair_safe) && !data.calibration.empty() && !data.has_statistics())
        options.rounding_samples = data.load_calibration(m);
    if (options.pair_safe && !data.has_statistics())
        options.pair_samples = evenly_chosen(m, options.rounding_samples.empty() ? inputs : options.rounding_samples, moment_samples);
    return calibrate_for(m, data, asked, histograms, progress, &inputs, &options.scoring.float_outputs);
}

}  // namespace qk::graph::pipeline
