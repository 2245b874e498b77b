// SPDX-License-Identifier: Apache-2.0
// `qk compare`: compares a device's results with what the format prescribes.
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <memory>
#include <optional>
#include <sstream>
#include <type_traits>

#include "hardware/compare_dot.hpp"
#include "hardware/streams.hpp"
#include "hardware/system_hypotheses.hpp"
#include "qk/compare/compare.hpp"
#include "qk/compare/randomness.hpp"
#include "qk/formats/parse.hpp"
#include "qk/graph/files.hpp"
#include "support/caller.hpp"
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
    std::string input_format = "fp32";
    bool packed = false, decode = false, json = false;
    std::vector<std::string> without;
    std::string where;
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
/// Reads what the device was given: a .npy, or words of --input, in rows of a block each.
graph::tensor read_input(const compare_arguments& given) {
    if (!is_hex(given.input)) return float_tensor(graph::read_npy(given.input), given.input);
    auto [w, digits] = read_hex(given.input);
    const floating of = input_format_of(given.input_format);
    const auto most = static_cast<std::size_t>(bits(of) / 4);
    const auto block = static_cast<std::int64_t>(std::max(1, block_size(format_of(given.how)))), n = static_cast<std::int64_t>(w.size());
    if (digits != most || n == 0 || n % block != 0)
        throw graph::error(fmt::format("{} has {} words of {} digits; INPUT has words of {} digits (--input {}), whole blocks of {}",
                                       given.input, n, digits, most, given.input_format, block));
    for (std::uint64_t& v : w) v = std::bit_cast<std::uint32_t>(value_of(of, static_cast<std::uint32_t>(v)));
    return floats_of(w, block == 1 ? graph::dims{n} : graph::dims{n / block, block});
}
/// Returns the elements of an array of whole numbers as words; nothing if it holds floats.
std::optional<hex_row> words_of_array(const graph::tensor& t) {
    const auto copy = [&]<class T>(T) {
        hex_row w;
        for (const T v : t.as<T>()) w.push_back(static_cast<std::make_unsigned_t<T>>(v));
        return w;
    };
    switch (t.type()) {
        case graph::data_type::uint8: return copy(std::uint8_t{});
        case graph::data_type::int8: return copy(std::int8_t{});
        case graph::data_type::uint16: return copy(std::uint16_t{});
        case graph::data_type::uint32: return copy(std::uint32_t{});
        default: return std::nullopt;
    }
}
/// Makes values of codes in the order of `qk gen`: of a block its elements, then its scale.
graph::tensor values_of_codes(const compare_arguments& given, const conversion& c, const hex_row& w, const graph::tensor& x) {
    const auto block = static_cast<std::size_t>(block_size(c.format));
    if (block != 0 && (c.blocks.inner != 1 || c.blocks.length % block != 0))
        throw graph::error(
            fmt::format("{}: codes of blocks stand block after block, so blocks are whole and along the last axis; "
                        "--packed reads planes of any axis",
                        given.device));
    stream_options codes;
    codes.how = given.how;
    codes.decode = true;
    const auto decoder = case_kind_of(codes);
    const std::size_t each = decoder->operands.size(), cases = x.size() / decoder->results.size();
    if (w.size() != cases * each)
        throw graph::error(fmt::format("{} has {} words; for {} values it has as many float32 words, or {} codes ({} for each {})",
                                       given.device, w.size(), x.size(), cases * each, each,
                                       decoder->results.size() == 1 ? "value" : "block"));
    return floats_of(decoder->expected(w), x.shape());
}
graph::tensor read_hex_device(const compare_arguments& given, const conversion& c, const graph::tensor& x) {
    const auto [w, digits] = read_hex(given.device);
    return digits == 8 && w.size() == x.size() ? floats_of(w, x.shape()) : values_of_codes(given, c, w, x);
}

/// Reads what a decoder was given and gave, and compares: codes as words or as an array of whole numbers, values as float32.
std::pair<compare::report, graph::dims> examine_decoder(const compare_arguments& given) {
    const auto codes_in = [&]() -> hex_row {
        if (is_hex(given.input)) return read_hex(given.input).first;
        const graph::tensor t = graph::read_npy(given.input);
        if (auto w = words_of_array(t)) return *w;
        throw graph::error(
            fmt::format("{} holds {}; with --decode INPUT has codes: uint8, uint16, uint32 or .hex", given.input, name_of(t.type())));
    };
    const auto [c, codes] = coded_values_of(given.how, codes_in(), given.input);
    const std::size_t n = codes.elements.size();
    const graph::dims shape{static_cast<std::int64_t>(c.blocks.outer), static_cast<std::int64_t>(c.blocks.length)};
    const auto values_in = [&] {
        if (!is_hex(given.device)) return float_tensor(graph::read_npy(given.device), given.device);
        const auto [w, digits] = read_hex(given.device);
        if (digits != 8)
            throw graph::error(fmt::format("{} has words of {} digits; a decoder gives float32, 8 digits", given.device, digits));
        return floats_of(w, {static_cast<std::int64_t>(w.size())});
    };
    const graph::tensor y = values_in();
    if (y.size() != n)
        throw graph::error(
            fmt::format("{} has {} values, and {} has {} codes; a decoder gives a value for each", given.device, y.size(), given.input, n));
    return {compare::examine_decoder(c, codes, y.as<float>()),
            block_size(c.format) != 0 ? shape : graph::dims{static_cast<std::int64_t>(n)}};
}

/// Reads the device's numbers: a .npy of floats, a packed .npz, or the planes one after the other (raw, or as a uint8 .npy).
graph::tensor read_device(const compare_arguments& given, const conversion& c, const graph::tensor& x) {
    if (is_hex(given.device)) return read_hex_device(given, c, x);
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
        if (const auto w = given.packed ? std::nullopt : words_of_array(t)) {
            return values_of_codes(given, c, *w, x);
        }
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

/// Returns the listing.
std::string report_text(const compare::report& r, const graph::dims& shape) {
    std::string s;
    if (r.mismatches != 0) {
        s = to_text(r);
    } else {
        s = fmt::format("{} values, 0 differ", r.values);
        if (r.coverage.blocks != 0) s += fmt::format(" in 0 of {} blocks", r.coverage.blocks);
        s += "\n";
    }
    for (int k = 0; k < static_cast<int>(difference::count); ++k) {
        const difference_class& d = r.classes[static_cast<std::size_t>(k)];
        if (d.count == 0) continue;
        s += fmt::format("\n{}: {} ({})\n", name_of(static_cast<difference>(k)), d.count, meaning_of(static_cast<difference>(k)));
        for (const example& e : d.examples) {
            const auto code = [](const std::string& text) { return text.empty() ? std::string() : " (" + text + ")"; };
            s += fmt::format("  {} input {:a} expected {:a}{} device {:a}{}\n", position(e.index, shape), e.input, e.expected,
                             code(e.expected_code), e.device, code(e.device_code));
        }
    }
    const compare::input_coverage& c = r.coverage;
    s += fmt::format(
        "\nthe input exercised: {} binades, {} ties, {} exact values, {} negative, {} overflows, {} underflows,\n"
        "  {} subnormal, +0 {} times, -0 {} times, Inf {}, NaN {}",
        c.binades, c.ties, c.exact, c.negative, c.overflow, c.underflow, c.subnormal, c.positive_zero, c.negative_zero, c.infinite, c.nan);
    if (c.blocks != 0) s += fmt::format(", {} blocks with {} different scales", c.blocks, c.scales);
    return s + "\n";
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

/// Judges stochastic rounding whose words are not known. Returns false if something tells the device from it.
bool compare_randomness(const compare_arguments& given, const conversion& c, const graph::tensor& x, const graph::tensor& device) {
    if (!is_stochastic(c.how.rounding))
        throw graph::error("--random-words unknown is for --rounding stochastic, stochastic-b or stochastic-c");
    const compare::random_report r = compare::examine_randomness(c, x.as<float>(), device.as<float>());
    const bool plausible = r.found.empty() && r.elsewhere == 0;
    nlohmann::ordered_json found = nlohmann::ordered_json::array();
    for (const compare::random_suspicion& s : r.found) found.push_back({{"sentence", s.sentence}, {"error_probability", s.error}});
    tell(given.json,
         {{"values", r.values},
          {"between", r.between},
          {"elsewhere", r.elsewhere},
          {"away", r.away},
          {"expected_away", r.expected_away},
          {"found", found},
          {"plausible", plausible}},
         to_text(r));
    return plausible;
}

/// Returns the device's values, what --without and --where leave out made right.
std::vector<float> selected_values(const compare_arguments& given, const conversion& c, const graph::tensor& x,
                                   const graph::tensor& device) {
    compare::selection which;
    which.where = given.where;
    for (const std::string& word : given.without) {
        if (word == "zeros") which.zeros = false;
        else if (word == "specials") which.specials = false;
        else if (word == "subnormals") which.subnormals = false;
        else if (word == "overflow") which.overflow = false;
        else throw graph::error("--without takes zeros, specials, subnormals and overflow, not '" + word + "'");
    }
    const auto y = compare::selected(c, x.shape(), x.as<float>(), device.as<float>(), which);
    if (!y)
        throw graph::error("--where: no value lies where '" + given.where +
                           "'; give a place as the listing prints it: \"the result is subnormal\"");
    return *y;
}

/// Compares two files, or a file of codes with its values. Returns false if any value differs.
bool compare_files(compare_arguments& given) {
    if (given.input.empty() || given.device.empty())
        throw graph::error(
            "compare needs INPUT.npy, which the device was given, and DEVICE, what it gave; `qk compare --help` has examples");
    if (is_checkpoint(given.input) || is_checkpoint(given.device)) {
        return compare_checkpoints(given.input, given.device, given.json);
    }
    format_of(given.how);
    semantics_of(given.how);
    if (given.decode) {
        const auto [r, shape] = examine_decoder(given);
        tell(given.json, as_json(r), report_text(r, shape));
        return r.mismatches == 0;
    }
    const bool words_unknown = given.how.random_words == "unknown";
    if (words_unknown) given.how.random_words.clear();
    const graph::tensor x = read_input(given);
    const conversion c = resolve(given.how, x.shape(), given.input);
    const graph::tensor device = read_device(given, c, x);
    if (device.shape() != x.shape()) {
        throw graph::error(fmt::format("{} has shape {} and {} {}; they must be the same", given.input, graph::to_string(x.shape()),
                                       given.device, graph::to_string(device.shape())));
    }
    if (words_unknown) {
        return compare_randomness(given, c, x, device);
    }
    const std::vector<float> y = selected_values(given, c, x, device);
    const compare::report r = compare::examine(c, x.shape(), x.as<float>(), y);
    const std::vector<system_agreement> systems = systems_like(c.format, x, device.as<float>(), r.mismatches);
    nlohmann::ordered_json j = as_json(r);
    j["systems"] = nlohmann::ordered_json::array();
    for (const system_agreement& s : systems)
        j["systems"].push_back({{"name", s.name}, {"how", s.how}, {"source", s.source}, {"differ", s.differ}});
    tell(given.json, j, to_text(systems, r.values) + report_text(r, x.shape()));
    return r.mismatches == 0;
}

given_input input_of(const compare_arguments& given) {
    if (given.dot.asked && !given.dot.command.empty()) return {input_kind::device, "--dot --command asks a device"};
    if (given.dot.asked) return {input_kind::answers, "--dot reads what a device answered"};
    if (is_checkpoint(given.device)) return checkpoint_or(input_kind::array, given.device, "");
    if (given.decode && !is_checkpoint(given.input)) return {input_kind::decoder, "--decode judges a decoder"};
    if (is_hex(given.input)) return {input_kind::words, given.input + " has hexadecimal words"};
    return checkpoint_or(input_kind::array, given.input, "an array");
}

/// Adds --without and --where.
void add_selection(option_table& verb, compare_arguments& given) {
    verb.only_for(input_kind::array | input_kind::words);
    verb.add_option("--without", given.without,
                    "leave these out: zeros, specials (and blocks that hold them), subnormals, overflow; for a device with many mistakes")
        .type_name("KINDS")
        .delimiter(',')
        .suggest({"zeros", "specials", "subnormals", "overflow"});
    verb.add_option("--where", given.where, "look at this place alone, in the words of the listing: \"the result is subnormal\"")
        .type_name("PLACE");
}

}  // namespace

void add_compare(command& app, verb_result& result) {
    auto given = std::make_shared<compare_arguments>();
    option_table& verb =
        app.add_subcommand("compare", "Compare what a device gave with what the format says, and guess the cause of every difference");
    using enum input_kind;
    verb.takes(array | words | decoder | checkpoint | device | answers, [given] { return input_of(*given); });
    verb.add_option("INPUT", given->input,
                    "float32 or float16 .npy that the device was given, or .hex of float32 words; with --dot a case .npz; or a checkpoint "
                    "(.safetensors, the index.json of its shards, .gguf) to compare with another, tensor by tensor")
        .reads();
    verb.add_option("DEVICE", given->device,
                    "what it gave: .npy of the same shape, a packed .npz, .hex (float32 words, or codes as `qk gen` orders them), .npy of "
                    "such codes "
                    "(uint8, uint16, uint32), or with "
                    "--packed raw planes")
        .reads()
        .only_for(array | words | decoder | checkpoint);
    verb.add_flag("--decode", given->decode,
                  "the device is a decoder: INPUT has codes (.hex as `qk gen --decode` orders them, or .npy of uint8, uint16, uint32), "
                  "DEVICE float32")
        .common()
        .only_for(decoder);
    verb.add_option("--input", given->input_format, "words of an INPUT.hex: fp32 (default), fp16 or bf16").type_name("F").only_for(words);
    verb.only_for(array | words);
    verb.add_flag("--packed", given->packed,
                  "DEVICE holds the planes of docs/reference/layouts.md one after the other (raw bytes or uint8 .npy)")
        .common();
    verb.only_for(array | words | decoder);
    add_format_options(verb, given->how);
    add_selection(verb, *given);
    verb.only_for(array | words | decoder);
    verb.at("--random-words").suggest({"unknown"});
    add_scale_options(verb, given->how);
    verb.only_for({});
    verb.add_flag("--json", given->json, "one JSON object on standard output").common();
    verb.only_for(device | answers);
    verb.section("A device that multiplies and adds");
    verb.add_flag("--dot", given->dot.asked, "find its accumulator: order, alignment, rounding, width");
    verb.add_option("--command", given->dot.command,
                    "a device to ask, called as `CMD CASE.npz OUT.npz`: codes a [m,k], b [k,n], c [m,n] in, d [m,n] out")
        .only_for(device, "say --dot, too, to ask a device");
    verb.add_option("--a-format", given->dot.a_format, "format of the first operand");
    verb.add_option("--b-format", given->dot.b_format, "format of the second operand");
    verb.add_option(
        "--c-format", given->dot.c_format,
        "format of C: fp32, fp16 or bf16 (default fp32; integers have 32 bits); none: a bare multiplier, asked with c = -0; --k may be 1");
    verb.add_option("--k", given->dot.k, "terms of each sum that the device is asked for (default 64)").only_for(device);
    verb.add_option("--questions", given->dot.questions, "at most so many elements of d (default 10000)").only_for(device);
    verb.add_option("--accumulator", given->dot.expected, "the accumulator or device that is expected; exit status 1 if it is another");
    verb.footer(
        "The listing opens with the likely causes: mistakes of a converter which, alone or up to four together, explain at least four\n"
        "fifths of the differences and make none; then where the differences are, then examples. --json: `causes` (each `sentence`,\n"
        "`where`, `explains`, `alone`), `unexplained` (differences that they leave), `nearest` where none is found, `where`, `flags`.\n"
        "Where a system of `qk formats --systems` does what the device does, the listing says which (--json: `systems`).\n"
        "Exit status 1 if any value differs; NaN equals NaN, zeros compare with their sign. --random-words unknown judges stochastic\n"
        "rounding by what it does: fixed rounding, bias, short, shared and repeated words, each with the probability of an error.\n\n"
        "Examples:\n"
        "  qk compare x.npy device.npy --format mxfp8_e4m3\n"
        "  qk compare x.npy device.npy --format bfp16 --axis 1 --rounding half-away\n"
        "  qk compare x.npy device.bin --packed --format mxfp4 --json\n"
        "  qk compare x.npy device.npy --format mxfp8_e4m3 --without specials,overflow\n"
        "  qk compare codes.hex values.hex --format mxfp4 --decode\n"
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
        if (!compare_files(*given)) result.status = status::failed;
    });
}

}  // namespace qk::tool
