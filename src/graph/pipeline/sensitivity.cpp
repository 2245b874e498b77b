// SPDX-License-Identifier: Apache-2.0
#include "qk/graph/pipeline/sensitivity.hpp"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "graph/pipeline/cancelling.hpp"
#include "graph/pipeline/trial_scorer.hpp"
#include "graph/search/estimated.hpp"
#include "qk/graph/files/json_text.hpp"
#include "qk/graph/pipeline/expand.hpp"
#include "qk/graph/pipeline/files.hpp"
#include "qk/graph/quantize/remarks.hpp"
#include "qk/graph/search/report.hpp"

namespace qk::graph::pipeline {

sensitivity_result sensitivity(const sensitivity_settings& settings, const progress_function& progress) {
    const stop_check here(stopping(settings.cancel));
    output_set files(settings.overwrite, settings.together.first());
    std::vector<std::string> remarks = settings.declare(files);
    std::vector<plan_note> already;
    model m = load_for_planning(settings.model, &already);
    for (std::string& line : remark_lines(already)) remarks.push_back(std::move(line));
    expand_for(m, settings.precision, true);
    const named_tensors inputs = settings.data.load_inputs(m);
    mix_options options;
    settings.fill(options, m, inputs, "l2");
    if (settings.elsewhere) check_elsewhere(settings, options);
    transform_mix(m, settings.data, options);
    options.remarks.insert(options.remarks.begin(), remarks.begin(), remarks.end());
    if (const std::string whole = batch_remark(m, inputs); !whole.empty()) options.remarks.push_back("--inputs: " + whole);
    const calibration seen = calibrate_mix(m, settings.data, inputs, options, !settings.report.empty(), progress);
    const estimation_options how{.method = settings.method == "gradient" ? sensitivity_method::gradient
                                           : settings.method == "auto"   ? sensitivity_method::automatic
                                                                         : sensitivity_method::measured,
                                 .passes = settings.passes,
                                 .seed = settings.seed};
    sensitivity_result result = estimate_sensitivity(m, inputs, seen, options, settings.direction == "widen", how);
    if (!settings.report.empty() && settings.together.first()) {
        const std::string name = settings.model.short_name();
        files.write(settings.report, sensitivity_html({name, settings.command, &seen}, result));
        files.write(beside_report(settings.report), json_text(to_json(result), 1) + "\n");
    }
    files.commit();
    return result;
}

}  // namespace qk::graph::pipeline
