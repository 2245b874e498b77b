// SPDX-License-Identifier: Apache-2.0
// `qk diff`: tensor by tensor, where another runtime departs from what the network says.
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <memory>

#include "options/data_options.hpp"
#include "options/precision_options.hpp"
#include "qk/graph/pipeline/diff.hpp"
#include "qk/graph/pipeline/onnxruntime_time.hpp"
#include "support/caller.hpp"
#include "support/checkpoints.hpp"
#include "support/console.hpp"
#include "support/declared.hpp"
#include "verbs.hpp"
#ifdef QK_HAVE_HARDWARE
#include "qk/compare/compare.hpp"
#endif

namespace qk::tool {
namespace {

using diff_arguments = with_json<graph::pipeline::diff_settings>;
using graph::pipeline::conversion_case;
using graph::pipeline::diff_side;
using graph::pipeline::tensor_diff;

/// Returns the mistake of a converter that makes their values of the quantizer's input, where `compare` finds one.
std::string mistake_in([[maybe_unused]] const conversion_case& c) {
#ifdef QK_HAVE_HARDWARE
    compare::conversion how;
    how.format = c.how.format;
    how.how = c.how.semantics;
    const auto axis = c.how.axis < 0 ? c.how.axis + static_cast<int>(c.shape.size()) : c.how.axis;
    const auto along = static_cast<std::size_t>(axis < 0 ? 0 : axis);
    if (c.how.flatten || c.how.dynamic || along >= std::max<std::size_t>(1, c.shape.size())) return {};
    how.scale = c.how.scale;
    how.zero_point = c.how.zero_point;
    if (is_block_format(c.how.format)) {
        how.axis = static_cast<int>(along);
        how.blocks = compare::seen_along(c.shape, how.axis);
    }
    using kind = compare::conversion::granularity;
    how.given = how.scale.empty() ? kind::none : c.how.block_size > 0 ? kind::block : how.scale.size() > 1 ? kind::channel : kind::tensor;
    how.scale_axis = static_cast<int>(along);
    how.scale_blocks = compare::seen_along(c.shape, how.scale_axis);
    how.scale_block = static_cast<std::size_t>(c.how.block_size);
    const compare::report r = compare::examine(how, c.shape, c.input, c.theirs);
    return r.causes.empty() ? std::string() : r.causes.front().sentence;
#else
    return {};
#endif
}

void print_side(const diff_side& s, std::size_t samples) {
    std::size_t compared = 0, departing = 0, near = 0;
    for (const tensor_diff& d : s.tensors) compared += d.values > 0, departing += d.departs(), near += d.different > 0 && !d.departs();
    print("{}: {} of {} tensors compared, {} sample{}: ", s.against, compared, s.tensors.size(), samples, samples == 1 ? "" : "s");
    if (!s.departs()) {
        print("none departs ({} differ by no more than ties and the order of sums explain)\n", near);
        return;
    }
    print("{} depart{}\n", departing, departing == 1 ? "s" : "");
    const tensor_diff& first = s.tensors[s.first];
    print("  first: tensor '{}'{}\n", first.name, first.node.empty() ? "" : fmt::format(", made by '{}' ({})", first.node, first.op_type));
    print("    {}\n", graph::pipeline::departure_text(first));
    if (!first.there.empty()) print("    made there by {}\n", first.there);
    if (!first.rule.empty()) print("    {}\n", first.rule);
    print("    allowed: {}\n", first.judged_by);
    for (std::size_t i = s.first + 1; i < s.tensors.size(); ++i)
        if (s.tensors[i].departs())
            print("  also: '{}': {}{}\n", s.tensors[i].name, graph::pipeline::departure_text(s.tensors[i]),
                  s.tensors[i].rule.empty() ? "" : "; " + s.tensors[i].rule);
}

void diff(const diff_arguments& given, verb_result& result) {
    const graph::pipeline::diff_outcome done = with_progress([&](const auto& report) { return graph::pipeline::diff(given, report); });
    for (const std::string& n : done.remarks) print(stderr, "{}\n", n);
    if (!done.agree()) result.status = status::failed;
    if (given.json) return print_json(to_json(done));
    for (const diff_side& s : done.sides) print_side(s, done.samples);
}

}  // namespace

void add_diff(command& app, verb_result& result) {
    auto given = std::make_shared<diff_arguments>();
    option_table& verb = app.add_subcommand("diff", "Find the first tensor in which another runtime departs from what the network says");
    takes_models(verb, {given, &given->model.file});
    verb.add_option("MODEL", given->model.file, "ONNX model, of floats or quantized").required().reads();
    verb.add_option("--against", given->against,
                    "onnxruntime or openvino, through their Python packages (QK_PYTHON, or python3); another model's file; or a folder of "
                    "tensors as `qk evaluate --dump` writes them, or NAME.npy each")
        .type_name("RUNTIME|MODEL|DIR")
        .suggest({"onnxruntime", "openvino"})
        .common();
    verb.add_option(
            "--command", given->command,
            "a runtime to call instead, as `CMD MODEL.onnx INPUTS OUTPUTS`: it reads NAME.npy from the folder INPUTS, and writes each "
            "output of MODEL.onnx, which are all tensors, into OUTPUTS")
        .type_name("CMD");
    verb.add_option("--optimizer", given->optimizer,
                    "of onnxruntime: off, on (then the tensors that survive its fusions are compared), or both, which is the default")
        .type_name("WHEN")
        .suggest({"off", "on", "both"});
    verb.add_option(
            "--library", given->library,
            "run qk's operators in onnxruntime in place of the file's functions: the library beside qk, or with --library=FILE that one")
        .type_name("FILE")
        .alone(graph::pipeline::beside_qk);
    add_data(verb, given->data);
    add_precision(verb, given->precision);
    verb.section("Output");
    verb.add_option("--report", given->report, "HTML page: the network's tensors in order, with a bar each; JSON beside it")
        .type_name("R.html")
        .common();
    add_overwrite(verb, given->overwrite);
    verb.add_flag("--json", given->json, "one object on standard output").common();
    verb.footer(
        "Exit status 0 when no tensor departs, 1 when one does. Every tensor is computed from the other side's own values of what its node "
        "reads, so that a difference counts where it is made.\n\n"
        "Examples:\n"
        "  qk diff quantized.onnx --against onnxruntime --inputs x.npy --samples 4 --report diff.html\n"
        "  qk evaluate m.onnx --inputs x.npy --samples 4 --dump tensors\n"
        "  qk diff m.onnx --against tensors --inputs x.npy --samples 4");
    verb.callback([given, &result] {
        take_from_caller(*given);
        given->command_line = command_line();
        given->explain = mistake_in;
        diff(*given, result);
    });
}

}  // namespace qk::tool
