// SPDX-License-Identifier: Apache-2.0
// `qk finetune`: trains weights, biases and scales under a plan.
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <memory>

#include "options/data_options.hpp"
#include "options/precision_options.hpp"
#include "qk/graph/learn.hpp"
#include "support/caller.hpp"
#include "support/checkpoints.hpp"
#include "support/console.hpp"
#include "support/declared.hpp"
#include "support/remarks.hpp"
#include "verbs.hpp"

namespace qk::tool {
namespace {

using finetune_arguments = with_json<graph::pipeline::finetune_settings>;

void finetune(const finetune_arguments& given) {
    graph::pipeline::finetune_outcome done = with_progress([&](const auto& report) { return graph::pipeline::finetune(given, report); });
    if (caller* by = keeper_of_results()) {
        by->results.model = std::move(done.model);
        if (given.save_plan.empty()) by->keep(done.result.plan);
    }
    for (const std::string& r : done.remarks) print(stderr, "{}\n", r);
    print_remarks(done.report, false);
    const graph::finetune_result& r = done.result;
    nlohmann::ordered_json json;
    json["learned_from"] = r.learned_from;
    json["held_out"] = r.held_out;
    json["start_loss"] = r.losses.front();
    json["loss"] = r.losses[r.best];
    json["best_epoch"] = r.best;
    json["losses"] = r.losses;
    json["seconds"] = r.seconds;
    if (given.json) return print_json(json);
    for (const auto& [key, value] : json.items())
        if (key != "losses") print("{:17} {}\n", key, value.dump());
    if (r.best == 0) print(stderr, "nothing learned was better on the held-out samples: the model is written as it was\n");
}

}  // namespace

void add_finetune(command& app, verb_result&) {
    auto given = std::make_shared<finetune_arguments>();
    option_table& verb = app.add_subcommand("finetune", "Train weights, biases and scales with a plan's quantizers in place");
    takes_models(verb, {given, &given->model.file});
    verb.add_option("MODEL", given->model.file, "ONNX model").required().reads();
    add_data(verb, given->data);
    add_precision(verb, given->precision, true, false);
    verb.section("Learning");
    verb.add_option("--epochs", given->epochs, "passes over the samples, at most (10)").at_least(0);
    verb.add_option("--batch", given->batch, "samples a step (32)").type_name("B").at_least(1);
    verb.add_option("--rate", given->rate,
                    "of a step, as a share of a tensor's root mean square, and of a scale (0.003); it falls to 0 along a cosine");
    verb.add_option("--held-out", given->held_out, "share of the samples that decide when to stop and are not learned from (0.1)");
    verb.add_option("--seed", given->seed, "of the samples' order").type_name("N");
    verb.add_option("--output-index", given->output_index, "which output, counted from 0").type_name("N").at_least(0);
    verb.section("Output");
    verb.add_option("-o,--output", given->output, "the float model with what was learned, for `qk quantize --plan`")
        .required(keeper_of_results() == nullptr)
        .type_name("OUT.onnx")
        .common()
        .writes();
    verb.add_option("--save-plan", given->save_plan, "the plan with the scales that were learned, which fits the result")
        .type_name("P.json")
        .writes();
    add_overwrite(verb, given->overwrite);
    verb.add_flag("--json", given->json, "one object on standard output").common();
    verb.footer(
        "Towards the float model's own output, or with --labels towards the classes. What is kept is never worse on the held-out samples\n"
        "than the start. docs/guide/gradients.md\n"
        "\n"
        "Examples:\n"
        "  qk finetune model.onnx --inputs x.npy --activation int4 --weight int4 --epochs 2 -o learned.onnx --save-plan plan.json\n"
        "  qk finetune model.onnx --inputs x.npy --labels y.npy --activation mxfp4 --weight mxfp4 --epochs 1 -o learned.onnx");
    verb.callback([given] {
        take_from_caller(*given);
        finetune(*given);
    });
}

}  // namespace qk::tool
