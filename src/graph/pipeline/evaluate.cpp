// SPDX-License-Identifier: Apache-2.0
#include "qk/graph/pipeline/evaluate.hpp"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "qk/graph/base/process_memory.hpp"
#include "qk/graph/evaluate/fold.hpp"
#include "qk/graph/evaluate/inputs.hpp"
#include "qk/graph/files/npy.hpp"
#include "qk/graph/pipeline/expand.hpp"
#include "qk/graph/pipeline/files.hpp"
#include "qk/graph/pipeline/generate.hpp"
#include "qk/graph/plan/accumulators.hpp"
#include "qk/graph/search/positions.hpp"

namespace qk::graph::pipeline {
namespace {

std::filesystem::path file_in(const std::string& folder, const std::string& name) {
    return std::filesystem::path(folder) / (as_file_name(name) + ".npy");
}

/// The plan that the settings ask for; what --accumulator says wins over its accumulators. Where planning changes weights, `original` gets
/// the model with its own.
quantize_result plan_of(const evaluate_settings& settings, model& m, std::optional<model>& original, const progress_function& progress) {
    quantize_result made;
    if (!settings.precision.any() && settings.accumulators.empty()) return made;
    fold_constants(m);
    fold_batch_normalization(m);
    expand_for(m, settings.precision);
    if (settings.precision.any()) {
        asked_precision asked = settings.precision.read(m);
        if (asked.changes_weights()) original = m;
        made = make_plan(m, settings.data, std::move(asked), nullptr, false, progress);
    }
    std::vector<accumulator_request> asked;
    for (const std::string& text : settings.accumulators) asked.push_back(parse_accumulator_request(text, "--accumulator"));
    layer_accumulators units = resolve_accumulators(m, asked);
    units.merge(made.plan.accumulators);
    made.plan.accumulators = std::move(units);
    return made;
}

nlohmann::ordered_json generate_summary(const evaluate_settings& settings, const evaluator& runs, const named_tensors& inputs,
                                        const precision_plan& plan) {
    generate_settings wanted{.steps = settings.generate, .mask = settings.data.positions.mask, .output_index = settings.output_index};
    if (!settings.metrics.empty()) wanted.metrics = settings.metrics;
    const generated made = generate(runs, inputs, plan, wanted);
    nlohmann::ordered_json json{{"samples", made.tokens.size()}, {"generated", settings.generate}};
    for (const std::string& name : wanted.metrics) json[name] = made.metrics.at(name);
    json["tokens"] = made.tokens;
    return json;
}

/// Metrics of one output: those asked for; else with labels the usual ones.
void measure_output(const evaluate_settings& settings, const model& m, const named_tensors& inputs, const evaluate_result& run,
                    const named_tensors& reference, nlohmann::ordered_json& json) {
    const auto labels = settings.data.load_labels();
    const position_options& positions = settings.data.positions;
    if (settings.metrics.empty() && labels.empty() && !positions.next_token) return;
    const std::string& output = m.outputs().at(static_cast<std::size_t>(settings.output_index)).name;
    const tensor& y = run.outputs.at(output);
    std::vector<std::string> names = settings.metrics;
    if (labels.size() % run.samples != 0 || (y.rank() != 3 && !labels.empty() && labels.size() != run.samples))
        throw error("'" + settings.data.labels + "' has " + std::to_string(labels.size()) + " labels for " + std::to_string(run.samples) +
                    " samples");
    if (names.empty() && y.rank() != 3) {
        json["top1"] = top_k(y, labels, 1);
        if (y.size() > 5 * run.samples) json["top5"] = top_k(y, labels, 5);
        return;
    }
    if (names.empty()) names = {"top1", "top5", "loss", "perplexity"};
    const graph::positions where(m, inputs, run.samples, labels, positions);
    for (const std::string& name : names) {
        const metric& measured = find_metric(name);
        if (measured.needs_labels && !where.has_labels())
            throw error("metric " + name + " needs --labels, or --next-token for a language model");
        if (!measured.needs_labels && !reference.contains(output))
            throw error("metric " + name + " compares with a reference: give formats (--activation, --weight, --plan) or --compare DIR");
        json[name] = measure(measured, where, run.outputs, reference, output, run.samples);
    }
}

}  // namespace

evaluate_outcome evaluate(const evaluate_settings& settings, const progress_function& progress) {
    evaluate_outcome done;
    output_set files(settings.overwrite);
    done.remarks = declare_model(files, settings.model);
    declare(files, settings.data);
    declare(files, settings.precision);
    files.input("--compare", settings.compare).folder("--output-dir", settings.output_dir);
    if (settings.generate > 0 && !(settings.compare + settings.output_dir).empty())
        throw error("--generate prints tokens and metrics: leave --output-dir and --compare out");
    model m = model::load(settings.model);
    if (!settings.output_dir.empty())
        for (const auto& o : m.outputs()) files.output("--output-dir", file_in(settings.output_dir, o.name));
    const named_tensors inputs = settings.data.load_inputs(m);
    for (const std::string& name : settings.metrics) find_metric(name);  // a wrong name before the work, not after it
    if (settings.output_index < 0 || static_cast<std::size_t>(settings.output_index) >= m.outputs().size())
        throw error("--output-index " + std::to_string(settings.output_index) + " is out of range: the model has " +
                    std::to_string(m.outputs().size()) + " outputs, counted from 0");
    named_tensors expected;
    if (!settings.compare.empty())
        for (const auto& o : m.outputs()) expected[o.name] = read_npy(file_in(settings.compare, o.name));
    std::optional<model> original;
    quantize_result made = plan_of(settings, m, original, progress);
    const precision_plan& plan = made.plan;
    done.report = std::move(made.report);
    const evaluate_options how{.threads = settings.data.threads, .batch = settings.batch};
    if (settings.generate > 0) {
        done.summary = generate_summary(settings, evaluator(m, how), inputs, plan);
        return done;
    }
    // One evaluator after the other: each holds the weights that its plan multiplies with.
    evaluate_options first = how;  // the outputs of a text may be larger than all else: they are kept where something reads them
    first.keep_outputs = !settings.metrics.empty() || settings.data.positions.next_token || !settings.data.load_labels().empty() ||
                         !expected.empty() || !settings.output_dir.empty();
    evaluate_result& run = done.run = evaluator(m, first).run(inputs, plan, {}, progress_of(progress, "evaluating"));

    nlohmann::ordered_json& json = done.summary;
    json["samples"] = run.samples;
    if (!plan.accumulators.empty()) json["accumulators"] = plan.accumulators;
    named_tensors reference = expected;
    const auto compares = [](const std::string& name) { return !find_metric(name).needs_labels; };
    if ((settings.precision.any() || !plan.accumulators.empty()) && std::ranges::any_of(settings.metrics, compares))
        reference = evaluator(original ? *original : m, how).run(inputs).outputs;
    measure_output(settings, m, inputs, run, reference, json);
    json["seconds"] = run.seconds;
    json["items_per_second"] = static_cast<double>(run.samples) / run.seconds;
    json["peak_bytes"] = std::max(run.peak_bytes, peak_process_bytes());
    for (const auto& [name, value] : expected) {
        const output_difference d = compare_outputs(run.outputs.at(name), value, name);
        done.agree = done.agree && d.relative <= settings.tolerance;
        done.differences.emplace(name, d);
        json["compare"][name] = {{"max_abs", d.absolute}, {"max_rel", d.relative}, {"largest", d.largest}};
    }
    if (!expected.empty()) json["agree"] = done.agree;
    if (!settings.output_dir.empty())
        for (const auto& [name, value] : run.outputs) files.write(file_in(settings.output_dir, name), to_npy(value));
    files.commit();
    return done;
}

}  // namespace qk::graph::pipeline
