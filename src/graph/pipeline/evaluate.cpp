// SPDX-License-Identifier: Apache-2.0
#include "qk/graph/pipeline/evaluate.hpp"

#include <filesystem>

#include "qk/graph/evaluate/fold.hpp"
#include "qk/graph/evaluate/inputs.hpp"
#include "qk/graph/evaluate/under_accumulators.hpp"
#include "qk/graph/files/npy.hpp"
#include "qk/graph/pipeline/files.hpp"
#include "qk/graph/quantize/plan_file.hpp"

namespace qk::graph::pipeline {
namespace {

std::filesystem::path file_in(const std::string& folder, const std::string& name) {
    return std::filesystem::path(folder) / (as_file_name(name) + ".npy");
}

/// Layers that a unit computes: of the requests file, then of the options.
layer_accumulators units_of(const evaluate_settings& settings, const model& m) {
    std::vector<accumulator_request> asked;
    if (!settings.precision.plan.empty()) asked = load_plan_file(settings.precision.plan).accumulators;
    for (const std::string& text : settings.accumulators) asked.push_back(parse_accumulator_request(text, "--accumulator"));
    return resolve_accumulators(m, asked);
}

}  // namespace

evaluate_outcome evaluate(const evaluate_settings& settings, const progress_function& progress) {
    evaluate_outcome done;
    output_set files(settings.overwrite);
    done.remarks = declare_model(files, settings.model);
    declare(files, settings.data);
    declare(files, settings.precision);
    files.input("--compare", settings.compare).folder("--output-dir", settings.output_dir);
    model m = model::load(settings.model);
    if (!settings.output_dir.empty())
        for (const auto& o : m.outputs()) files.output("--output-dir", file_in(settings.output_dir, o.name));
    const named_tensors inputs = settings.data.load_inputs(m);
    const auto labels = settings.data.load_labels();
    named_tensors expected;
    if (!settings.compare.empty())
        for (const auto& o : m.outputs()) expected[o.name] = read_npy(file_in(settings.compare, o.name));
    precision_plan plan;
    if (settings.precision.any() || !settings.accumulators.empty()) {
        fold_constants(m);
        fold_batch_normalization(m);
    }
    if (settings.precision.any()) {
        quantize_result made = make_plan(m, settings.data, settings.precision, nullptr, false, progress);
        done.report = std::move(made.report);
        plan = std::move(made.plan);
    }
    const layer_accumulators units = units_of(settings, m);
    evaluate_result& run = done.run = evaluate_under(m, {.threads = settings.data.threads, .batch = settings.batch}, units, inputs, plan,
                                                     progress_of(progress, "evaluating"));

    nlohmann::ordered_json& json = done.summary;
    json["samples"] = run.samples;
    if (!units.empty()) json["accumulators"] = units;
    if (!labels.empty()) {
        const tensor& first = run.outputs.at(m.outputs().at(0).name);
        if (labels.size() != run.samples)
            throw error("'" + settings.data.labels + "' has " + std::to_string(labels.size()) + " labels for " +
                        std::to_string(run.samples) + " samples");
        json["top1"] = top_k(first, labels, 1);
        if (first.size() > 5 * run.samples) json["top5"] = top_k(first, labels, 5);
    }
    json["seconds"] = run.seconds;
    json["items_per_second"] = static_cast<double>(run.samples) / run.seconds;
    json["peak_bytes"] = run.peak_bytes;
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
