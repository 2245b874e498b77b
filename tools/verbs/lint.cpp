// SPDX-License-Identifier: Apache-2.0
// `qk lint`: what a reader of a checkpoint would stumble over.
#include <memory>

#include "support/checkpoints.hpp"
#include "verbs.hpp"

namespace qk::tool {

void add_lint(command& app, verb_result& result) {
    struct lint_arguments {
        std::string file;
        bool json = false;
    };
    auto given = std::make_shared<lint_arguments>();
    option_table& verb =
        app.add_subcommand("lint", "Find what is wrong in a checkpoint: scales, NaN codes, shapes, tensors that do not fit their config");
    verb.takes(input_kind::checkpoint, [given]() -> given_input {
        if (given->file.ends_with(".onnx")) return {input_kind::model, given->file + " is a model"};
        if (given->file.ends_with(".npy") || given->file.ends_with(".npz")) return {input_kind::array, given->file + " is an array"};
        return {input_kind::checkpoint, given->file + " is a checkpoint"};
    });
    verb.add_option("FILE", given->file, ".safetensors, the index.json of its shards, or .gguf; a config.json beside it is read, too")
        .required()
        .reads();
    verb.add_flag("--json", given->json, "one JSON object on standard output, whose `findings` have tensor, kind, sentence").common();
    verb.footer(
        "Exit status 0: nothing was found; 1: a line for each finding; 2: the file cannot be read, and why.\n\nExamples:\n"
        "  qk lint model.safetensors\n"
        "  qk lint model.safetensors.index.json --json\n"
        "  qk lint model-q4_k.gguf");
    verb.callback([given, &result] {
        if (!lint_checkpoint(given->file, given->json)) result.status = status::failed;
    });
}

}  // namespace qk::tool
