// SPDX-License-Identifier: Apache-2.0
// `qk compare`: what a device gave against what the format says.
#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <memory>

#include "support/comparison.hpp"
#include "support/console.hpp"
#include "support/packed_file.hpp"
#include "qk/formats/parse.hpp"
#include "qk/graph/files/file.hpp"
#include "qk/graph/files/npy.hpp"
#include "verbs.hpp"

namespace qk::tool {
namespace {

struct arguments {
    std::string input, device;
    quantize_options how;
    bool packed = false, json = false;
};

/// The device's numbers: .npy of floats, a packed .npz, or the planes one after the other (raw, or as a uint8 .npy).
graph::tensor read_device(const arguments& given, const conversion& c, const graph::tensor& x) {
    const std::string bytes = graph::read_file(given.device);
    if (is_archive(bytes)) {
        const packed_tensor p = from_archive(bytes, given.device);
        if (p.how.format != c.format)
            throw graph::error(fmt::format("{} holds {}, not {}", given.device, to_text(p.how.format).view(), to_text(c.format).view()));
        return unpack(p);
    }
    const bool is_npy = bytes.starts_with("\x93NUMPY");
    if (!is_npy && !given.packed)
        throw graph::error(given.device + " is neither .npy nor a packed .npz; say --packed if it is raw planes (docs/layouts.md)");
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
    const std::size_t needed = packed_bytes(c.format, is_block_format(c.format) ? c.blocks : along_axis{1, x.size(), 1});
    if (p.bytes.size() != needed) {
        throw graph::error(fmt::format("{} has {} bytes; format {} of shape {} packs into {} (docs/layouts.md)", given.device,
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

void print(const comparison& r, const graph::dims& shape) {
    fmt::print("{} values, {} differ", r.values, r.mismatches);
    if (r.coverage.blocks != 0) fmt::print(" in {} of {} blocks", r.blocks_touched, r.coverage.blocks);
    fmt::print("\n");
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
    const input_coverage& c = r.coverage;
    fmt::print(
        "\nthe input exercised: {} binades, {} ties, {} exact values, {} negative, {} overflows, {} underflows,\n"
        "  {} subnormal, +0 {} times, -0 {} times, Inf {}, NaN {}",
        c.binades, c.ties, c.exact, c.negative, c.overflow, c.underflow, c.subnormal, c.positive_zero, c.negative_zero, c.infinite, c.nan);
    if (c.blocks != 0) fmt::print(", {} blocks with {} different scales", c.blocks, c.scales);
    fmt::print("\n");
    if (r.mismatches == 0) return;
    if (r.causes.empty()) fmt::print("\nlikely cause: none of the known mistakes explains it\n");
    for (std::size_t k = 0; k < std::min<std::size_t>(3, r.causes.size()); ++k) {
        fmt::print("{}{}{}\n", k == 0 ? "\nlikely cause: " : "or: ", r.causes[k].sentence,
                   r.causes[k].unexplained == 0 ? " (explains every difference)"
                                                : fmt::format(" (leaves {} unexplained)", r.causes[k].unexplained));
    }
}

nlohmann::ordered_json as_json(const comparison& r) {
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
    for (const cause& k : r.causes) causes.push_back({{"cause", k.sentence}, {"unexplained", k.unexplained}});
    const input_coverage& c = r.coverage;
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
            {"causes", causes}};
}

}  // namespace

void add_compare(CLI::App& app, verb_result& result) {
    auto given = std::make_shared<arguments>();
    CLI::App* verb =
        app.add_subcommand("compare", "Compare what a device gave with what the format says, and guess the cause of every difference");
    verb->add_option("INPUT", given->input, "float32 or float16 .npy that the device was given")->required();
    verb->add_option("DEVICE", given->device, "what it gave: .npy of the same shape, a packed .npz, or with --packed raw planes")
        ->required();
    verb->add_flag("--packed", given->packed, "DEVICE holds the planes of docs/layouts.md one after the other (raw bytes or uint8 .npy)");
    add_format_options(*verb, given->how);
    add_scale_options(*verb, given->how);
    verb->add_flag("--json", given->json, "one JSON object on standard output");
    verb->footer(
        "Exit status 1 if any value differs; NaN equals NaN, zeros compare with their sign.\n\nExamples:\n"
        "  qk compare x.npy device.npy --format mxfp8_e4m3\n"
        "  qk compare x.npy device.npy --format bfp16 --axis 1 --rounding half-away\n"
        "  qk compare x.npy device.bin --packed --format mxfp4 --json");
    verb->callback([given, &result] {
        format_of(given->how);
        semantics_of(given->how);
        const graph::tensor x = float_tensor(graph::read_npy(given->input), given->input);
        const conversion c = resolve(given->how, x.shape(), given->input);
        const graph::tensor device = read_device(*given, c, x);
        if (device.shape() != x.shape()) {
            throw graph::error(fmt::format("{} has shape {} and {} {}; they must be the same", given->input, graph::to_string(x.shape()),
                                           given->device, graph::to_string(device.shape())));
        }
        const comparison r = compare(c, x.shape(), x.as<float>(), device.as<float>());
        if (given->json)
            print_json(as_json(r));
        else
            print(r, x.shape());
        if (r.mismatches != 0) result.status = status::failed;
    });
}

}  // namespace qk::tool
