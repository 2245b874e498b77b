// SPDX-License-Identifier: Apache-2.0
// Opens what a user names: one safetensors file, the index of shards, one GGUF file or a split one.
#include <algorithm>
#include <cstdio>
#include <map>
#include <set>

#include "parts.hpp"

namespace qk::checkpoint {
namespace {

std::span<const std::byte> map_into(checkpoint& c, const std::filesystem::path& file) {
    c.files.push_back(std::make_shared<const mapped_file>(file));
    c.paths.push_back(file);
    return c.files.back()->bytes();
}

/// The shards that an index names, in its order of names, checked: they lie in its folder or below.
std::map<std::string, std::set<std::string>> shards_of(const nlohmann::json& index, const std::string& label) {
    const auto map = index.is_object() ? index.find("weight_map") : index.end();
    if (!index.is_object() || map == index.end() || !map->is_object())
        throw error(label + ": has no weight_map; it is no index of safetensors shards");
    std::map<std::string, std::set<std::string>> shards;
    for (const auto& [name, file] : map->items()) {
        if (!file.is_string()) throw error(label + ": weight_map: " + shown(name) + " is not in a file with a name");
        const std::filesystem::path place = file.get<std::string>();
        const bool outside = place.is_absolute() || std::ranges::find(place, "..") != place.end() || place.empty();
        if (outside)
            throw error(label + ": weight_map: " + shown(name) + " is in " + shown(place.string()) + ", which is not beside the index");
        shards[place.string()].insert(name);
    }
    if (shards.empty()) throw error(label + ": weight_map names no tensor");
    return shards;
}

void open_index(checkpoint& c) {
    const std::string label = c.path.string();
    const auto shards = shards_of(parse_json(read_text(c.path, 512u << 20), label), label);
    std::set<std::string> seen;
    for (const auto& [file, names] : shards) {
        const std::filesystem::path place = c.path.parent_path() / file;
        const std::size_t before = c.tensors.size();
        read_safetensors(map_into(c, place), place.string(), c);
        std::set<std::string> here;
        for (std::size_t i = before; i < c.tensors.size(); ++i) {
            here.insert(c.tensors[i].name);
            if (!seen.insert(c.tensors[i].name).second)
                throw error(place.string() + ": tensor " + shown(c.tensors[i].name) + " is in another shard, too");
            if (!names.contains(c.tensors[i].name))
                c.findings.push_back({c.tensors[i].name, "config_mismatch",
                                      c.tensors[i].name + " is in " + file + ", and " + c.path.filename().string() + " does not say so"});
        }
        for (const std::string& name : names)
            if (!here.contains(name)) throw error(label + ": " + shown(name) + " should be in " + file + ", and is not");
    }
}

/// Compares one shard that was opened by itself with the index beside it, if there is one: NAME.safetensors.index.json of
/// NAME-00001-of-00003.safetensors.
void compare_with_index(checkpoint& c) {
    const std::string name = c.path.filename().string();
    std::string base = c.path.stem().string();
    if (base.size() > 15 && base[base.size() - 15] == '-' && base.substr(base.size() - 9, 4) == "-of-") base.resize(base.size() - 15);
    const std::filesystem::path index = c.path.parent_path() / (base + ".safetensors.index.json");
    std::error_code ignored;
    if (!std::filesystem::is_regular_file(index, ignored)) return;
    const std::string label = index.filename().string();
    std::map<std::string, std::string> place;
    for (const auto& [file, names] : shards_of(parse_json(read_text(index, 512u << 20), index.string()), index.string()))
        for (const std::string& tensor : names) place[tensor] = file;
    const auto note = [&](const std::string& tensor, std::string sentence) {
        c.findings.push_back({tensor, "config_mismatch", std::move(sentence)});
    };
    for (const stored_tensor& t : c.tensors) {
        const auto found = place.find(t.name);
        if (found == place.end()) note(t.name, t.name + " is in " + name + ", and " + label + " does not say so");
        else if (found->second != name) note(t.name, t.name + " is in " + name + ", and " + label + " says " + found->second);
        place.erase(t.name);
    }
    for (const auto& [tensor, file] : place)
        if (file == name) note(tensor, tensor + " should be in " + name + " as " + label + " says, and is not");
}

/// The names of a split GGUF's parts: NAME-00001-of-00003.gguf.
std::optional<std::string> split_prefix(const std::string& name, std::uint64_t count) {
    char ending[64];
    std::snprintf(ending, sizeof ending, "-of-%05llu.gguf", static_cast<unsigned long long>(count));
    const std::size_t digits = 6;
    if (!name.ends_with(ending) || name.size() < std::string(ending).size() + digits) return std::nullopt;
    const std::string before = name.substr(0, name.size() - std::string(ending).size());
    if (before[before.size() - digits] != '-') return std::nullopt;
    return before.substr(0, before.size() - digits);
}

void open_gguf(checkpoint& c) {
    const split_place first = read_gguf(map_into(c, c.path), c.path.string(), c);
    if (first.count <= 1) return;
    const std::string name = c.path.filename().string();
    const auto prefix = split_prefix(name, first.count);
    if (!prefix || first.count > 99999)
        throw error(c.path.string() + ": is part " + std::to_string(first.number + 1) + " of " + std::to_string(first.count) +
                    "; its name should end in -00001-of-" +
                    (first.count < 100000 ? std::to_string(100000 + first.count).substr(1) : "00000") + ".gguf");
    const std::filesystem::path given = c.path;
    checkpoint whole;
    whole.path = given, whole.kind = c.kind;
    for (std::uint64_t k = 0; k < first.count; ++k) {
        char part[64];
        std::snprintf(part, sizeof part, "-%05llu-of-%05llu.gguf", static_cast<unsigned long long>(k + 1),
                      static_cast<unsigned long long>(first.count));
        const std::filesystem::path file = given.parent_path() / (*prefix + part);
        const split_place here = read_gguf(map_into(whole, file), file.string(), whole);
        if (here.number != k || here.count != first.count)
            throw error(file.string() + ": says that it is part " + std::to_string(here.number + 1) + " of " + std::to_string(here.count) +
                        ", and its name says otherwise");
    }
    if (first.tensors != 0 && first.tensors != whole.tensors.size())
        throw error(given.string() + ": its parts have " + std::to_string(whole.tensors.size()) + " tensors, and should have " +
                    std::to_string(first.tensors));
    c = std::move(whole);
}

void finish(checkpoint& c) {
    if (c.kind == container::gguf) find_gguf_weights(c);
    else find_weights(c);
    find_neighbours(c);
    std::set<std::string_view> names;
    for (const weight& w : c.weights)
        if (!names.insert(w.name).second) throw error(c.path.string() + ": two tensors stand for the weight " + shown(w.name));
}

}  // namespace

const stored_tensor* checkpoint::find(std::string_view name) const {
    const auto found = std::ranges::find(tensors, name, &stored_tensor::name);
    return found == tensors.end() ? nullptr : &*found;
}
const weight* checkpoint::find_weight(std::string_view name) const {
    const auto found = std::ranges::find(weights, name, &weight::name);
    return found == weights.end() ? nullptr : &*found;
}

checkpoint open(const std::filesystem::path& file) {
    checkpoint c;
    c.path = file;
    const std::string ending = file.extension().string();
    if (ending == ".gguf") {
        c.kind = container::gguf;
        open_gguf(c);
    } else {
        const std::filesystem::path folder = file.has_parent_path() ? file.parent_path() : ".";
        if (ending == ".json") open_index(c);
        else {
            read_safetensors(map_into(c, file), file.string(), c);
            compare_with_index(c);
        }
        c.config = read_config(folder);
    }
    finish(c);
    return c;
}

checkpoint read(std::span<const std::byte> bytes, const std::filesystem::path& name, std::string_view config) {
    checkpoint c;
    c.path = name;
    if (!config.empty()) c.config = parse_config(parse_json(config, "config.json"), "config.json");
    if (name.extension() == ".gguf") {
        c.kind = container::gguf;
        read_gguf(bytes, name.string(), c);
    } else read_safetensors(bytes, name.string(), c);
    finish(c);
    return c;
}

}  // namespace qk::checkpoint
