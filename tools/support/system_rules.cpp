// SPDX-License-Identifier: Apache-2.0
#include "support/system_rules.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>
#include <stdexcept>

#include "qk/graph/error.hpp"
#include "qk/graph/files.hpp"
#include "qk/graph/report.hpp"
#include "support/console.hpp"

namespace qk::tool {
namespace {

graph::data_type type_of_plane(systems::plane::type t) {
    switch (t) {
        case systems::plane::type::uint8: return graph::data_type::uint8;
        case systems::plane::type::int8: return graph::data_type::int8;
        case systems::plane::type::int32: return graph::data_type::int32;
        case systems::plane::type::uint32: return graph::data_type::uint32;
        case systems::plane::type::float32: break;
    }
    return graph::data_type::float32;
}

/// `given`: the shape of the input, whose last dimension is a row. `flat`: what the plane holds follows the tensor and not its rows.
graph::tensor tensor_of(const systems::plane& p, const graph::dims& given, bool flat) {
    graph::dims shape(p.shape.begin(), p.shape.end());
    if (given.size() < 2 && shape.size() == 2 && shape[0] == 1) shape.erase(shape.begin());  // a vector's planes are vectors
    if (given.size() > 2 && shape.size() >= 2 && !flat) {  // where the input has several dimensions in place of rows, so have its planes
        const auto rows = shape.end() - 2;
        if (*rows == std::accumulate(given.begin(), given.end() - 1, std::int64_t{1}, std::multiplies<>()))
            shape.insert(shape.erase(rows), given.begin(), given.end() - 1);
    }
    graph::tensor t(type_of_plane(p.kind), shape);
    if (!p.bytes.empty()) std::memcpy(t.bytes(), p.bytes.data(), p.bytes.size());
    return t;
}

/// Codes of UE5M3 back into numbers: the only cast among the rules that has a reader of bare codes.
converted_by_system decoded_codes(const systems::rule& rule, const graph::tensor& x, const std::string& file) {
    if (rule.format != "ue5m3") throw graph::error(fmt::format("{} holds uint8; {} takes float32", file, rule.name()));
    converted_by_system made{graph::tensor(graph::data_type::float32, x.shape()), {}};
    std::transform(x.as<std::uint8_t>().begin(), x.as<std::uint8_t>().end(), made.values.as<float>().begin(), systems::ue5m3_value);
    made.archive = graph::zip({{"codes.npy", graph::to_npy(x)}}, "the packed file");
    return made;
}

/// Rules of tiles of rows and columns: each matrix of a tensor of several is cut into tiles of its own.
bool takes_matrices(const systems::rule& rule) { return rule.system == "modelopt" && rule.format.starts_with("fp8_2d"); }

/// Runs such a rule on one matrix after the other and puts the planes behind one another, under the dimensions before the matrices.
systems::result by_matrices(const systems::rule& rule, std::span<const float> x, const graph::dims& shape) {
    const auto rows = static_cast<std::size_t>(shape[shape.size() - 2]), columns = static_cast<std::size_t>(shape.back());
    systems::result all{{x.size() / columns, columns}, {}, {}};
    for (std::size_t at = 0; at < x.size(); at += rows * columns) {
        systems::result one = rule.convert({x.subspan(at, rows * columns), rows, columns, {}});
        all.values.insert(all.values.end(), one.values.begin(), one.values.end());
        if (at == 0) {
            all.planes = std::move(one.planes);
            continue;
        }
        for (std::size_t k = 0; k < all.planes.size(); ++k)
            all.planes[k].bytes.insert(all.planes[k].bytes.end(), one.planes[k].bytes.begin(), one.planes[k].bytes.end());
    }
    for (systems::plane& p : all.planes) p.shape.insert(p.shape.begin(), shape.begin(), shape.end() - 2);
    return all;
}

}  // namespace

std::vector<std::string> system_words() {
    std::vector<std::string> words;
    for (const systems::rule& r : systems::rules()) words.push_back(r.name());
    return words;
}

const systems::rule& system_rule(const std::string& name) {
    if (const systems::rule* found = systems::find(name)) return *found;
    throw graph::error(fmt::format("unknown system and format '{}'; `qk formats --systems` lists them.{}", name,
                                   graph::did_you_mean(name, system_words())));
}

void refuse_beside_system(const quantize_options& given) {
    const quantize_options none;
    const auto refuse = [](bool there, const char* option) {
        if (there) throw graph::error(fmt::format("--system is the whole rule of a system: leave {} out", option));
    };
    refuse(!given.format.empty(), "--format");
    refuse(given.semantics != none.semantics, "--semantics");
    refuse(!given.rounding.empty(), "--rounding");
    refuse(!given.scale_rule.empty(), "--scale-rule");
    refuse(!given.scale_objective.empty(), "--scale-objective");
    refuse(!given.integer_mode.empty(), "--integer-mode");
    refuse(!given.overflow.empty(), "--overflow");
    refuse(!given.scale.empty() || !given.scales.empty(), "--scale and --scales");
    refuse(!given.zero_point.empty() || !given.zero_points.empty(), "--zero-point and --zero-points");
    refuse(given.axis.has_value() || given.scale_axis.has_value() || given.scale_block.has_value(),
           "--axis, --scale-axis and --scale-block");
    refuse(!given.random_words.empty() || given.seed.has_value(), "--random-words and --seed");
}

converted_by_system convert_by(const systems::rule& rule, graph::tensor x, const std::string& file, const std::string& importance) {
    if (x.type() == graph::data_type::uint8) return decoded_codes(rule, x, file);
    x = float_tensor(std::move(x), file);
    if (x.size() == 0) throw graph::error(file + " has no values");
    const auto columns = static_cast<std::size_t>(x.rank() == 0 ? 1 : x.shape().back());
    systems::input given{x.as<float>(), x.size() / columns, columns, {}};
    graph::tensor weights;
    if (!importance.empty()) {
        weights = float_tensor(graph::parse_npy(graph::read_file(importance), importance), importance);
        given.importance = weights.as<float>();
    }
    systems::result made;
    try {
        made = x.rank() > 2 && takes_matrices(rule) ? by_matrices(rule, given.values, x.shape()) : rule.convert(given);
    } catch (const std::invalid_argument& e) {
        throw graph::error(fmt::format("{}: {}", file, e.what()));
    }
    // where a system transposes, or the matrix is one, the shape is the rule's; else it is the input's own
    const bool turned = made.shape != std::vector<std::size_t>{given.rows, given.columns};
    converted_by_system done{
        graph::tensor(graph::data_type::float32, turned ? graph::dims(made.shape.begin(), made.shape.end()) : x.shape()), {}};
    std::copy(made.values.begin(), made.values.end(), done.values.as<float>().begin());
    std::vector<graph::zip_entry> entries;
    for (const systems::plane& p : made.planes) {
        // ModelOpt's int4 cuts the whole tensor into blocks: [blocks, 1] scales, whatever the dimensions
        const bool flat = takes_matrices(rule) || (rule.name() == "modelopt.int4_g128" && p.name == "scales");
        entries.push_back({p.name + ".npy", graph::to_npy(tensor_of(p, turned ? done.values.shape() : x.shape(), flat))});
    }
    done.archive = graph::zip(entries, "the packed file");
    return done;
}

void print_systems(const std::vector<std::string>& words, bool json) {
    const auto wanted = [&words](const std::string& name) {
        return words.empty() ||
               std::any_of(words.begin(), words.end(), [&name](const std::string& w) { return name.find(w) != std::string::npos; });
    };
    for (const std::string& word : words) {
        const auto all = system_words();
        if (std::none_of(all.begin(), all.end(), [&word](const std::string& n) { return n.find(word) != std::string::npos; }))
            system_rule(word);
    }
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    if (!json) print("{:<42} {:<38} {}\n", "system.format", "--packed holds", "rule");
    for (const systems::rule& r : systems::rules()) {
        const std::string name = r.name();
        if (!wanted(name)) continue;
        if (!json) {
            print("{:<42} {:<38} {}{}\n", name, r.keeps.empty() ? "-" : r.keeps, r.how, r.takes_importance ? "; takes --importance" : "");
            continue;
        }
        list.push_back({{"name", name},
                        {"system", r.system},
                        {"format", r.format},
                        {"keeps", r.keeps},
                        {"rule", r.how},
                        {"takes_importance", r.takes_importance},
                        {"multiple", r.multiple},
                        {"source", r.source}});
    }
    if (json) return print_json({{"systems", list}});
    print(
        "\nT: largest magnitude of the tensor; A: of a block. x is cut into blocks along its last axis. Sources: `--json`; the rules side "
        "by\n"
        "side: docs/reference/systems.md.\n");
}

}  // namespace qk::tool
