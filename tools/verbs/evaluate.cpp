// SPDX-License-Identifier: Apache-2.0
// `qk evaluate`: run a model on data, in float32 or under a precision plan.
#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <memory>

#include "options/data_options.hpp"
#include "options/precision_options.hpp"
#include "qk/graph/evaluate/accuracy.hpp"
#include "qk/graph/evaluate/evaluator.hpp"
#include "qk/graph/evaluate/fold.hpp"
#include "qk/graph/evaluate/inputs.hpp"
#include "qk/graph/files/npy.hpp"
#include "qk/graph/quantize/planner.hpp"
#include "support/console.hpp"
#include "support/declared.hpp"
#include "support/remarks.hpp"
#include "verbs.hpp"

namespace qk::tool {
namespace {

struct arguments {
    std::string model, output_dir, compare;
    data_options data;
    precision_options precision;
    int batch = 0;
    double tolerance = 1e-4;
    bool json = false, overwrite = false;
};

std::filesystem::path file_in(const std::string& folder, const std::string& name) {
    return std::filesystem::path(folder) / (graph::as_file_name(name) + ".npy");
}

void evaluate(const arguments& given, verb_result& result) {
    graph::output_set files(given.overwrite);
    declare(files, given.model);
    declare(files, given.data);
    declare(files, given.precision);
    files.input("--compare", given.compare).folder("--output-dir", given.output_dir);
    graph::model m = graph::model::load(given.model);
    if (!given.output_dir.empty())
        for (const auto& o : m.outputs()) files.output("--output-dir", file_in(given.output_dir, o.name));
    const graph::named_tensors inputs = given.data.load_inputs(m);
    const auto labels = given.data.load_labels();
    graph::named_tensors expected;
    if (!given.compare.empty())
        for (const auto& o : m.outputs()) expected[o.name] = graph::read_npy(file_in(given.compare, o.name));
    graph::precision_plan plan;
    if (given.precision.any()) {
        graph::fold_constants(m);
        graph::fold_batch_normalization(m);
        const graph::quantize_result made = make_plan(m, given.data, given.precision);
        print_remarks(made.report, false);
        plan = made.plan;
    }
    const graph::evaluator evaluator(m, {.threads = given.data.threads, .batch = given.batch});
    graph::evaluate_result run;
    {
        progress bar("evaluating", 0);
        run = evaluator.run(inputs, plan, {}, [&](std::size_t done, std::size_t all) { bar.show(done, all); });
    }

    nlohmann::ordered_json json;
    json["samples"] = run.samples;
    if (!labels.empty()) {
        const graph::tensor& first = run.outputs.at(m.outputs().at(0).name);
        if (labels.size() != run.samples)
            throw graph::error(fmt::format("'{}' has {} labels for {} samples", given.data.labels, labels.size(), run.samples));
        json["top1"] = graph::top_k(first, labels, 1);
        if (first.size() > 5 * run.samples) json["top5"] = graph::top_k(first, labels, 5);
    }
    json["seconds"] = run.seconds;
    json["items_per_second"] = static_cast<double>(run.samples) / run.seconds;
    json["peak_bytes"] = run.peak_bytes;
    bool agree = true;
    for (const auto& [name, value] : expected) {
        const graph::output_difference d = graph::compare_outputs(run.outputs.at(name), value, name);
        agree = agree && d.relative <= given.tolerance;
        json["compare"][name] = {{"max_abs", d.absolute}, {"max_rel", d.relative}, {"largest", d.largest}};
    }
    if (!expected.empty()) json["agree"] = agree;
    if (!given.output_dir.empty())
        for (const auto& [name, value] : run.outputs) files.write(file_in(given.output_dir, name), graph::to_npy(value));
    files.commit();
    if (!agree) result.status = status::failed;
    if (given.json) return print_json(json);
    for (const auto& [key, value] : json.items()) {
        if (key != "compare") {
            print("{:17} {}\n", key, value.dump());
            continue;
        }
        for (const auto& [name, d] : value.items())
            print("{:17} largest difference {:.3g}, {:.3g} of the largest output{}\n", name, d["max_abs"].get<double>(),
                  d["max_rel"].get<double>(), d["max_rel"].get<double>() <= given.tolerance ? "" : "  <- beyond the tolerance");
    }
}

}  // namespace

void add_evaluate(command& app, verb_result& result) {
    auto given = std::make_shared<arguments>();
    option_table& verb = app.add_subcommand("evaluate", "Run a model on data, in float32 or under a precision plan");
    verb.add_option("MODEL", given->model, "ONNX model").required().reads();
    given->data.add(verb);
    given->precision.add(verb);
    verb.section("Output");
    verb.add_option("--batch", given->batch, "samples run at once where a model mixes samples; others run alone")
        .type_name("B")
        .at_least(1, "leave --batch out and it is chosen here");
    verb.add_option("--output-dir", given->output_dir, "write each output as NAME.npy ('/', ':' and control characters become '_')")
        .type_name("DIR")
        .common();
    verb.add_option("--compare", given->compare, "compare each output with DIR/NAME.npy").type_name("DIR").common();
    verb.add_option("--tolerance", given->tolerance, "largest difference allowed, over the largest output (1e-4); exit status 1 beyond")
        .type_name("X")
        .at_least(0, "it is a share of the largest output: 0.0001 allows one part in ten thousand");
    add_overwrite(verb, given->overwrite);
    verb.add_flag("--json", given->json, "one object on standard output").common();
    verb.footer(
        "Examples:\n"
        "  qk evaluate m.onnx --inputs x.npy --labels y.npy --preprocess layout=nhwc,scale=0.003921569\n"
        "  qk evaluate m.onnx --inputs x.npy --labels y.npy --activation int8 --weight int8 --calibration c.npy\n"
        "  qk evaluate m.onnx --inputs a=a.npy --inputs b=b.npy --compare expected --tolerance 1e-3");
    verb.callback([given, &result] { evaluate(*given, result); });
}

}  // namespace qk::tool
