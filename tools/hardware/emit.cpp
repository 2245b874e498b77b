// SPDX-License-Identifier: Apache-2.0
// `qk emit`: a converter, or a unit that multiplies and adds, as a file that needs nothing of qk, in C, SystemVerilog or Python.
#include "qk/emit/emit.hpp"

#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <memory>
#include <stdexcept>

#include "hardware/dot_case.hpp"
#include "hardware/streams.hpp"
#include "options/option_table.hpp"
#include "qk/formats/parse.hpp"
#include "qk/graph/error.hpp"
#include "qk/graph/files.hpp"
#include "support/console.hpp"
#include "support/declared.hpp"
#include "verbs.hpp"

namespace qk::tool {
namespace {

using graph::error;

struct emit_arguments {
    stream_options what;
    std::string language, form = "function", output;
    bool overwrite = false;
};

/// Returns a name of letters, digits and _ for the functions.
std::string identifier(const std::string& text) {
    std::string s;
    for (const char c : text) s += (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ? c : '_';
    return s.front() >= '0' && s.front() <= '9' ? "f" + s : s;
}

bool is_sum(const emit_arguments& given) { return !given.what.device.empty() || !given.what.accumulator.empty(); }

/// Returns the command, as it is typed, without where it writes.
std::string command_of(const emit_arguments& given) {
    std::string s = "qk emit " + given.what.how.format;
    const auto add = [&](const char* option, const std::string& value) {
        if (!value.empty()) s += fmt::format(" {} {}", option, value);
    };
    const quantize_options& how = given.what.how;
    if (is_sum(given)) {
        s = "qk emit";
        add("--device", given.what.device);
        add("--accumulator", given.what.accumulator);
        add("--a-format", given.what.a_format);
        add("--b-format", given.what.b_format);
        add("--c-format", given.what.c_format);
        add("--k", given.what.k != 0 ? std::to_string(given.what.k) : "");
        add("--seed", how.seed ? std::to_string(*how.seed) : "");
        add("--language", given.language);
        add("--as", given.form == "function" ? "" : given.form);
        return s;
    }
    if (given.what.decode) s += " --decode";
    add("--semantics", how.semantics == "ocp" ? "" : how.semantics);
    add("--rounding", how.rounding);
    add("--overflow", how.overflow);
    add("--scale-rule", how.scale_rule);
    add("--integer-mode", how.integer_mode);
    add("--input", given.what.input == "fp32" ? "" : given.what.input);
    add("--scale", how.scale);
    add("--zero-point", how.zero_point);
    add("--random-bits", how.random_bits ? std::to_string(*how.random_bits) : "");
    add("--seed", how.seed ? std::to_string(*how.seed) : "");
    if (how.zero_point_before) s += " --zero-point-before";
    if (how.mxint_lowest) s += " --mxint-lowest";
    if (how.flush_inputs) s += " --flush-inputs";
    if (how.flush_outputs) s += " --flush-outputs";
    add("--language", given.language);
    add("--as", given.form == "function" ? "" : given.form);
    return s;
}

emit::converter converter_of(const emit_arguments& given) {
    const quantize_options& how = given.what.how;
    emit::converter c;
    c.format = format_of(how);
    c.how = qk::tool::semantics_of(how);
    c.name = identifier(how.format.substr(0, how.format.find('@')));
    c.input = input_format_of(given.what.input);
    c.decode = given.what.decode;
    const conversion one = resolve(how, {1, std::max(1, block_size(c.format))}, "the stream");  // checks scale and zero point
    if (!how.scale.empty()) {
        int exponent = 0;
        if (one.scale.empty() || std::frexp(one.scale[0], &exponent) != 0.5f || exponent > 1)
            throw error(fmt::format("--scale {}: a quotient by that needs a division; give a power of two up to 1, as --scale {}",
                                    how.scale, 0.0078125));
        c.scale_exponent = exponent - 1;
        if (c.scale_exponent != 0 && !is_integer_format(c.format))
            throw error("--scale is for integers here; leave it out, and scale the numbers before");
    }
    if (!one.zero_point.empty()) c.zero_point = one.zero_point[0];
    return c;
}

emit::multiplier multiplier_of(const emit_arguments& given) {
    const qk::tool::multiplier by =
        qk::tool::multiplier_of(given.what.device, given.what.accumulator, given.what.a_format, given.what.b_format);
    return {by.a,
            by.b,
            by.how,
            static_cast<int>(terms_of(given.what, by)),
            given.what.device.empty() ? "unit" : identifier(by.name),
            given.what.c_format != "none"};
}

/// Fills in the golden vectors: their digest, and cases spread over them.
void add_golden_vectors(const emit_arguments& given, emit::file_request& r) {
    const auto kind = case_kind_of(given.what);
    std::string lines;
    std::vector<emit::example> all;
    kind->generate("1", given.what.how.seed.value_or(0), [&](const hex_row& asked) {
        const hex_row right = kind->expected(asked);
        const std::size_t n = kind->operands.size(), m = kind->results.size();
        kind->before += asked.size() / n;
        for (std::size_t k = 0; k < asked.size() / n; ++k) {
            const auto operands = std::span(asked).subspan(k * n, n), results = std::span(right).subspan(k * m, m);
            lines += hex_words(operands, kind->operands) + " " + hex_words(results, kind->results) + "\n";
            all.push_back({{operands.begin(), operands.end()}, {results.begin(), results.end()}, all.size()});
        }
    });
    r.digest = emit::sha_256(lines);
    const std::size_t count = std::min<std::size_t>(64, all.size());
    for (std::size_t k = 0; k < count; ++k) r.examples.push_back(all[k * all.size() / count]);
}

/// Fills in the bins of `qk cover`.
void add_bins(const emit_arguments& given, emit::file_request& r) {
    const auto kind = case_kind_of(given.what);
    const covered_bins bins = kind->bins();
    for (const compare::bin& b : bins.all()) r.bins.push_back({b, name_of(b), compare::name_of(b.kind)});
}

void write_emitted(const emit_arguments& given) {
    if (given.what.how.format.empty() && !is_sum(given))
        throw error("say what is emitted: a FORMAT, --device NAME or --accumulator TEXT; `qk formats` lists formats and devices");
    if (!given.what.how.format.empty() && is_sum(given))
        throw error("--device and --accumulator have formats of their own; leave out FORMAT");
    emit::file_request r;
    if (is_sum(given)) r.what = multiplier_of(given);
    else r.what = converter_of(given);
    r.language = given.language == "c"    ? emit::language::c
                 : given.language == "sv" ? emit::language::system_verilog
                                          : emit::language::python;
    r.form = given.form == "check"      ? emit::form::check
             : given.form == "miter"    ? emit::form::miter
             : given.form == "coverage" ? emit::form::coverage
                                        : emit::form::function;
    r.command = command_of(given);
    r.version = QK_VERSION;
    graph::output_set outputs(given.overwrite);
    const bool to_file = !given.output.empty() && given.output != "-";
    if (to_file) outputs.output("-o", given.output);
    const bool has_scripts = r.form == emit::form::miter && r.language == emit::language::system_verilog && to_file;
    const std::filesystem::path script = std::filesystem::path(given.output).replace_extension(".ys"),
                                sby = std::filesystem::path(given.output).replace_extension(".sby");
    if (has_scripts) outputs.output("-o", script).output("-o", sby);
    std::string text;
    try {
        r.digest = std::string(64, '0');
        emit::file_of(r);  // refuses before the work
        add_golden_vectors(given, r);
        if (r.form == emit::form::coverage) add_bins(given, r);
        text = emit::file_of(r);
    } catch (const std::invalid_argument& e) {
        const std::string what = !given.what.device.empty() ? given.what.device
                                 : is_sum(given)            ? "this accumulator"
                                                            : given.what.how.format;
        throw error(fmt::format("{}: {}", what, e.what()));
    }
    if (!to_file) return qk::tool::detail::put(stdout, text);
    outputs.write(given.output, text);
    const std::string file = std::filesystem::path(given.output).filename().string();
    if (has_scripts) outputs.write(script, emit::yosys_script(r, file)), outputs.write(sby, emit::symbiyosys_script(r, file));
    outputs.commit();
}

}  // namespace

void add_emit(command& app, verb_result&) {
    auto given = std::make_shared<emit_arguments>();
    option_table& verb =
        app.add_subcommand("emit", "Write a converter or a device as a C, SystemVerilog or Python file that needs nothing of qk");
    using enum input_kind;
    verb.takes(format | decoder | device, [given]() -> given_input {
        if (is_sum(*given))
            return {device, given->what.device.empty() ? "--accumulator is for a unit that adds" : "--device is for a unit that adds"};
        return given->what.decode ? given_input{decoder, "--decode is for a decoder"}
                                  : given_input{format, "without --decode this is a converter"};
    });
    verb.add_option("FORMAT", given->what.how.format, "what is converted to, or from (`qk formats` lists them)")
        .type_name("F")
        .only_for(format | decoder);
    verb.add_option("--language", given->language, "c (C99 without floats), sv (SystemVerilog) or python")
        .one_of({"c", "sv", "python"})
        .required()
        .common();
    verb.add_option("--as", given->form,
                    "function (default): the functions alone; check: with a program that reads lines of `qk gen`; miter: with a module "
                    "that compares a device, and FILE.ys and FILE.sby beside it; coverage: with counters of the bins of `qk cover`")
        .type_name("FORM")
        .one_of({"function", "check", "miter", "coverage"})
        .common();
    verb.add_option("-o,--output", given->output, "the file (default: standard output)").type_name("FILE").common().writes();
    verb.add_flag("--decode", given->what.decode, "a decoder: codes in, float32 out").common();
    add_sum_options(verb, given->what);
    add_c_option(verb, given->what);
    verb.add_option("--input", given->what.input, "what a converter is given: fp32 (default), fp16 or bf16")
        .type_name("F")
        .only_for(format);
    verb.only_for(format | decoder);
    verb.add_option("--scale", given->what.how.scale, "integers: a power of two up to 1 (default 1)").type_name("X");
    verb.add_option("--zero-point", given->what.how.zero_point, "integers: the zero point (default 0)").type_name("N");
    verb.only_for(format);
    add_format_options(verb, given->what.how);
    verb.at("--seed").also_for(device);
    verb.only_for({});
    verb.at("--format").only_for({});
    add_overwrite(verb, given->overwrite);
    verb.footer(
        "A check ends with 0, or with 1 where a result differs, and appends results to lines that have none. The same command\n"
        "writes the same bytes.\n\nExamples:\n"
        "  qk emit fp8_e5m2 --language sv\n"
        "  qk emit fp8_e4m3fn --overflow ieee --language c --as check -o golden.c\n"
        "  qk emit int8 --scale 0.0625 --zero-point 3 --language python -o golden.py\n"
        "  qk emit --device nvidia.hopper.wgmma.f32.e4m3.e4m3 --language c --as check -o golden.c\n"
        "  qk emit fp8_e5m2 --language sv --as coverage -o coverage.sv");
    verb.callback([given] { write_emitted(*given); });
}

}  // namespace qk::tool
