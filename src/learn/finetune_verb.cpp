// SPDX-License-Identifier: Apache-2.0
#include "qk/graph/learn/finetune_verb.hpp"

#include "graph/model/model_bytes.hpp"
#include "graph/pipeline/cancelling.hpp"
#include "qk/graph/model/model_files.hpp"
#include "qk/graph/pipeline/expand.hpp"
#include "qk/graph/pipeline/files.hpp"
#include "qk/graph/quantize/plan_arrays.hpp"
#include "qk/graph/quantize/plan_file.hpp"

namespace qk::graph::pipeline {

finetune_outcome finetune(const finetune_settings& settings, const progress_function& progress) {
    if (!settings.precision.any()) throw error("say what to learn to bear: --plan P.json, or --activation F --weight F");
    const stop_check here(stopping(settings.cancel));
    output_set files(settings.overwrite);
    std::vector<std::string> remarks = declare_run(files, settings.model, settings.data, settings.precision);
    files.output("-o", settings.output).output("--save-plan", settings.save_plan);
    std::vector<plan_note> already;
    model m = load_for_planning(settings.model, &already);
    expand_for(m, settings.precision);
    const named_tensors inputs = settings.data.load_inputs(m);
    const std::vector<std::int64_t> labels = settings.data.load_labels(m, inputs, settings.output_index);
    asked_precision asked = settings.precision.read(m);
    asked.pair_safe = false;  // what is learned is quantized later
    asked.unused.insert(asked.unused.begin(), already.begin(), already.end());
    if (asked.changes_weights())
        throw error(
            "fine-tuning learns weights and biases itself: leave --weight-rounding and --bias-correction out, and give them to "
            "`qk quantize` with what was learned");
    quantize_result made = make_plan(m, settings.data, std::move(asked), nullptr, false, progress);
    if (!made.plan.accumulators.empty())
        throw error("'" + settings.precision.plan.name() +
                    "' names an accumulator; weights are learned in float32: leave \"accumulator\" out, and run `qk evaluate "
                    "--accumulator` on what was learned");
    const finetune_options options{.threads = settings.data.threads,
                                   .output_index = settings.output_index,
                                   .ignore_label = settings.data.positions.ignore_label,
                                   .epochs = settings.epochs,
                                   .batch = settings.batch,
                                   .rate = settings.rate,
                                   .held_out = settings.held_out,
                                   .seed = settings.seed};
    finetune_outcome done{graph::finetune(m, made.plan, inputs, labels, options, progress_of(progress, "learning")),
                          {},
                          std::move(made.report),
                          std::move(remarks)};
    if (settings.output.empty()) done.model = serialized(done.result.learned.proto());
    else save(done.result.learned, files, settings.output);
    if (!settings.save_plan.empty()) save_plan(done.result.plan, files, settings.save_plan);
    files.commit();
    return done;
}

}  // namespace qk::graph::pipeline
