// SPDX-License-Identifier: Apache-2.0
#include "qk/graph/pipeline/evaluate.hpp"

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "graph/base/process_memory.hpp"
#include "graph/evaluate/execute/samples.hpp"
#include "graph/pipeline/bad_samples.hpp"
#include "graph/pipeline/cancelling.hpp"
#include "graph/pipeline/generate.hpp"
#include "graph/pipeline/runtimes.hpp"
#include "graph/pipeline/tensors.hpp"
#include "qk/graph/base/names.hpp"
#include "qk/graph/evaluate/inputs.hpp"
#include "qk/graph/files/npy.hpp"
#include "qk/graph/pipeline/expand.hpp"
#include "qk/graph/pipeline/files.hpp"
#include "qk/graph/pipeline/onnxruntime_time.hpp"
#include "qk/graph/pipeline/output_measure.hpp"
#include "qk/graph/plan/accumulators.hpp"
#include "qk/graph/quantize/remarks.hpp"
#include "qk/graph/recover/already_quantized.hpp"

namespace qk::graph::pipeline {
namespace {

std::vector<std::string> names_of_outputs(const model& m) {
    std::vector<std::string> names;
    for (const value_info& o : m.outputs()) names.push_back(o.name);
    return names;
}

/// Returns the file of each output. Depends on the model alone, so that --compare finds what --output-dir wrote.
std::map<std::string, std::filesystem::path> files_of_outputs(const model& m, const std::string& folder) {
    const std::vector<std::string> names = names_of_outputs(m);
    const std::vector<std::string> stems = file_names_for(names);
    std::map<std::string, std::filesystem::path> files;
    for (std::size_t i = 0; i < names.size(); ++i) files[names[i]] = std::filesystem::path(folder) / (stems[i] + ".npy");
    return files;
}

/// Returns what --compare has for the outputs: files of a folder, or what another model's file gives for the same inputs.
named_tensors compared_with(const evaluate_settings& settings, const model& m, const named_tensors& inputs) {
    named_tensors all;
    if (!std::filesystem::is_regular_file(settings.compare)) {
        for (const auto& [name, file] : files_of_outputs(m, settings.compare)) all[name] = read_npy(file);
        return all;
    }
    const model other = model::load(settings.compare);
    const std::vector<std::string> own = names_of_outputs(other);
    const named_tensors made =
        evaluator(other, evaluate_options{.threads = settings.data.threads, .batch = settings.batch}).run(inputs).outputs;
    for (const std::string& name : names_of_outputs(m)) {
        const auto found = made.find(name);
        if (found == made.end())
            throw error("--compare " + settings.compare + ": that model has no output '" + name + "'; its outputs: " + listed(own, 12));
        all[name] = found->second;
    }
    return all;
}

/// Is a scale searched by what layers read? Then weights of formats with blocks of their own are replaced by what they round to.
bool weighs_weights(const asked_precision& asked) {
    const auto weighted = [](const qk::semantics& s) { return s.scale_objective == scale_objective::weighted; };
    const auto of_plan = [&](const auto& entry) { return weighted(entry.second.semantics); };
    return asked.options.scale_objective == scale_objective::weighted ||
           std::ranges::any_of(asked.requests, [&](const request& r) { return weighted(semantics_of(r.what)); }) ||
           (asked.saved && (std::ranges::any_of(asked.saved->tensors, of_plan) || std::ranges::any_of(asked.saved->edges, of_plan)));
}

/// Throws where a value to compare with is none of the model's outputs.
void check_names(const model& m, const named_tensors& expected) {
    const std::vector<std::string> own = names_of_outputs(m);
    for (const auto& [name, value] : expected)
        if (std::ranges::find(own, name) == own.end())
            throw error("there is no output '" + name + "' to compare with; the model's outputs: " + listed(own, 12));
}

/// Makes the plan that the settings ask for; --accumulator overrides the plan's accumulators. Where planning changes weights, `original`
/// gets the model with its own weights.
quantize_result plan_of(const evaluate_settings& settings, model& m, std::optional<model>& original, const progress_function& progress) {
    quantize_result made;
    if (!settings.precision.any() && settings.accumulators.empty()) return made;
    std::vector<plan_note> already = note_quantized(m);
    prepare_for_plan(m, &already);
    expand_for(m, settings.precision);
    if (settings.precision.any()) {
        asked_precision asked = settings.precision.read(m);
        if (!settings.accumulators.empty()) asked.options.unshifted = true;
        asked.unused.insert(asked.unused.begin(), already.begin(), already.end());
        if (asked.changes_weights() || weighs_weights(asked)) original = m;
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

/// Throws where a runtime cannot do what is asked for, and returns its name and qk's operators for it.
std::pair<std::string, std::filesystem::path> runtime_of(const evaluate_settings& s) {
    constexpr const char* library = "onnxruntime+library";
    if (s.run_with != "onnxruntime" && s.run_with != library && s.run_with != "openvino")
        throw error("--run-with '" + s.run_with + "' is none of onnxruntime, onnxruntime+library, openvino." +
                    did_you_mean(s.run_with, {"onnxruntime", library, "openvino"}));
    if (s.precision.any() || !s.accumulators.empty())
        throw error(
            "--run-with runs the file as it is: write the formats into one first (qk quantize -o), and leave plans and accumulators out");
    if (s.generate > 0 || !s.dump.empty() || s.packed_weights || s.batch > 0)
        throw error("--run-with runs each sample once in another runtime: leave --generate, --dump, --packed-weights and --batch out");
    if (s.run_with == library) return {"onnxruntime", onnxruntime_library(beside_qk)};
    return {s.run_with, {}};
}

/// Joins the samples' values of one output along axis 0.
tensor joined(std::vector<tensor> parts) {
    if (parts.size() == 1) return parts[0];
    dims longest = parts[0].shape();
    for (const tensor& t : parts) {
        if (t.rank() != longest.size()) throw error("an output has another rank from sample to sample");
        for (std::size_t k = 0; k < longest.size(); ++k) longest[k] = std::max(longest[k], t.shape()[k]);
    }
    if (!longest.empty()) return execute::join_padded(std::move(parts), longest);
    for (tensor& t : parts) t = t.reshaped({1});
    return execute::join_padded(std::move(parts), {1});
}

/// Runs the samples one by one in another runtime, with its optimizer on, as evaluator::run does in this one.
evaluate_result run_in(const std::pair<std::string, std::filesystem::path>& runtime, const model& m, const named_tensors& inputs,
                       const output_consumer& consume, std::string& version) {
    const execute::sample_set samples = execute::make_samples(m, inputs);
    std::vector<named_tensors> runs(samples.count);
    for (std::size_t s = 0; s < samples.count; ++s) {
        const std::vector<tensor> values = samples.slice(s, 1);
        for (std::size_t i = 0; i < values.size(); ++i) runs[s][m.inputs()[i].name] = values[i];
    }
    const std::vector<std::string> names = names_of_outputs(m);
    const runtime_answer answer = run_in_runtime(runtime.first, m, names, runs, true, runtime.second);
    version = answer.runtime + (runtime.second.empty() ? "" : " with qk's operators");
    evaluate_result r;
    r.samples = samples.count, r.one_by_one = true, r.seconds = answer.seconds;
    if (consume.begin) consume.begin(samples.count);
    std::vector<std::vector<tensor>> parts(names.size());
    for (std::size_t s = 0; s < samples.count; ++s) {
        std::vector<tensor> own;
        for (std::size_t o = 0; o < names.size(); ++o) {
            const auto made = answer.runs[s].find(names[o]);
            if (made == answer.runs[s].end()) throw error(answer.runtime + " gave no output '" + names[o] + "' of a type that numpy has");
            own.push_back(made->second);
            parts[o].push_back(made->second);
        }
        if (consume.take) consume.take(s, own);
    }
    for (std::size_t o = 0; o < names.size(); ++o) r.outputs.emplace(names[o], joined(std::move(parts[o])));
    return r;
}

/// Runs the model once more, with every tensor as an output.
std::unique_ptr<tensor_dump> dump_of(const evaluate_settings& settings, const model& m, const precision_plan& plan,
                                     const named_tensors& inputs) {
    std::vector<traced_tensor> tensors = trace_tensors(m, plan);
    auto dump = std::make_unique<tensor_dump>(settings.dump, settings.overwrite, settings.model.short_name(), tensors);
    tensor_source source(m, plan, tensors, settings.data.threads);
    for (const named_tensors& run : runs_of(m, inputs)) dump->add(source.run(run));
    return dump;
}

}  // namespace

evaluate_outcome evaluate(const evaluate_settings& settings, const progress_function& progress) {
    const stop_check here(stopping(settings.cancel));
    evaluate_outcome done;
    output_set files(settings.overwrite);
    done.remarks = declare_run(files, settings.model, settings.data, settings.precision);
    files.input("--compare", settings.compare).folder("--output-dir", settings.output_dir);
    const auto runtime = settings.run_with.empty() ? std::pair<std::string, std::filesystem::path>() : runtime_of(settings);
    if (settings.generate > 0 && !(settings.compare + settings.output_dir + settings.dump).empty())
        throw error("--generate prints tokens and metrics: leave --output-dir, --dump and --compare out");
    model m = settings.model.load();
    if (!settings.output_dir.empty())
        for (const auto& [name, file] : files_of_outputs(m, settings.output_dir)) files.output("--output-dir", file);
    // NaN is what some models are run with. Where something is measured it is a mistake in the data, and where ranges come from it.
    const bool only_runs = settings.metrics.empty() && settings.data.labels.empty() && settings.generate == 0;
    const named_tensors inputs = settings.data.load_inputs(m, only_runs);
    if (const bad_samples bad = only_runs ? find_bad_samples(m, inputs) : bad_samples{}; !bad.which.empty())
        done.remarks.push_back(std::string(warning_mark) + "--inputs: " + bad.text());
    named_tensors expected = settings.expected;
    check_names(m, expected);
    if (!settings.compare.empty())
        for (auto& [name, value] : compared_with(settings, m, inputs)) expected[name] = value;
    const bool planned = settings.precision.any() || !settings.accumulators.empty();
    const std::vector<std::string> asked = settings.generate > 0 ? std::vector<std::string>() : settings.metrics;
    for (const std::string& name : settings.metrics) find_metric(name);  // throws for a wrong name before the work starts
    output_measure measure(m, inputs, asked, settings.output_index, settings.data.load_labels(m, inputs, settings.output_index),
                           settings.data.positions, planned || !expected.empty());
    std::optional<model> original;
    quantize_result made = plan_of(settings, m, original, progress);
    const precision_plan& plan = made.plan;
    done.report = std::move(made.report);
    const evaluate_options how{.threads = settings.data.threads, .batch = settings.batch, .packed_weights = settings.packed_weights};
    if (settings.generate > 0) {
        done.summary = generate_summary(settings, evaluator(m, how), inputs, plan);
        return done;
    }
    const std::unique_ptr<tensor_dump> dump = settings.dump.empty() ? nullptr : dump_of(settings, m, plan, inputs);
    // The evaluators run one after the other, since each holds the weights that its plan multiplies with. The outputs of a language model
    // may be larger than everything else, so they are kept only if a folder is written or compared.
    evaluate_options lean = how;
    lean.keep_outputs = false;
    if (measure.compares() && planned) {
        evaluator(original ? *original : m, lean).run(inputs, {}, {}, {}, measure.reference());
        original.reset();
    } else {
        measure.set_reference(expected);
    }
    const evaluate_options& kept = expected.empty() && settings.output_dir.empty() && !settings.keep_outputs ? lean : how;
    const output_consumer consumer = measure.any() ? measure.measured() : output_consumer{};
    std::string version;
    evaluate_result& run = done.run = runtime.first.empty()
                                          ? evaluator(m, kept).run(inputs, plan, {}, progress_of(progress, "evaluating"), consumer)
                                          : run_in(runtime, m, inputs, consumer, version);

    if (!run.whole.empty()) done.remarks.push_back("--inputs: " + run.whole);

    nlohmann::ordered_json& json = done.summary;
    json["samples"] = run.samples;
    if (!version.empty()) json["runtime"] = version;
    if (!plan.accumulators.empty()) json["accumulators"] = plan.accumulators;
    if (measure.any()) measure.write(json);
    json["seconds"] = run.seconds;
    json["items_per_second"] = static_cast<double>(run.samples) / run.seconds;
    if (settings.packed_weights) json["packed_layers"] = run.packed_layers;
    json["peak_bytes"] = std::max(run.peak_bytes, peak_process_bytes());
    for (const auto& [name, value] : expected) {
        const output_difference d = compare_outputs(run.outputs.at(name), value, name);
        done.agree = done.agree && d.relative <= settings.tolerance;
        done.differences.emplace(name, d);
        json["compare"][name] = {{"max_abs", d.absolute}, {"max_rel", d.relative}, {"largest", d.largest}};
    }
    if (!expected.empty()) json["agree"] = done.agree;
    if (!settings.output_dir.empty())
        for (const auto& [name, file] : files_of_outputs(m, settings.output_dir)) {
            files.write(file, to_npy(run.outputs.at(name)));
            if (file.stem() != name) json["files"][name] = file.filename().string();
        }
    files.commit();
    if (dump) json["dumped"] = dump->commit(run.samples);
    return done;
}

}  // namespace qk::graph::pipeline
