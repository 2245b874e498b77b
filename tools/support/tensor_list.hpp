// SPDX-License-Identifier: Apache-2.0
// `qk inspect --tensors`: every name of a model's file that a request may use, and what folding makes of it.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "qk/graph/model/model.hpp"

namespace qk::tool {

struct listed_name {
    std::string name;
    std::string kind;                  ///< "layer Conv", "model input", "weight", "bias", "constant", "activation", "model output"
    std::string type;                  ///< of elements; empty for layers and where it is not known
    std::optional<graph::dims> shape;  ///< activations: of one sample; none: not known
    std::vector<std::string> became;   ///< names in the network as it is planned; empty: the name itself
    std::string why;
    bool is_layer() const { return kind.starts_with("layer "); }
};

/// In network order: inputs, then each layer with the constants that it is the first to read, and what it makes. `m` as it was loaded.
std::vector<listed_name> list_names(const graph::model& m);

void print_names(const std::vector<listed_name>& names);
/// {"tensors": [...], "layer_names": [...]}, added to `json`.
void add_names(nlohmann::ordered_json& json, const std::vector<listed_name>& names);

}  // namespace qk::tool
