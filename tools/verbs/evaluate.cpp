// SPDX-License-Identifier: Apache-2.0
// `qk evaluate`: runs a model on data, in float32 or under a precision plan.
#include <fmt/format.h>

#include <memory>

#include "options/data_options.hpp"
#include "options/precision_options.hpp"
#include "options/words.hpp"
#include "qk/graph/pipeline.hpp"
#include "support/caller.hpp"
#include "support/checkpoints.hpp"
#include "support/console.hpp"
#include "support/declared.hpp"
#include "support/remarks.hpp"
#include "verbs.hpp"

namespace qk::tool {
namespace {

using evaluate_arguments = with_json<graph::pipeline::evaluate_settings>;

void evaluate(const evaluate_arguments& given, verb_result& result) {
    const graph::pipeline::evaluate_outcome done =
        with_progress([&](const auto& report) { return graph::pipeline::evaluate(given, report); });
    if (caller* by = keeper_of_results()) by->results.arrays = done.run.outputs;
    for (const std::string& n : done.remarks) print(stderr, "{}\n", n);
    print_remarks(done.report, false);
    if (!done.agree) result.status = status::failed;
    if (given.json) return print_json(done.summary);
    for (const auto& [key, value] : done.summary.items()) {
        if (key == "accumulators") print("{:17} of {} layers\n", key, value.size());
        else if (key != "compare") print("{:17} {}\n", key, value.dump());
        else
            for (const auto& [name, d] : value.items())
                print("{:17} largest difference {:.3g}, {:.3g} of the largest output{}\n", name, d["max_abs"].get<double>(),
                      d["max_rel"].get<double>(), d["max_rel"].get<double>() <= given.tolerance ? "" : "  <- beyond the tolerance");
    }
}

}  // namespace

void add_evaluate(command& app, verb_result& result) {
    auto given = std::make_shared<evaluate_arguments>();
    option_table& verb = app.add_subcommand("evaluate", "Run a model on data, in float32 or under a precision plan");
    takes_models(verb, {given, &given->model.file});
    verb.add_option("MODEL", given->model.file, "ONNX model").required().reads();
    add_data(verb, given->data);
    add_positions(verb, given->data);
    add_precision(verb, given->precision);
    verb.section("What multiplies");
    verb.add_option("--accumulator", given->accumulators,
                    "Conv, Gemm and MatMul as this unit computes them: a device (`qk formats --devices`) or an accumulator; "
                    "LAYER: or TYPE: before it means those layers alone; may be repeated")
        .type_name("[LAYER:]NAME")
        .common();
    verb.add_flag(
        "--packed-weights", given->packed_weights,
        "keep the weights of MatMul and Gemm under a plan as codes, in a quarter of the memory or less; one row at a time is faster "
        "so, many are slower; sums have another order, so last bits differ");
    verb.add_option(
            "--run-with", given->run_with,
            "run the file in this runtime in place of qk's evaluator, one sample after the other, its optimizer on, by a python that "
            "has it (QK_PYTHON, or python3); onnxruntime+library: with qk's operators in place of the file's functions")
        .type_name("RUNTIME")
        .suggest({"onnxruntime", "onnxruntime+library", "openvino"});
    verb.section("Measure");
    verb.add_option("--metric", given->metrics,
                    "what is measured, against --labels, or the float model's outputs where formats are given, or --compare: " +
                        comma_separated(metric_words()))
        .delimiter(',')
        .type_name("M[,M...]")
        .suggest(metric_words());
    verb.add_option("--generate", given->generate,
                    "greedy steps of a decoder behind each prompt, with its cache: perplexity and agreement of the plan on the float "
                    "model's tokens")
        .type_name("N")
        .at_least(1, "leave --generate out to run the inputs once");
    verb.add_option("--output-index", given->output_index, "which model output is measured, from 0").type_name("I");
    verb.section("Output");
    verb.add_option("--batch", given->batch, "samples run at once where a model mixes samples; others run alone")
        .type_name("B")
        .at_least(1, "leave --batch out and it is chosen here");
    verb.add_option("--output-dir", given->output_dir, "write each output as NAME.npy ('/', ':' and control characters become '_')")
        .type_name("DIR")
        .common();
    verb.add_option(
            "--dump", given->dump,
            "write every named tensor of the network, behind its quantizer, as NAME.npy with an index.json: order, name, node, file, "
            "shape; for `qk diff`")
        .type_name("DIR");
    verb.add_option("--compare", given->compare, "compare each output with DIR/NAME.npy, or with what another model gives for the inputs")
        .type_name("DIR|F.onnx")
        .common();
    verb.add_option("--tolerance", given->tolerance, "largest difference allowed, over the largest output (1e-4); exit status 1 beyond")
        .type_name("X")
        .at_least(0, "it is a share of the largest output: 0.0001 allows one part in ten thousand");
    add_overwrite(verb, given->overwrite);
    verb.add_flag("--json", given->json, "one object on standard output").common();
    verb.footer(
        "Examples:\n"
        "  qk evaluate m.onnx --inputs x.npy --labels y.npy --preprocess layout=nhwc,scale=0.003921569\n"
        "  qk evaluate m.onnx --inputs x.npy --labels y.npy --activation int8 --weight int8 --calibration c.npy\n"
        "  qk evaluate m.onnx --inputs x.npy --labels y.npy --accumulator nvidia.hopper.wgmma.f32.f16.f16 --accumulator Gemm:sum=exact\n"
        "  qk evaluate gpt.onnx --inputs t1.npz,t2.npz --mask attention_mask --next-token --metric perplexity,kl --weight int4 "
        "--weight-block 32\n"
        "  qk evaluate m.onnx --inputs x.npy --samples 4 --activation int8 --weight int8 --dump tensors\n"
        "  qk evaluate m.onnx --inputs a=a.npy --inputs b=b.npy --compare expected --tolerance 1e-3\n"
        "  qk evaluate quantized.onnx --inputs x.npy --compare m.onnx --metric sqnr,cosine --tolerance 1\n"
        "  qk evaluate quantized.onnx --inputs x.npy --labels y.npy --run-with onnxruntime+library");
    verb.callback([given, &result] {
        take_from_caller(*given);
        given->keep_outputs = keeper_of_results() != nullptr;
        evaluate(*given, result);
    });
}

}  // namespace qk::tool
