// SPDX-License-Identifier: Apache-2.0
// Reads a latency table and looks up costs.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "disk/bounded_json.hpp"
#include "graph/search/latency.hpp"
#include "qk/graph/base/names.hpp"
#include "qk/graph/files/file.hpp"
#include "qk/graph/plan/requests.hpp"

namespace qk::graph {

latency_table latency_table::load(const std::filesystem::path& file) {
    latency_table table;
    table.file_ = file.string();
    const auto bad = [&](const std::string& what) -> error { return error("latency table '" + table.file_ + "': " + what); };
    nlohmann::ordered_json json;
    try {
        json = bounded_json::parse<nlohmann::ordered_json>(read_file(file));
    } catch (const bounded_json::problem& e) {
        throw bad(e.what());
    }
    if (!json.is_object()) throw bad("must be an object with \"layers\" and \"op_types\"");
    for (const auto& [key, value] : json.items()) {
        if (key == "unit" && value.is_string()) {
            table.unit_ = value;
        } else if ((key == "layers" || key == "op_types") && value.is_object()) {
            for (const auto& [name, options] : value.items()) {
                if (!options.is_object()) throw bad("/" + key + "/" + name + " must be an object from \"A/W\" to a number");
                std::map<std::string, double> costs;
                for (const auto& [option, cost] : options.items()) {
                    if (!cost.is_number() || cost.get<double>() < 0)
                        throw bad("/" + key + "/" + name + "/" + option + " must be a number of at least 0");
                    costs[option] = cost;
                }
                (key == "layers" ? table.layers_ : table.op_types_).emplace_back(name, std::move(costs));
            }
        } else {
            throw bad("unknown key or wrong type at /" + key + "; known are unit (text), layers and op_types (objects)");
        }
    }
    return table;
}

std::vector<std::string> latency_table::without_layer(const std::vector<std::string>& layers) const {
    std::vector<std::string> all;
    for (const auto& [name, costs] : layers_)
        if (std::none_of(layers.begin(), layers.end(), [&pattern = name](const std::string& l) { return glob_match(pattern, l); }))
            all.push_back("latency table '" + file_ + "': '" + name + "' is none of the searched layers." + did_you_mean(name, layers));
    return all;
}

double latency_table::cost(const std::string& layer, const std::string& op_type, double macs, const std::string& option) const {
    for (const auto& [name, costs] : layers_) {
        if (!glob_match(name, layer)) continue;
        if (const auto i = costs.find(option); i != costs.end()) return i->second;
    }
    for (const auto& [name, costs] : op_types_) {
        if (name != op_type) continue;
        if (const auto i = costs.find(option); i != costs.end()) return i->second * macs / 1e6;
    }
    throw error("latency table '" + file_ + "' has no entry for layer '" + layer + "' (" + op_type + ") at " + option);
}

}  // namespace qk::graph
