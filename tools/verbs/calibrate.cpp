// SPDX-License-Identifier: Apache-2.0
// `qk calibrate`: the range of each activation by every method, and the error of each method.
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>
#include <memory>

#include "options/data_options.hpp"
#include "options/words.hpp"
#include "qk/graph/calibrate.hpp"
#include "qk/graph/pipeline.hpp"
#include "qk/graph/plan.hpp"
#include "qk/graph/report.hpp"
#include "support/caller.hpp"
#include "support/checkpoints.hpp"
#include "support/console.hpp"
#include "support/declared.hpp"
#include "verbs.hpp"

namespace qk::tool {
namespace {

struct calibrate_arguments {
    graph::pipeline::model_source model;
    std::string method = "min_max", format = "int8", output, report;
    double percentile = 99.999;
    bool symmetric = false, json = false, overwrite = false;
    data_settings data;
};

void calibrate(const calibrate_arguments& given) {
    graph::precision what = graph::parse_precision(given.format);
    if (!is_integer_format(what.format))
        throw graph::error(
            fmt::format("--format {}: methods are compared for integer formats; other formats need no more than min_max", given.format));
    if (given.symmetric) what.symmetric = true;
    std::vector<graph::range_method> methods;
    if (given.method == "all") methods = graph::all_range_methods();
    else if (const auto m = graph::parse_range_method(given.method)) methods = {*m};
    else
        throw graph::error(fmt::format("--method '{}' is none of {}.{}", given.method, comma_separated(method_words({"all"})),
                                       graph::did_you_mean(given.method, method_words({"all"}))));

    graph::output_set files(given.overwrite);
    declare(files, given.model);
    for (const std::string& r : graph::pipeline::declare(files, given.data)) print(stderr, "{}\n", r);
    files.output("-o", given.output).output("--report", given.report);
    const graph::model m = graph::pipeline::load_for_planning(given.model);
    const graph::named_tensors inputs = given.data.calibration.empty() ? given.data.load_inputs(m) : given.data.load_calibration(m);
    graph::calibrate_options options{.threads = given.data.threads, .histograms = true};
    for (const graph::range_method r : methods) options.moving_average |= r == graph::range_method::moving_average;
    graph::calibration seen;
    {
        progress bar("calibrating");
        seen = graph::calibrate(m, inputs, options, [&](std::size_t done, std::size_t all) { bar.show(done, all); });
    }
    if (!seen.whole.empty()) print(stderr, "the data: {}\n", seen.whole);
    std::vector<graph::method_comparison> all = graph::compare_methods(seen, methods, what, given.percentile);
    // In network order: a tensor stands at the node that makes it, the model's inputs come first.
    std::stable_sort(all.begin(), all.end(), [&](const auto& a, const auto& b) { return m.producer(a.tensor) < m.producer(b.tensor); });
    if (!given.report.empty()) {
        files.write(given.report, graph::calibration_html(given.model.short_name(), command_line(), seen, what, all));
    }
    if (!given.output.empty()) files.write(given.output, graph::calibration_text(seen));
    else if (caller* by = keeper_of_results()) by->results.statistics = graph::calibration_text(seen);
    files.commit();
    if (given.json)
        return print_json(
            {{"model", given.model.name()}, {"samples", seen.samples}, {"format", given.format}, {"tensors", graph::to_json(all)}});
    print("{} samples, {} tensors, {}\n{:<48} {:<21} {:>12} {:>12} {:>9}\n", seen.samples, all.size(), given.format, "tensor", "method",
          "lowest", "highest", "dB");
    for (const graph::method_comparison& c : all)
        for (std::size_t i = 0; i < c.methods.size(); ++i) {
            const graph::method_range& r = c.methods[i];
            print("{:<48} {:<21} {:>12.6g} {:>12.6g} {:>9.2f}{}\n", c.tensor, graph::name_of(r.method), r.range.lo, r.range.hi, r.sqnr,
                  i == c.best && c.methods.size() > 1 ? " best" : "");
        }
}

}  // namespace

void add_calibrate(command& app, verb_result&) {
    auto given = std::make_shared<calibrate_arguments>();
    option_table& verb =
        app.add_subcommand("calibrate", "Choose activation ranges from data, compare methods, and keep the statistics for later");
    takes_models(verb, {given, &given->model.file});
    verb.add_option("MODEL", given->model.file, "ONNX model").required().reads();
    add_data(verb, given->data);
    verb.section("Ranges");
    verb.add_option("--method", given->method, "min_max (default), or another of: " + comma_separated(method_words({"all"})))
        .type_name("M")
        .common()
        .suggest(method_words({"all"}));
    verb.add_option("--percentile", given->percentile, "per cent of values inside the range")
        .type_name("P")
        .between(50, 100, "it is the per cent of values that stay inside the range, as 99.99");
    verb.add_option("--format", given->format, "integer format that the ranges are for (int8)")
        .type_name("F")
        .common()
        .suggest(format_words());
    verb.add_flag("--symmetric", given->symmetric, "zero point in the middle");
    verb.add_option("-o,--output", given->output, "calibration file: give it to --calibration of other verbs, with any method and format")
        .type_name("C.json")
        .common()
        .writes();
    verb.add_option("--report", given->report, "HTML page with every tensor's histogram and ranges").type_name("R.html").common();
    add_overwrite(verb, given->overwrite);
    verb.add_flag("--json", given->json, "one JSON object on standard output").common();
    verb.footer(
        "Examples:\n  qk calibrate model.onnx --inputs x.npy --method all --report ranges.html\n  qk calibrate model.onnx --inputs x.npy "
        "-o calibration.json");
    verb.callback([given] {
        take_from_caller(*given);
        calibrate(*given);
    });
}

}  // namespace qk::tool
