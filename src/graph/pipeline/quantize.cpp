// SPDX-License-Identifier: Apache-2.0
#include "qk/graph/pipeline/quantize.hpp"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "qk/graph/base/process_memory.hpp"
#include "qk/graph/export/export.hpp"
#include "qk/graph/files/json_text.hpp"
#include "qk/graph/model/model_files.hpp"
#include "qk/graph/pipeline/expand.hpp"
#include "qk/graph/pipeline/files.hpp"
#include "qk/graph/pipeline/unused_options.hpp"
#include "qk/graph/quantize/encodings.hpp"
#include "qk/graph/quantize/plan_arrays.hpp"
#include "qk/graph/quantize/plan_file.hpp"
#include "qk/graph/report/report.hpp"

namespace qk::graph::pipeline {
namespace {

/// Returns the bytes of a model with its external data.
double model_bytes(const std::filesystem::path& file) {
    std::set<std::filesystem::path> parts;
    for (const auto& part : files_of_model(file).all) parts.insert(part.lexically_normal());
    double all = 0;
    for (const auto& part : parts) {
        std::error_code none;
        const auto n = std::filesystem::file_size(part, none);
        if (!none) all += static_cast<double>(n);
    }
    return all;
}

}  // namespace

quantize_outcome quantize(const quantize_settings& settings, const progress_function& progress) {
    quantize_outcome done;
    output_set files(settings.overwrite);
    done.remarks = declare_run(files, settings.model, settings.data, settings.precision);
    files.output("-o", settings.output)
        .output("--save-plan", settings.save_plan)
        .output("--encodings", settings.encodings)
        .output("--log", settings.log);
    declare_report(files, settings.report);
    if (!settings.precision.any()) throw error("say what to quantize: --activation F --weight F, or --plan P.json");
    export_options style{.style = export_style_from(settings.style), .weights = weight_storage_from(settings.weights)};
    const double before = done.bytes_before = model_bytes(settings.model);  // reads the file, so not beside the loaded model
    std::vector<plan_note> notes;
    model m = load_for_planning(settings.model, &notes);
    expand_for(m, settings.precision);
    calibration seen;
    asked_precision asked = settings.precision.read(m);
    asked.pair_safe = style.style != export_style::amd && !settings.keep_int8;
    style.int8_weights = codes_for(asked.options);
    for (plan_note& n : unused_data_options(settings.data, asked)) notes.push_back(std::move(n));
    asked.unused.insert(asked.unused.begin(), notes.begin(), notes.end());
    std::error_code none;
    if (!settings.data.labels.empty() && !std::filesystem::exists(settings.data.labels, none))
        throw error("--labels '" + settings.data.labels + "': there is no such file");
    done.result =
        make_plan(m, settings.data, asked, &seen, !settings.report.empty() || !settings.log.empty() || settings.estimates, progress);
    const quantize_result& result = done.result;
    // Everything that can fail comes before the first file is written.
    std::optional<export_result> exported;
    if (!settings.output.empty()) exported = write_plan(m, result.plan, style, settings.keep_int8);
    const std::string encodings = settings.encodings.empty() ? "" : json_text(write_encodings(result.plan, m), 1) + "\n";
    const layer_view layers(m);
    const plan_cost cost = done.cost = cost_of(layers, result.plan, &seen);

    const std::size_t edges = done.edges = quantized_edges(result.plan, m).size();
    const std::size_t remarks = result.report.notes.size() + (exported ? exported->notes.size() : 0);
    if (exported) {
        done.export_notes = exported->notes;
        save(exported->exported, files, settings.output);
    }
    if (!settings.save_plan.empty()) save_plan(result.plan, files, settings.save_plan);
    if (!settings.encodings.empty()) files.write(settings.encodings, encodings);
    if (!settings.log.empty()) files.write(settings.log, result.report.text());
    nlohmann::ordered_json& summary = done.summary = to_json(result.report);
    summary["model"] = settings.model;
    summary["quantized_edges"] = edges;
    summary["remarks"] = remarks;
    if (exported) summary["output"] = settings.output, summary["opset"] = exported->opset_after, summary["export_notes"] = exported->notes;
    const double after = done.bytes_after = static_cast<double>(files.bytes(settings.output) + files.bytes(settings.output + ".data"));
    summary["file_bytes"] = after;
    summary["original_file_bytes"] = before;
    summary["weight_bytes"] = cost.weight_bits / 8;
    summary["float_weight_bytes"] = cost.float_weight_bits / 8;
    if (cost.float_bit_operations > 0)
        summary["bit_operations"] = cost.bit_operations, summary["float_bit_operations"] = cost.float_bit_operations;
    if (!settings.report.empty()) {
        const report_subject subject{.model = std::filesystem::path(settings.model).filename().string(),
                                     .command = settings.command,
                                     .requests = asked.requests,
                                     .export_notes = done.export_notes,
                                     .input_bytes = before,
                                     .output_bytes = after};
        files.write(settings.report, quantize_html(subject, result, cost, seen.empty() ? nullptr : &seen));
        files.write(beside_report(settings.report), json_text(summary, 1) + "\n");
    }
    files.commit();
    summary["peak_bytes"] = peak_process_bytes();  // not in a file, so that two runs write equal files
    return done;
}

}  // namespace qk::graph::pipeline
