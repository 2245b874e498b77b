// SPDX-License-Identifier: Apache-2.0
// `qk vectors`: test vectors for a converter in hardware, with the results that the format prescribes.
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <cstring>
#include <filesystem>
#include <memory>

#include "hardware/dot_case.hpp"
#include "hardware/streams.hpp"
#include "qk/dot/text.hpp"
#include "qk/formats/parse.hpp"
#include "qk/graph/files.hpp"
#include "qk/option_names.hpp"
#include "support/console.hpp"
#include "support/declared.hpp"
#include "support/packed_file.hpp"
#include "verbs.hpp"

namespace qk::tool {
namespace {

/// 64-bit FNV-1a: enough to tell two sets of vectors apart.
std::string hash_of(std::span<const std::byte> bytes) {
    std::uint64_t h = 0xcbf29ce484222325u;
    for (const std::byte b : bytes) h = (h ^ std::to_integer<std::uint64_t>(b)) * 0x100000001b3u;
    return fmt::format("{:016x}", h);
}

/// Writes one hexadecimal word per line, for $readmemh.
std::string hex_lines(std::span<const float> values) {
    std::string s;
    for (const float v : values) fmt::format_to(std::back_inserter(s), "{:08x}\n", std::bit_cast<std::uint32_t>(v));
    return s;
}
std::string hex_codes(std::span<const std::byte> plane, std::size_t count, int width) {
    std::string s;
    for (std::size_t i = 0; i < count; ++i) fmt::format_to(std::back_inserter(s), "{:0{}x}\n", get_code(plane, i, width), (width + 3) / 4);
    return s;
}

struct vectors_arguments {
    std::string folder;
    stream_options sums;  ///< device, accumulator with its formats, and k
    quantize_options how;
    bool json = false, overwrite = false;
};

/// Writes all files or none, with a manifest that lists them, and prints `what` they hold.
void write_files(const vectors_arguments& given, std::vector<std::pair<std::string, std::string>> files, nlohmann::ordered_json manifest,
                 const std::string& what) {
    manifest["files"] = nlohmann::ordered_json::array();
    for (const auto& f : files) manifest["files"].push_back(f.first);
    files.emplace_back("manifest.json", graph::json_text(manifest, 2) + "\n");
    graph::output_set outputs(given.overwrite);
    outputs.folder("--out", given.folder);
    for (const auto& f : files) outputs.output("--out", std::filesystem::path(given.folder) / f.first);
    for (const auto& [name, content] : files) outputs.write(std::filesystem::path(given.folder) / name, content);
    outputs.commit();
    if (given.json) return print_json(manifest);
    print(stderr, "{} in {}\n", what, given.folder);
}

/// Writes an array of codes in hexadecimal, one per line.
std::string hex_array(const graph::tensor& t) {
    std::string s;
    const std::size_t size = graph::size_of(t.type());
    for (std::size_t i = 0; i < t.size(); ++i) {
        std::uint64_t code = 0;
        std::memcpy(&code, t.bytes() + i * size, size);
        fmt::format_to(std::back_inserter(s), "{:0{}x}\n", code, 2 * size);
    }
    return s;
}

/// Returns the cases of `qk gen --level 1`, each with its result, a line each.
std::string lines_with_results(const case_kind& kind, std::uint64_t seed) {
    std::string lines;
    const std::size_t n = kind.operands.size();
    kind.generate("1", seed, [&](const hex_row& cases) {
        const hex_row right = kind.expected(cases);
        for (std::size_t at = 0; at < right.size(); ++at)
            lines += hex_words(std::span(cases).subspan(at * n, n), kind.operands) + " " +
                     hex_words(std::span(right).subspan(at, 1), kind.results) + "\n";
    });
    return lines;
}

/// Writes a case of 64 rows and 64 columns for a device, its k twice that of one instruction, with the results; and lines of `qk gen`.
void write_dot_vectors(const vectors_arguments& given) {
    const multiplier by = multiplier_of(given.sums.device, given.sums.accumulator, given.sums.a_format, given.sums.b_format);
    const auto kind = case_kind_of(given.sums);
    const auto seed = given.how.seed.value_or(0);
    constexpr std::size_t rows = 64, columns = 64;
    const std::size_t k = terms_of(given.sums, by);
    std::vector<graph::named_tensor> arrays = make_case(by, rows, columns, k, seed);
    if (given.sums.c_format == "none") {  // case.npz holds zeros that change no sum
        const std::uint64_t none =
            compare::no_addend({.a = by.a, .b = by.b, .k = k, .c = by.how.addend, .has_c = false, .d_bits = result_bits(by.how)});
        for (graph::named_tensor& t : arrays)
            if (t.name == "c") t.value = codes_tensor(std::vector<std::uint64_t>(rows * columns, none), rows, columns, addend_bits(by.how));
    }
    arrays.push_back({"d", codes_tensor(multiply(case_of(arrays, "the vectors", by), by), rows, columns, result_bits(by.how))});
    std::vector<std::pair<std::string, std::string>> files;
    std::vector<graph::zip_entry> entries;
    nlohmann::ordered_json layout;
    for (const graph::named_tensor& t : arrays) {
        entries.push_back({t.name + ".npy", graph::to_npy(t.value)});
        files.emplace_back(t.name + ".hex", hex_array(t.value));
        layout[t.name] = {{"shape", t.value.shape()}, {"type", name_of(t.value.type())}};
    }
    files.emplace_back("case.npz", graph::zip(entries, "the vectors"));
    const std::string hash = hash_of(std::as_bytes(std::span(files.back().second)));
    files.emplace_back("cases.hex", lines_with_results(*kind, seed));
    const nlohmann::ordered_json manifest{
        {"device", by.name}, {"accumulator", std::string(to_text(by.how).view())}, {"seed", seed}, {"count", rows * columns}, {"k", k},
        {"arrays", layout},  {"hash", {{"algorithm", "fnv1a64"}, {"case", hash}}}};
    write_files(given, std::move(files), manifest, fmt::format("{} dot products of {} for {}", rows * columns, k, by.name));
}

void write_vectors(const vectors_arguments& given) {
    if (!given.how.scales.empty()) throw graph::error("vectors are made for one scale; give --scale instead of --scales");
    const qk::format format = format_of(given.how);
    const auto seed = given.how.seed.value_or(0);
    // The scale decides where ties lie, so it is resolved first; the number of values then gives the shape.
    const std::vector<float> x = compare::converter_cases(resolve(given.how, {1}, "the vectors"), seed);
    const auto block = static_cast<std::int64_t>(block_size(format));
    const auto count = static_cast<std::int64_t>(x.size());
    const graph::dims shape = block > 0 ? graph::dims{count / block, block} : graph::dims{count};
    const conversion c = resolve(given.how, shape, "the vectors");
    const graph::tensor input = graph::make_tensor<float>(shape, x);
    graph::tensor expected(graph::data_type::float32, shape);
    expected_values(c, x, expected.as<float>());

    std::vector<std::pair<std::string, std::string>> files{{"input.npy", graph::to_npy(input)},
                                                           {"expected.npy", graph::to_npy(expected)},
                                                           {"input.hex", hex_lines(x)},
                                                           {"expected.hex", hex_lines(expected.as<float>())}};
    nlohmann::ordered_json layout = nullptr;
    std::string csv = "index,input,expected,input_bits,expected_bits,code\n";
    const packed_layout l = layout_of(c, x.size());
    packed_tensor packed;
    const bool has_codes = encodable(c.format, c.how);
    if (has_codes) {
        packed = pack(c, input);
        const const_planes planes = planes_of(l, std::span<const std::byte>(packed.bytes));
        files.emplace_back("elements.hex", hex_codes(planes.elements, l.elements.count, l.elements.bits));
        if (l.scales.count != 0) files.emplace_back("scales.hex", hex_codes(planes.scales, l.scales.count, l.scales.bits));
        if (l.shifts.count != 0) files.emplace_back("shifts.hex", hex_codes(planes.shifts, l.shifts.count, l.shifts.bits));
        if (l.tensor.count != 0) files.emplace_back("tensor_scale.hex", hex_codes(planes.tensor, 1, 32));
        files.emplace_back("packed.npz", to_archive(packed));
        layout = {
            {"version", layout_version}, {"element_bits", l.elements.bits}, {"scale_bits", l.scales.bits}, {"shift_bits", l.shifts.bits}};
    }
    for (std::size_t i = 0; i < x.size(); ++i) {
        const float y = expected.as<float>()[i];
        fmt::format_to(std::back_inserter(csv), "{},{:a},{:a},{:08x},{:08x},", i, x[i], y, std::bit_cast<std::uint32_t>(x[i]),
                       std::bit_cast<std::uint32_t>(y));
        if (has_codes)
            fmt::format_to(std::back_inserter(csv), "{:x}",
                           get_code(planes_of(l, std::span<const std::byte>(packed.bytes)).elements, i, l.elements.bits));
        csv += '\n';
    }
    files.emplace_back("vectors.csv", csv);
    const affine one = c.one();
    const nlohmann::ordered_json manifest{{"format", std::string(to_text(format).view())},
                                          {"semantics", given.how.semantics},
                                          {"rounding", std::string(to_text(c.how.rounding))},
                                          {"scale_rule", std::string(to_text(c.how.scale_rule))},
                                          {"overflow", given.how.overflow.empty() ? "as the semantics" : given.how.overflow},
                                          {"integer_mode", std::string(to_text(c.how.integer_mode))},
                                          {"scale", one.scale},
                                          {"zero_point", one.zero_point},
                                          {"flush_inputs", c.how.flush_inputs},
                                          {"flush_outputs", c.how.flush_outputs},
                                          {"seed", seed},
                                          {"count", x.size()},
                                          {"shape", shape},
                                          {"block_size", block},
                                          {"layout", layout},
                                          {"hash",
                                           {{"algorithm", "fnv1a64"},
                                            {"input", hash_of(std::as_bytes(std::span(x)))},
                                            {"expected", hash_of(std::as_bytes(expected.as<float>()))}}}};
    write_files(given, std::move(files), manifest, fmt::format("{} vectors for {}", x.size(), to_text(format).view()));
}

}  // namespace

void add_vectors(command& app, verb_result&) {
    auto given = std::make_shared<vectors_arguments>();
    option_table& verb = app.add_subcommand("vectors", "Write test vectors for a converter: inputs and what the format makes of them");
    verb.takes(input_kind::format | input_kind::device, [given]() -> given_input {
        if (!given->sums.device.empty()) return {input_kind::device, "--device names a device, which has formats of its own"};
        if (!given->sums.accumulator.empty()) return {input_kind::device, "--accumulator multiplies --a-format and --b-format"};
        return {input_kind::format, "vectors of a format are for a converter"};
    });
    verb.add_option("-o,--out", given->folder,
                    "folder for input and expected (.npy, .hex for $readmemh), codes, vectors.csv, manifest.json")
        .required()
        .type_name("DIR")
        .common();
    add_sum_options(verb, given->sums);
    add_c_option(verb, given->sums);
    verb.only_for(input_kind::format);
    add_format_options(verb, given->how);
    verb.at("--seed").only_for({});
    verb.add_option("--scale", given->how.scale, "one scale for the tensor (default 1; nvfp4: from the data)").type_name("X").common();
    verb.add_option("--zero-point", given->how.zero_point, "one zero point for the tensor (default 0)").type_name("N").common();
    verb.only_for({});
    add_overwrite(verb, given->overwrite);
    verb.add_flag("--json", given->json, "print the manifest");
    verb.footer(
        "Every code, every tie and its two neighbours, every boundary of every binade, special values, random blocks.\n\nExamples:\n"
        "  qk vectors --format fp8_e4m3fn --out vectors\n"
        "  qk vectors --format bfp16 --rounding half-away --out vectors --seed 7\n"
        "  qk vectors --device nvidia.hopper.wgmma.f32.e4m3.e4m3 --out vectors\n"
        "  qk vectors --accumulator sum=sequential --a-format fp16 --b-format fp16 --k 4 --out vectors");
    verb.callback(
        [given] { given->sums.device.empty() && given->sums.accumulator.empty() ? write_vectors(*given) : write_dot_vectors(*given); });
}

}  // namespace qk::tool
