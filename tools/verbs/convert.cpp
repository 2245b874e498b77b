// SPDX-License-Identifier: Apache-2.0
// `qk convert`: rounds the values of a .npy file to a format, or unpacks a packed .npz.
#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <memory>

#include "options/format_options.hpp"
#include "qk/compare/flags.hpp"
#include "qk/formats/parse.hpp"
#include "qk/graph/files.hpp"
#include "support/checkpoints.hpp"
#include "support/console.hpp"
#include "support/declared.hpp"
#include "support/flags_json.hpp"
#include "support/packed_file.hpp"
#include "support/system_rules.hpp"
#include "verbs.hpp"

namespace qk::tool {
namespace {

struct convert_arguments {
    std::string input, output, packed;
    quantize_options how;
    std::string like, plan, to;
    std::vector<std::string> tensors;
    std::string system, importance, shard_size;
    bool count = false, overwrite = false, lossless = false, requantize = false, json = false, names_as_they_are = false;
    int threads = 0;
};

/// Converts a packed tensor back into numbers.
void convert_back(const convert_arguments& given, const std::string& bytes, graph::output_set& files) {
    const packed_tensor p = from_archive(bytes, given.input);
    if (!given.how.format.empty() && format_of(given.how) != p.how.format) {
        throw graph::error(
            fmt::format("{} holds {}, not {}; leave --format out", given.input, to_text(p.how.format).view(), given.how.format));
    }
    files.write(given.output, graph::to_npy(unpack(p)));
    files.commit();
}

/// Converts a tensor as another system does.
void convert_by_system(const convert_arguments& given, const std::string& bytes, graph::output_set& files) {
    const systems::rule& rule = system_rule(given.system);
    if (given.count) throw graph::error("--count counts for --format; leave it out with --system");
    const converted_by_system made = convert_by(rule, graph::parse_npy(bytes, given.input), given.input, given.importance);
    if (!given.packed.empty()) files.write(given.packed, made.archive);
    files.write(given.output, graph::to_npy(made.values));
    files.commit();
}

/// Reads the weights of the objective `weighted`: one for each place on the axis that blocks run along.
graph::tensor column_weights(const convert_arguments& given, const conversion& c) {
    if (given.importance.empty()) return {};
    if (!is_block_format(c.format))
        throw graph::error("--importance weighs the scales of blocks, and " + given.how.format + " has none of its own");
    graph::tensor w = float_tensor(graph::read_npy(given.importance), given.importance);
    if (w.size() != c.blocks.length)
        throw graph::error(fmt::format("{} holds {} weights, and axis {} of {} has {} places", given.importance, w.size(), c.axis,
                                       given.input, c.blocks.length));
    for (const float v : w.as<float>())
        if (!(v >= 0 && std::isfinite(v))) throw graph::error(given.importance + " holds a weight that is no number from 0 on");
    return w;
}

/// The schemes of --to for its help.
std::string scheme_list() {
    std::string all;
    for (const std::string& word : scheme_words()) all += (all.empty() ? "" : ", ") + word;
    return all;
}

void convert(const convert_arguments& given) {
    if (is_checkpoint(given.input))
        return convert_checkpoint({.input = given.input,
                                   .output = given.output,
                                   .format = given.how.format,
                                   .like = given.like,
                                   .tensors = given.tensors,
                                   .plan = given.plan,
                                   .shard_size = given.shard_size,
                                   .overwrite = given.overwrite,
                                   .system = given.system,
                                   .importance = given.importance,
                                   .threads = given.threads,
                                   .names_as_they_are = given.names_as_they_are,
                                   .to = given.to,
                                   .lossless = given.lossless,
                                   .requantize = given.requantize,
                                   .json = given.json});
    if (given.count) need_hardware("--count");
    graph::output_set files(given.overwrite);
    files.input("INPUT", given.input).input("--scales", given.how.scales).input("--zero-points", given.how.zero_points);
    files.input("--importance", given.importance);
    files.output("OUTPUT", given.output).output("--packed", given.packed);
    if (!given.system.empty()) refuse_beside_system(given.how);
    if (given.system.empty() && given.importance.empty() != (given.how.scale_objective != "weighted"))
        throw graph::error(given.importance.empty()
                               ? "--scale-objective weighted needs a weight for each column: give --importance V.npy"
                               : "--importance is for --system and for --scale-objective weighted; without them no rule looks at one");
    const std::string bytes = graph::read_file(given.input);
    if (!given.system.empty()) return convert_by_system(given, bytes, files);
    if (is_archive(bytes)) return convert_back(given, bytes, files);
    format_of(given.how);  // wrong options fail before the file is parsed
    semantics_of(given.how);
    const graph::tensor x = float_tensor(graph::parse_npy(bytes, given.input), given.input);
    const bool searched =
        graph::searches_scales(format_of(given.how), semantics_of(given.how)) && given.how.scale.empty() && given.how.scales.empty();
    conversion c = searched ? resolve_searched(given.how, x, given.input) : resolve(given.how, x.shape(), given.input);
    const graph::tensor weights = column_weights(given, c);
    if (weights.size() > 0) c.how.scale_weights = weights.as<float>().data();
    graph::tensor y(graph::data_type::float32, x.shape());
    fake_quantize(c, x.as<float>(), y.as<float>());
    if (!given.packed.empty()) files.write(given.packed, to_archive(pack(c, x)));
    files.write(given.output, graph::to_npy(y));
    files.commit();
#ifdef QK_HAVE_HARDWARE
    if (given.count) print_json(json_of(compare::count_flags(c, x.as<float>(), y.as<float>())));
#endif
}

/// Finds what INPUT is, by its name and by its first bytes.
given_input input_of(const convert_arguments& given) {
    std::error_code ignored;
    if (std::filesystem::is_regular_file(given.input, ignored) && !is_checkpoint(given.input)) {
        char first[4] = {};
        graph::file_stream(given.input).read(first, sizeof first);
        if (is_archive({first, sizeof first})) return {input_kind::packed, given.input + " is packed already"};
    }
    return checkpoint_or(input_kind::array, given.input, "an array");
}

void add_checkpoint_options(option_table& verb, convert_arguments& given) {
    verb.only_for(input_kind::checkpoint);
    verb.section("Checkpoints");
    verb.add_option("--like", given.like, "another checkpoint: each weight gets its layout, each tensor its place")
        .type_name("FILE")
        .reads();
    verb.add_option("--to", given.to,
                    "a float checkpoint as another system quantizes it, with the config.json that its reader needs: " + scheme_list())
        .type_name("SYSTEM:SCHEME")
        .suggest(scheme_words());
    verb.add_option("--tensor", given.tensors, "a format for the weights whose names fit a glob; the last that fits counts")
        .type_name("GLOB=FORMAT")
        .one_each();
    verb.add_option("--plan", given.plan, "a requests file whose requests have `tensor` or `layer` (a glob) and `weight` (a format)")
        .type_name("P.json")
        .reads();
    verb.add_option("--shard-size", given.shard_size,
                    "at most so many bytes of tensors a file, as 5GB or 500MB: OUTPUT becomes NAME-00001-of-00003.safetensors and so on "
                    "with their index, or a split .gguf")
        .type_name("SIZE");
    verb.add_flag("--lossless", given.lossless, "refuse (exit status 2, nothing is written) what would round a weight or quantize it anew");
    verb.add_flag("--requantize", given.requantize,
                  "quantize anew, by the target's own rule, whatever is not moved without loss; by default codes also stay where only "
                  "scales or zero points are rounded, and by little");
    verb.add_flag(
        "--json", given.json,
        "one JSON object on standard output: the counts and decibels of the line that ends a conversion, and a row for each weight");
    verb.add_option("--threads", given.threads, "that quantize to ggml's types, one for each core if not given; bytes do not depend on it")
        .type_name("T")
        .between(1, 1024, "leave --threads out for one for each core");
    verb.add_flag("--names-as-they-are", given.names_as_they_are,
                  "write a .gguf of a Hugging Face model all the same: llama.cpp does not load it, for its converter makes names, "
                  "permutations and tokenizer");
    verb.only_for({});
}

}  // namespace

void add_convert(command& app, verb_result&) {
    auto given = std::make_shared<convert_arguments>();
    option_table& verb =
        app.add_subcommand("convert", "Convert a .npy file through a format: every value becomes the nearest that the format has");
    constexpr auto array = input_kind::array, checkpoint = input_kind::checkpoint;
    verb.takes(array | input_kind::packed | checkpoint, [given] { return input_of(*given); });
    verb.add_option(
            "INPUT", given->input,
            "float32 or float16 .npy, or a packed .npz (then back into numbers); or a checkpoint: .safetensors, the index.json of its "
            "shards, .gguf")
        .required()
        .reads();
    verb.add_option("OUTPUT", given->output, "float32 .npy of the same shape; of a checkpoint: .npz (float32), .safetensors or .gguf")
        .required()
        .writes();
    verb.add_option("--packed", given->packed,
                    "also write the codes, at their true width: an .npz with the planes of docs/reference/layouts.md")
        .type_name("P.npz")
        .common()
        .writes()
        .only_for(array, "OUTPUT is all that is written; leave it out");
    verb.add_flag("--count", given->count,
                  "print what happened on the way as one JSON object: overflow, saturation, underflow, inexact, nan, invalid")
        .common()
        .only_for(array);
    add_overwrite(verb, given->overwrite);
    verb.only_for(array);
    add_format_options(verb, given->how);
    verb.at("--format").only_for({});
    add_scale_options(verb, given->how);
    verb.only_for(array | checkpoint);
    verb.section("As another system does");
    verb.add_option("--system", given->system,
                    "SYSTEM.FORMAT: the whole rule of a package, such as mlx.mxfp4 or ggml.q4_K; `qk formats --systems` lists them. Of a "
                    "checkpoint: ggml's")
        .type_name("SYSTEM.FORMAT")
        .suggest(system_words());
    verb.add_option("--importance", given->importance,
                    ".npy with one weight for each column, for the rules that look at one (ggml's searches), and for --scale-objective "
                    "weighted; of a checkpoint an .npz with a vector for each tensor, or llama.cpp's imatrix (.gguf, .dat)")
        .type_name("V.npy")
        .reads();
    add_checkpoint_options(verb, *given);
    verb.section("");
    verb.footer(
        "An option overrides the choice of --semantics.\n\nExamples:\n"
        "  qk convert x.npy y.npy --format mxfp4\n"
        "  qk convert x.npy y.npy --format fp8_e4m3fn --count\n"
        "  qk convert x.npy y.npy --format bfp:block=16,exponent=8,mantissa=5 --axis 1 --semantics quark --rounding half-away\n"
        "  qk convert x.npy y.npy --format int8 --scale 0.05 --zero-point 3\n"
        "  qk convert x.npy y.npy --format mx6 --packed y.npz\n"
        "  qk convert y.npz y.npy\n"
        "  qk convert model.safetensors model.npz\n"
        "  qk convert model.safetensors model.gguf --format f16 --tensor '*norm*=f32'\n"
        "  qk convert a.safetensors b.safetensors --like a.safetensors\n"
        "  qk convert a.safetensors c.safetensors --like a.safetensors --lossless\n"
        "  qk convert llama/model.safetensors quantized/model.safetensors --to compressed-tensors:W4A16\n"
        "  qk convert x.npy y.npy --format int8 --scales s.npy --scale-axis 0\n"
        "  qk convert x.npy y.npy --system transformer_engine.nvfp4_4over6_mse --packed y.npz\n"
        "  qk convert x.npy y.npy --system modelopt.mxfp8");
    verb.callback([given] { convert(*given); });
}

}  // namespace qk::tool
