// SPDX-License-Identifier: Apache-2.0
// `qk compare`: compares a device's results with what the format prescribes.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <sstream>

#include "hardware/compare_dot.hpp"
#include "hardware/streams.hpp"
#include "qk/compare/compare.hpp"
#include "qk/formats/parse.hpp"
#include "qk/graph/files.hpp"
#include "support/checkpoints.hpp"
#include "support/console.hpp"
#include "support/flags_json.hpp"
#include "support/packed_file.hpp"
#include "verbs.hpp"

namespace qk::tool {
namespace {

using compare::cause;
using compare::difference;
using compare::difference_class;
using compare::example;
using compare::location;

struct compare_arguments {
    std::string input, device;
    quantize_options how;
    bool packed = false, json = false;
    compare_dot_options dot;
};

bool is_hex(const std::string& file) { return file.ends_with(".hex") || file.ends_with(".mem"); }

/// Reads a file of hexadecimal words, and how many digits the first has.
std::pair<hex_row, std::size_t> read_hex(const std::string& file) {
    std::istringstream text(graph::read_file(file));
    hex_row all;
    std::size_t digits = 0, number = 1;
    for (std::string line; std::getline(text, line); ++number) {
        hex_row here;
        try {
            here = words_of_line(line);
        } catch (const graph::error& e) {
            throw graph::error(fmt::format("{}, line {}: {}", file, number, e.what()));
        }
        if (all.empty() && !here.empty())
            digits = line.find_first_of(" \t\r/", line.find_first_not_of(" \t")) - line.find_first_not_of(" \t");
        if (all.empty() && !here.empty() && digits > line.size()) digits = line.size() - line.find_first_not_of(" \t");
        all.insert(all.end(), here.begin(), here.end());
    }
    if (std::ranges::find(all, no_number) != all.end()) throw graph::error(file + " has words that are no numbers (x or z)");
    return {std::move(all), digits};
}
graph::tensor floats_of(const hex_row& w, graph::dims shape) {
    std::vector<float> x;
    for (const std::uint64_t v : w) x.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(v)));
    return graph::make_tensor<float>(std::move(shape), x);
}
/// Reads what the device was given: a .npy, or words of float32, in rows of a block each.
graph::tensor read_input(const compare_arguments& given) {
    if (!is_hex(given.input)) return float_tensor(graph::read_npy(given.input), given.input);
    const auto [w, digits] = read_hex(given.input);
    const auto block = static_cast<std::int64_t>(std::max(1, block_size(format_of(given.how)))), n = static_cast<std::int64_t>(w.size());
    if (digits != 8 || n == 0 || n % block != 0)
        throw graph::error(fmt::format("{} has {} words of {} digits; INPUT has float32 words of 8 digits, whole blocks of {}", given.input,
                                       n, digits, block));
    return floats_of(w, block == 1 ? graph::dims{n} : graph::dims{n / block, block});
}
/// Reads float32 words of 8 digits, or codes in the order of `qk gen`: of a block its elements, then its scale.
graph::tensor read_hex_device(const compare_arguments& given, const graph::tensor& x) {
    const auto [w, digits] = read_hex(given.device);
    if (digits == 8 && w.size() == x.size()) return floats_of(w, x.shape());
    stream_options codes;
    codes.how = given.how;
    codes.decode = true;
    const auto decoder = case_kind_of(codes);
    const std::size_t each = decoder->operands.size(), cases = x.size() / decoder->results.size();
    if (w.size() != cases * each)
        throw graph::error(fmt::format("{} has {} words; for {} values it has as many words of 8 digits, or {} codes ({} for each {})",
                                       given.device, w.size(), x.size(), cases * each, each,
                                       decoder->results.size() == 1 ? "value" : "block"));
    return floats_of(decoder->expected(w), x.shape());
}

/// Reads the device's numbers: a .npy of floats, a packed .npz, or the planes one after the other (raw, or as a uint8 .npy).
graph::tensor read_device(const compare_arguments& given, const conversion& c, const graph::tensor& x) {
    if (is_hex(given.device)) return read_hex_device(given, x);
    const std::string bytes = graph::read_file(given.device);
    if (is_archive(bytes)) {
        const packed_tensor p = from_archive(bytes, given.device);
        if (p.how.format != c.format)
            throw graph::error(fmt::format("{} holds {}, not {}", given.device, to_text(p.how.format).view(), to_text(c.format).view()));
        return unpack(p);
    }
    const bool is_npy = bytes.starts_with("\x93NUMPY");
    if (!is_npy && !given.packed)
        throw graph::error(given.device +
                           " is neither .npy nor a packed .npz; say --packed if it is raw planes (docs/reference/layouts.md)");
    graph::tensor t;
    std::span<const std::byte> planes = std::as_bytes(std::span(bytes));
    if (is_npy) {
        t = graph::parse_npy(bytes, given.device);
        if (!given.packed) return float_tensor(std::move(t), given.device);
        if (t.type() != graph::data_type::uint8)
            throw graph::error(fmt::format("{} holds {}; packed planes are uint8", given.device, name_of(t.type())));
        planes = {t.bytes(), t.size()};
    }
    packed_tensor p{c, x.shape(), {planes.begin(), planes.end()}};
    const std::size_t needed = layout_of(c, x.size()).bytes();
    if (p.bytes.size() != needed) {
        throw graph::error(fmt::format("{} has {} bytes; format {} of shape {} packs into {} (docs/reference/layouts.md)", given.device,
                                       p.bytes.size(), to_text(c.format).view(), graph::to_string(x.shape()), needed));
    }
    return unpack(p);
}

std::string position(std::size_t index, const graph::dims& shape) {
    std::string s;
    for (std::size_t k = shape.size(); k-- > 0;) {
        const auto d = static_cast<std::size_t>(shape[k]);
        s = std::to_string(index % d) + (s.empty() ? "" : ",") + s;
        index /= d;
    }
    return "[" + s + "]";
}

void print_report(const compare::report& r, const graph::dims& shape) {
    if (r.mismatches != 0) {
        fmt::print("{}", to_text(r));
    } else {
        fmt::print("{} values, 0 differ", r.values);
        if (r.coverage.blocks != 0) fmt::print(" in 0 of {} blocks", r.coverage.blocks);
        fmt::print("\n");
    }
    for (int k = 0; k < static_cast<int>(difference::count); ++k) {
        const difference_class& d = r.classes[static_cast<std::size_t>(k)];
        if (d.count == 0) continue;
        fmt::print("\n{}: {} ({})\n", name_of(static_cast<difference>(k)), d.count, meaning_of(static_cast<difference>(k)));
        for (const example& e : d.examples) {
            const auto code = [](const std::string& text) { return text.empty() ? std::string() : " (" + text + ")"; };
            fmt::print("  {} input {:a} expected {:a}{} device {:a}{}\n", position(e.index, shape), e.input, e.expected,
                       code(e.expected_code), e.device, code(e.device_code));
        }
    }
    const compare::input_coverage& c = r.coverage;
    fmt::print(
        "\nthe input exercised: {} binades, {} ties, {} exact values, {} negative, {} overflows, {} underflows,\n"
        "  {} subnormal, +0 {} times, -0 {} times, Inf {}, NaN {}",
        c.binades, c.ties, c.exact, c.negative, c.overflow, c.underflow, c.subnormal, c.positive_zero, c.negative_zero, c.infinite, c.nan);
    if (c.blocks != 0) fmt::print(", {} blocks with {} different scales", c.blocks, c.scales);
    fmt::print("\n");
}

nlohmann::ordered_json cause_json(const cause& k) {
    return {{"sentence", k.sentence}, {"where", to_text(k.where)}, {"only_there", k.restricted},
            {"explains", k.explains}, {"alone", k.alone},          {"keeps", k.keeps},
            {"makes", k.makes}};
}

nlohmann::ordered_json as_json(const compare::report& r) {
    nlohmann::ordered_json classes = nlohmann::ordered_json::object(), causes = nlohmann::ordered_json::array();
    for (int k = 0; k < static_cast<int>(difference::count); ++k) {
        const difference_class& d = r.classes[static_cast<std::size_t>(k)];
        if (d.count == 0) continue;
        nlohmann::ordered_json examples = nlohmann::ordered_json::array();
        for (const example& e : d.examples) {
            examples.push_back({{"index", e.index},
                                {"input", fmt::format("{:a}", e.input)},
                                {"expected", fmt::format("{:a}", e.expected)},
                                {"device", fmt::format("{:a}", e.device)},
                                {"expected_code", e.expected_code},
                                {"device_code", e.device_code}});
        }
        classes[name_of(static_cast<difference>(k))] = {
            {"count", d.count}, {"meaning", meaning_of(static_cast<difference>(k))}, {"examples", examples}};
    }
    for (const cause& k : r.causes) causes.push_back(cause_json(k));
    nlohmann::ordered_json where = nlohmann::ordered_json::array();
    for (const location& w : r.where)
        where.push_back({{"words", w.words.empty() ? "everywhere" : w.words}, {"values", w.values}, {"differences", w.differences}});
    const compare::input_coverage& c = r.coverage;
    return {{"values", r.values},
            {"mismatches", r.mismatches},
            {"blocks_touched", r.blocks_touched},
            {"classes", classes},
            {"coverage",
             {{"binades", c.binades},
              {"ties", c.ties},
              {"exact", c.exact},
              {"negative", c.negative},
              {"overflow", c.overflow},
              {"underflow", c.underflow},
              {"subnormal", c.subnormal},
              {"positive_zero", c.positive_zero},
              {"negative_zero", c.negative_zero},
              {"infinite", c.infinite},
              {"nan", c.nan},
              {"blocks", c.blocks},
              {"scales", c.scales}}},
            {"cause", r.causes.empty() ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(r.causes.front().sentence)},
            {"causes", causes},
            {"unexplained", r.unexplained},
            {"alternatives", r.alternatives},
            {"nearest", r.nearest ? cause_json(*r.nearest) : nlohmann::ordered_json(nullptr)},
            {"where", where},
            {"flags", json_of(r.flags)}};
}

}  // namespace

void add_compare(command& app, verb_result& result) {
    auto given = std::make_shared<compare_arguments>();
    option_table& verb =
        app.add_subcommand("compare", "Compare what a device gave with what the format says, and guess the cause of every difference");
    verb.add_option("INPUT", given->input,
                    "float32 or float16 .npy that the device was given, or .hex of float32 words; with --dot a case .npz; or a checkpoint "
                    "(.safetensors, the index.json of its shards, .gguf) to compare with another, tensor by tensor")
        .reads();
    verb.add_option("DEVICE", given->device,
                    "what it gave: .npy of the same shape, a packed .npz, .hex (float32 words, or codes as `qk gen` orders them), or with "
                    "--packed raw planes")
        .reads();
    verb.add_flag("--packed", given->packed,
                  "DEVICE holds the planes of docs/reference/layouts.md one after the other (raw bytes or uint8 .npy)")
        .common();
    add_format_options(verb, given->how);
    add_scale_options(verb, given->how);
    verb.add_flag("--json", given->json, "one JSON object on standard output").common();
    verb.section("A device that multiplies and adds");
    verb.add_flag("--dot", given->dot.asked, "find its accumulator: order, alignment, rounding, width");
    verb.add_option("--command", given->dot.command,
                    "a device to ask, called as `CMD CASE.npz OUT.npz`: codes a [m,k], b [k,n], c [m,n] in, d [m,n] out");
    verb.add_option("--a-format", given->dot.a_format, "format of the first operand");
    verb.add_option("--b-format", given->dot.b_format, "format of the second operand");
    verb.add_option("--c-format", given->dot.c_format, "format of C: fp32, fp16 or bf16 (default fp32; integers have 32 bits)");
    verb.add_option("--k", given->dot.k, "terms of each sum that the device is asked for (default 64)");
    verb.add_option("--questions", given->dot.questions, "at most so many elements of d (default 10000)");
    verb.add_option("--accumulator", given->dot.expected, "the accumulator or device that is expected; exit status 1 if it is another");
    verb.footer(
        "The listing opens with the likely causes: mistakes of a converter which, alone or up to four together, explain at least four\n"
        "fifths of the differences and make none; then where the differences are, then examples. --json: `causes` (each `sentence`,\n"
        "`where`, `explains`, `alone`), `unexplained` (differences that they leave), `nearest` where none is found, `where`, `flags`.\n"
        "Exit status 1 if any value differs; NaN equals NaN, zeros compare with their sign.\n\nExamples:\n"
        "  qk compare x.npy device.npy --format mxfp8_e4m3\n"
        "  qk compare x.npy device.npy --format bfp16 --axis 1 --rounding half-away\n"
        "  qk compare x.npy device.bin --packed --format mxfp4 --json\n"
        "  qk compare a.safetensors b.gguf\n"
        "  qk compare --dot --command './device' --a-format fp8_e4m3fn --b-format fp8_e4m3fn\n"
        "  qk compare --dot case.npz --a-format fp16 --b-format fp16");
    verb.callback([given, &result] {
        if (given->dot.asked) {
            given->dot.file = given->input;
            given->dot.json = given->json;
            if (!compare_dot(given->dot)) result.status = status::failed;
            return;
        }
        if (given->input.empty() || given->device.empty())
            throw graph::error(
                "compare needs INPUT.npy, which the device was given, and DEVICE, what it gave; `qk compare --help` has examples");
        if (is_checkpoint(given->input) || is_checkpoint(given->device)) {
            if (!compare_checkpoints(given->input, given->device, given->json)) result.status = status::failed;
            return;
        }
        format_of(given->how);
        semantics_of(given->how);
        const graph::tensor x = read_input(*given);
        const conversion c = resolve(given->how, x.shape(), given->input);
        const graph::tensor device = read_device(*given, c, x);
        if (device.shape() != x.shape()) {
            throw graph::error(fmt::format("{} has shape {} and {} {}; they must be the same", given->input, graph::to_string(x.shape()),
                                           given->device, graph::to_string(device.shape())));
        }
        const compare::report r = compare::examine(c, x.shape(), x.as<float>(), device.as<float>());
        if (given->json) print_json(as_json(r));
        else print_report(r, x.shape());
        if (r.mismatches != 0) result.status = status::failed;
    });
}

}  // namespace qk::tool
