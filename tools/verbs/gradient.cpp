// SPDX-License-Identifier: Apache-2.0
// `qk gradient`: gradients of an output with respect to a model's inputs and weights.
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <memory>

#include "options/data_options.hpp"
#include "qk/graph/pipeline.hpp"
#include "support/caller.hpp"
#include "support/checkpoints.hpp"
#include "support/console.hpp"
#include "support/declared.hpp"
#include "verbs.hpp"

namespace qk::tool {
namespace {

using gradient_arguments = with_json<graph::pipeline::gradient_settings>;

void gradient(const gradient_arguments& given) {
    const graph::pipeline::gradient_outcome done = graph::pipeline::gradient(given);
    if (caller* by = keeper_of_results(); by != nullptr && given.output.empty()) by->results.arrays = done.result.gradients;
    for (const std::string& r : done.remarks) print(stderr, "{}\n", r);
    nlohmann::ordered_json json;
    json["samples"] = done.result.samples;
    json["gradients"] = done.result.gradients.size();
    if (given.vector.empty()) json["loss"] = done.result.loss;
    json["seconds"] = done.result.seconds;
    json["forward_seconds"] = done.result.forward_seconds;
    json["backward_seconds"] = done.result.backward_seconds;
    if (given.json) return print_json(json);
    for (const auto& [key, value] : json.items()) print("{:17} {}\n", key, value.dump());
}

}  // namespace

void add_gradient(command& app, verb_result&) {
    auto given = std::make_shared<gradient_arguments>();
    option_table& verb = app.add_subcommand("gradient", "Gradients of an output by every float input and float initializer");
    takes_models(verb, {given, &given->model.file});
    verb.add_option("MODEL", given->model.file, "ONNX model").required().reads();
    add_data(verb, given->data, true, false);
    verb.section("Gradient");
    verb.add_option("--vector", given->vector.file, "an array of the output's shape: the gradient of the sum of v * y, over all samples")
        .type_name("FILE")
        .common()
        .reads();
    verb.add_option("--output-index", given->output_index, "which output, counted from 0")
        .type_name("N")
        .at_least(0, "outputs are counted from 0");
    verb.section("Output");
    verb.add_option("-o,--output", given->output,
                    "an .npz of one array for each float input and float initializer, by its name in the file; zeros where no path leads")
        .required(keeper_of_results() == nullptr)
        .type_name("FILE")
        .common()
        .writes();
    add_overwrite(verb, given->overwrite);
    verb.add_flag("--json", given->json, "one object on standard output").common();
    verb.footer(
        "With --labels and without --vector: the gradient of the mean over samples of the cross-entropy. Relu has no slope at 0; of equal\n"
        "values MaxPool takes the first; quantizers are straight-through with clipping. docs/guide/gradients.md\n"
        "\n"
        "Examples:\n"
        "  qk gradient model.onnx --inputs x.npy --vector v.npy -o g.npz\n"
        "  qk gradient model.onnx --inputs x.npy --labels y.npy -o g.npz --json");
    verb.callback([given] {
        take_from_caller(*given);
        gradient(*given);
    });
}

}  // namespace qk::tool
