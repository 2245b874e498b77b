// SPDX-License-Identifier: Apache-2.0
// `qk inspect --tensors`: every name in a model's file that a request may use, and what folding makes of it.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "qk/graph/model.hpp"

namespace qk::tool {

struct listed_name {
    std::string name;
    std::string kind;                  ///< "layer Conv", "model input", "weight", "bias", "constant", "activation", "model output"
    std::string type;                  ///< element type; empty for layers and where it is unknown
    std::optional<graph::dims> shape;  ///< for activations of one sample; nullopt: unknown
    std::vector<std::string> became;   ///< its names in the folded model; empty: unchanged
    std::string why;
    std::string module{};  ///< of a layer: the module of torch that it comes from; empty: unknown, or its name
    bool is_layer() const { return kind.starts_with("layer "); }
};

/// Lists the names in network order: inputs, then each layer with the constants that it is the first to read, and its outputs. `m` is the
/// model as loaded, not folded.
std::vector<listed_name> list_names(const graph::model& m);

void print_names(const std::vector<listed_name>& names);
/// Adds "tensors": [...] and "layer_names": [...] to `json`.
void add_names(nlohmann::ordered_json& json, const std::vector<listed_name>& names);

}  // namespace qk::tool
