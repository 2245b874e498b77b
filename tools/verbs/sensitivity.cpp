// SPDX-License-Identifier: Apache-2.0
// `qk sensitivity`: what narrowing each layer alone does to the output.
#include <fmt/format.h>

#include <memory>

#include "options/mix_options.hpp"
#include "qk/graph/pipeline.hpp"
#include "qk/graph/search.hpp"
#include "support/caller.hpp"
#include "support/checkpoints.hpp"
#include "support/console.hpp"
#include "support/processes.hpp"
#include "verbs.hpp"

namespace qk::tool {
namespace {

struct sensitivity_arguments : with_json<graph::pipeline::sensitivity_settings> {
    bool weights_only = false;
    std::vector<std::string> formats{"q2_k", "q3_k", "q4_k", "q5_k", "q6_k", "q8_0"};
    std::string importance;
};

void sensitivity(const sensitivity_arguments& given) {
    const graph::sensitivity_result result = with_progress([&](const auto& report) { return graph::pipeline::sensitivity(given, report); });
    if (!processes::together().first()) return;
    for (const std::string& r : result.remarks) print(stderr, "{}\n", r);
    if (given.json) return print_json(graph::to_json(result));
    print("{} of the model all {}: {:.6g} (output MSE {:.6g})\n{:<40} {:<10} {:<24} {:<18} {:>13} {:>13} {:>13}\n", result.metric_name,
          result.widened ? "narrow" : "wide", result.base_metric, result.base_error, "layer", "operator", "formats",
          result.widened ? "widened" : "narrowed", result.metric_name, "harm", "adds to MSE");
    for (const graph::sensitivity_row& row : result.rows)
        print("{:<40} {:<10} {:<24} {:<18} {:>13.6g} {:>13.6g} {:>13.6g}{}\n", row.layer, row.op_type, row.option, graph::name_of(row.part),
              row.metric, row.harm, row.added, row.measured ? "" : fmt::format(" +- {:.2g}", row.standard_error));
    print("{} layer evaluations instead of {}, {:.2f} s\n", result.statistics.layer_evaluations, result.statistics.naive_layer_evaluations,
          result.seconds);
}

}  // namespace

void add_sensitivity(command& app, verb_result&) {
    auto given = std::make_shared<sensitivity_arguments>();
    option_table& verb =
        app.add_subcommand("sensitivity", "Narrow each layer alone (and its weights alone, its activations alone) and rank the harm");
    verb.takes(input_kind::model | input_kind::checkpoint,
               [given] { return checkpoint_or(input_kind::model, given->model.file, "a model"); });
    verb.only_for(input_kind::model);
    add_mix(verb, *given, given->json);
    verb.section("Formats and layers");
    verb.add_option("--direction", given->direction, "narrow each alone from all wide, or widen each alone from all narrow")
        .one_of({"narrow", "widen"});
    verb.section("Measure");
    verb.add_option(
            "--method", given->method,
            "measured: one evaluation a row; gradient: all rows estimated from a few backward passes; auto: estimated, and measured "
            "where errors are too large to be linear")
        .one_of({"gradient", "measured", "auto"})
        .common();
    verb.add_option("--passes", given->passes, "backward passes a sample for estimates; as many as make 200 over all samples if not given")
        .type_name("N")
        .at_least(1, "leave --passes out and it is chosen here");
    verb.add_option("--seed", given->seed, "of the vectors that estimates are taken with").type_name("N");
    verb.only_for(input_kind::checkpoint);
    verb.section("Checkpoints");
    verb.add_flag(
        "--weights-only", given->weights_only,
        "MODEL is a checkpoint (.safetensors, index.json, .gguf): rank its matrices by the error of each format, without a network");
    verb.add_option("--formats", given->formats,
                    "ggml's types that are tried (q2_k to q8_0); or formats of `qk formats`, int4_g128 in groups")
        .delimiter(',')
        .type_name("F[,F...]");
    verb.add_option("--importance", given->importance,
                    "weights of the columns: an .npz with a float32 vector for each tensor, or llama.cpp's imatrix (.gguf, .dat)")
        .type_name("V.npz")
        .reads();
    verb.section("");
    verb.footer(metric_definitions() +
                "\n\n"
                "Examples:\n"
                "  qk sensitivity model.onnx --inputs x.npy --wide int16/int8 --narrow int8/int8\n"
                "  qk sensitivity model.onnx --inputs x.npy --method gradient --narrow int8/int8,int8/int4,mxfp4/mxfp4\n"
                "  qk sensitivity model.onnx --inputs x.npy --labels y.npy --metric loss --wide bf16/bf16 --narrow bfp16/bfp16,mxfp4/mxfp4 "
                "--report s.html\n"
                "  qk sensitivity --weights-only model.safetensors --formats q4_0,q8_0");
    verb.callback([given] {
        take_from_caller(*given);
        const std::string& model = given->model.file;
        if (is_checkpoint(model) && !given->weights_only)
            throw graph::error(model + " is a checkpoint, which has no network to measure; say --weights-only");
        if (given->weights_only) return rank_formats(model, given->formats, given->importance, given->data.threads, given->json);
        place(*given);
        sensitivity(*given);
    });
}

}  // namespace qk::tool
