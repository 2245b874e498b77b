// SPDX-License-Identifier: Apache-2.0
#include "qk/graph/pipeline/quantize.hpp"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "graph/base/process_memory.hpp"
#include "graph/export/style.hpp"
#include "graph/model/model_bytes.hpp"
#include "graph/pipeline/accuracy_level.hpp"
#include "graph/pipeline/cancelling.hpp"
#include "graph/pipeline/foreign_nodes.hpp"
#include "graph/pipeline/unused_options.hpp"
#include "qk/graph/export/export.hpp"
#include "qk/graph/files/atomic_file.hpp"
#include "qk/graph/files/json_text.hpp"
#include "qk/graph/files/temporary_folder.hpp"
#include "qk/graph/model/model_files.hpp"
#include "qk/graph/pipeline/expand.hpp"
#include "qk/graph/pipeline/files.hpp"
#include "qk/graph/quantize/encodings.hpp"
#include "qk/graph/quantize/plan_arrays.hpp"
#include "qk/graph/quantize/plan_file.hpp"
#include "qk/graph/report/report.hpp"

namespace qk::graph::pipeline {
namespace {

/// Returns the bytes of a model with its external data.
double model_bytes(const model_source& model) {
    if (model.in_memory()) return static_cast<double>(model.bytes().size());
    std::set<std::filesystem::path> parts;
    for (const auto& part : files_of_model(model.file).all) parts.insert(part.lexically_normal());
    double all = 0;
    for (const auto& part : parts) {
        std::error_code none;
        const auto n = std::filesystem::file_size(part, none);
        if (!none) all += static_cast<double>(n);
    }
    return all;
}

bool makes_model(const quantize_settings& settings) { return !settings.output.empty() || settings.returns_model; }
bool makes_plan(const quantize_settings& settings) { return !settings.save_plan.empty() || settings.returns_plan; }

/// Makes the plan by a recipe, which measures what came of it where there are samples.
void quantize_by_recipe(quantize_outcome& done, model& m, const quantize_settings& settings, asked_precision asked, calibration& seen,
                        const progress_function& progress) {
    done.recipe = choose_recipe(settings.precision.recipe, settings.data, asked);
    const bool full = !settings.report.empty() || !settings.log.empty() || settings.estimates;
    // Without a model or a plan nothing that is written could hold changed weights.
    const bool may_change = makes_model(settings) || makes_plan(settings);
    asked.keeps_changes = makes_plan(settings);
    done.result = make_plan_by(done.recipe, m, settings.data, std::move(asked), may_change, &seen, full, progress);
}

/// Times the float model and the one that is to be written; what goes wrong is no error, since the file can be written all the same.
void time_models(quantize_outcome& done, const model& m, const quantize_settings& settings, const model* exported) {
    if (exported == nullptr) {
        done.not_timed = "no model is written";
        return;
    }
    const temporary_folder folder("qk-time", "timing");
    exported->save(folder / "model.onnx");
    const data_settings& data = settings.data;
    const bool sampled = data.has_samples();
    const named_tensors samples = !sampled ? named_tensors() : data.inputs.empty() ? data.load_calibration(m) : data.load_inputs(m);
    try {
        std::filesystem::path before = std::filesystem::absolute(settings.model.file);
        if (settings.model.in_memory()) write_file(before = folder / "float.onnx", settings.model.bytes());
        done.times = time_in_onnxruntime(before, folder / "model.onnx", m, sampled ? &samples : nullptr, exported->opset("qk") > 0);
    } catch (const error& e) {
        done.not_timed = e.what();
    }
}

/// Runs what is to be written in its runtime, and times it, where that is asked for.
void run_elsewhere(quantize_outcome& done, const model& m, const quantize_settings& settings, const model* exported) {
    if (settings.time) time_models(done, m, settings, exported);
    if (settings.verify.empty()) return;
    if (exported == nullptr) throw error("--verify runs the file that is written: give -o OUT.onnx");
    model original = load_for_planning(settings.model);
    expand_for(original, settings.precision);
    done.verified = verify_in(settings.verify, original, m, done.result.plan, *exported, settings.data);
}

/// Writes the accuracy level that was asked for into the exported model, and measures what it costs. `anew(options)` exports again.
template <class Export>
std::optional<level_price> write_level(quantize_outcome& done, const quantize_settings& settings, const export_options& style,
                                       std::optional<export_result>& exported, const Export& anew) {
    if (!settings.accuracy_level) return std::nullopt;
    if (!exported) throw error("--accuracy-level is written into a model: give -o OUT.onnx");
    set_accuracy_level(exported->exported, *settings.accuracy_level);
    export_options in_floats = style;
    in_floats.integer_sums = false;
    const model without = style.integer_sums ? anew(in_floats).exported : without_level(exported->exported);
    level_price price = price_of_level(settings.model.load(), without, exported->exported, *settings.accuracy_level, settings.data);
    done.level_price = price.text();
    return price;
}

/// Returns what the page says of the model's quality and speed.
std::vector<std::pair<std::string, std::string>> facts_of(const quantize_outcome& done) {
    std::vector<std::pair<std::string, std::string>> facts;
    if (const auto& q = done.recipe.quality) {
        facts.emplace_back("output, on " + std::to_string(q->samples) + " " + q->of + (q->of == "held-out" ? " samples" : ""),
                           html_number(q->sqnr) + " dB (" + html_number(q->chance.low) + " to " + html_number(q->chance.high) + ")");
        if (q->top1) facts.emplace_back("top-1 of the float model", html_number(100 * *q->float_top1) + " %");
        if (q->top1) facts.emplace_back("top-1 of the file", html_number(100 * *q->top1) + " %");
    }
    if (done.times) {
        facts.emplace_back("float model, " + done.times->runtime, html_number(done.times->float_milliseconds) + " ms");
        facts.emplace_back("file, " + done.times->runtime, html_number(done.times->milliseconds) + " ms");
        if (const auto with = done.times->with_operators) facts.emplace_back("file, with qk's operators", html_number(*with) + " ms");
    }
    return facts;
}

/// Returns the table of what a recipe tried.
std::vector<std::vector<std::string>> tried_by(const recipe_report& recipe) {
    std::vector<std::vector<std::string>> rows;
    for (const recipe_trial& t : recipe.trials)
        rows.push_back({t.step, html_number(t.sqnr), t.top1 ? html_number(100 * *t.top1) : "", t.kept ? "kept" : ""});
    return rows;
}

void add_measurements(nlohmann::ordered_json& summary, const quantize_settings& settings, const quantize_outcome& done,
                      const std::optional<level_price>& price) {
    summary["model"] = settings.model.name();
    summary["recipe"] = to_json(done.recipe);
    if (done.recipe.quality) summary["measured"] = to_json(*done.recipe.quality);
    if (done.times) summary["milliseconds"] = done.times->milliseconds, summary["float_milliseconds"] = done.times->float_milliseconds;
    if (done.times && done.times->with_operators) summary["operators_milliseconds"] = *done.times->with_operators;
    if (price) summary["accuracy_level"] = price->json();
    if (done.verified) summary["verified"] = to_json(*done.verified);
}

void add_costs(nlohmann::ordered_json& summary, const quantize_outcome& done) {
    const plan_cost& cost = done.cost;
    summary["file_bytes"] = done.bytes_after;
    summary["original_file_bytes"] = done.bytes_before;
    summary["weight_bytes"] = cost.weight_bits / 8;
    summary["float_weight_bytes"] = cost.float_weight_bits / 8;
    if (cost.float_bit_operations > 0)
        summary["bit_operations"] = cost.bit_operations, summary["float_bit_operations"] = cost.float_bit_operations;
}

void commit_unless_departs(output_set& files, quantize_outcome& done) {
    if (done.verified && done.verified->departs()) done.model.clear(), done.summary.erase("output");
    else files.commit();
}

/// Throws before anything takes time: where labels are named that do not exist, also where none are read, and where nothing can verify.
void check_before(const quantize_settings& settings) {
    const data_settings& data = settings.data;
    if (!settings.verify.empty()) check_verify(settings.verify, data);
    std::error_code none;
    if (!data.labels.file.empty() && !std::filesystem::exists(data.labels.file, none))
        throw error("--labels '" + data.labels.file + "': there is no such file");
}

/// Returns whether int8 activations are written as int8, as the user or the target wants.
bool keeps_int8(const quantize_settings& settings, const quantize_options& options) {
    return settings.keep_int8 || (options.target && options.target->file.signed_activations);
}

/// Lets statistics take the place of samples where not all of the model runs here. They last as long as what is returned.
std::unique_ptr<temporary_folder> take_statistics(const model& m, quantize_settings& settings, asked_precision& asked,
                                                  const progress_function& progress) {
    auto folder = calibrate_elsewhere(m, settings.data, asked, settings.run_with, progress);
    if (folder) settings.data.inputs = {}, settings.data.calibration = {(*folder / "statistics.json").string()};
    return folder;
}

}  // namespace

quantize_outcome quantize(const quantize_settings& given, const progress_function& progress) {
    quantize_settings settings = given;
    const stop_check here(stopping(settings.cancel));
    quantize_outcome done;
    output_set files(settings.overwrite);
    done.remarks = declare_run(files, settings.model, settings.data, settings.precision);
    files.output("-o", settings.output)
        .output("--save-plan", settings.save_plan)
        .output("--encodings", settings.encodings)
        .output("--log", settings.log);
    declare_report(files, settings.report);
    if (!settings.precision.any()) throw error("say what to quantize: --activation F --weight F, or --plan P.json");
    export_options style{.style = style_of(settings.style), .weights = weight_storage_from(settings.weights), .inlined = settings.inlined};
    const double before = done.bytes_before = model_bytes(settings.model);  // reads the file, so not beside the loaded model
    std::vector<plan_note> notes;
    model m = load_for_planning(settings.model, &notes);
    expand_for(m, settings.precision);
    calibration seen;
    precision_settings precision = settings.precision;
    precision.floor_scales = style.style.row().floor_scales;
    asked_precision asked = precision.read(m);
    if (asked.options.target) write_for(*asked.options.target, style, !settings.style.empty());
    const bool keep_int8 = keeps_int8(settings, asked.options);
    asked.pair_safe = style.style.row().for_onnxruntime && !keep_int8;
    style.int8_weights = codes_for(asked.options);
    for (plan_note& n : unused_data_options(settings.data)) notes.push_back(std::move(n));
    asked.unused.insert(asked.unused.begin(), notes.begin(), notes.end());
    check_before(settings);
    const auto statistics = take_statistics(m, settings, asked, progress);
    quantize_by_recipe(done, m, settings, asked, seen, progress);
    const quantize_result& result = done.result;
    // Everything that can fail comes before the first file is written.
    std::optional<export_result> exported;
    style.integer_sums = style.weights == weight_storage::product && settings.accuracy_level == 4;
    const auto write = [&](const export_options& how) { return write_plan(m, result.plan, how, keep_int8); };
    if (makes_model(settings)) exported = write(style);
    const std::optional<level_price> price = write_level(done, settings, style, exported, write);
    run_elsewhere(done, m, settings, exported ? &exported->exported : nullptr);
    const std::string encodings =
        settings.encodings.empty() ? "" : json_text(write_encodings(result.plan, m, settings.encodings_version), 1) + "\n";
    const layer_view layers(m);
    const plan_cost cost = done.cost = cost_of(layers, result.plan, &seen);

    const std::size_t edges = done.edges = quantized_edges(result.plan, m).size();
    const std::size_t remarks = result.report.notes.size() + (exported ? exported->notes.size() : 0);
    if (exported) {
        done.export_notes = exported->notes;
        if (settings.returns_model) done.model = serialized(exported->exported.proto());
        if (!settings.output.empty()) save(exported->exported, files, settings.output);
    }
    if (!settings.save_plan.empty()) save_plan(result.plan, files, settings.save_plan);
    if (!settings.encodings.empty()) files.write(settings.encodings, encodings);
    if (!settings.log.empty()) files.write(settings.log, done.recipe.text() + "\n" + result.report.text());
    nlohmann::ordered_json& summary = done.summary = to_json(result.report);
    add_measurements(summary, settings, done, price);
    summary["quantized_edges"] = edges;
    summary["remarks"] = remarks;
    if (!settings.output.empty()) summary["output"] = settings.output;
    if (exported) summary["opset"] = exported->opset_after, summary["export_notes"] = exported->notes;
    const std::uintmax_t written =
        settings.output.empty() ? done.model.size() : files.bytes(settings.output) + files.bytes(settings.output + ".data");
    const double after = done.bytes_after = static_cast<double>(written);
    add_costs(summary, done);
    if (!settings.report.empty()) {
        const report_subject subject{.model = settings.model.short_name(),
                                     .command = settings.command,
                                     .requests = asked.requests,
                                     .export_notes = done.export_notes,
                                     .input_bytes = before,
                                     .output_bytes = after,
                                     .facts = facts_of(done),
                                     .recipe = done.recipe.text(),
                                     .tried = tried_by(done.recipe)};
        files.write(settings.report, quantize_html(subject, result, cost, seen.empty() ? nullptr : &seen));
        files.write(beside_report(settings.report), json_text(summary, 1) + "\n");
    }
    commit_unless_departs(files, done);
    summary["peak_bytes"] = peak_process_bytes();  // not in a file, so that two runs write equal files
    return done;
}

}  // namespace qk::graph::pipeline
