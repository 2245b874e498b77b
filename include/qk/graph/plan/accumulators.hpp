// SPDX-License-Identifier: Apache-2.0
// Which unit multiplies each layer of a model: requested by layer, by operator type or for all. docs/guide/evaluate.md.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "qk/graph/model/model.hpp"
#include "qk/graph/plan/requests.hpp"

namespace qk::graph {

struct accumulator_request {
    qk::graph::scope scope = scope::everything;  ///< everything, op_type, layer or group
    std::string name{};
    std::string accumulator{};  ///< a device's name, or an accumulator as text; already checked
    std::string origin{};       ///< "requests.json:12", "--accumulator"
};

/// Maps a layer's name to what multiplies it: a device's name or an accumulator's text.
using layer_accumulators = std::map<std::string, std::string>;

/// Parses "TEXT" for every layer, "TYPE:TEXT" for a type, "LAYER:TEXT" for a layer, pattern or group. Throws error if TEXT is not valid.
accumulator_request parse_accumulator_request(const std::string& text, const std::string& origin);
/// Throws error where the text is neither a device nor an accumulator; the error begins with `origin`.
void check_accumulator_text(const std::string& text, const std::string& origin);

/// Resolves requests for the layers that a unit multiplies: Conv, Gemm and MatMul. Later requests win over earlier ones, and requests for
/// single layers over requests for everything. Throws error with the nearest names where a request matches no layer.
layer_accumulators resolve_accumulators(const model& m, const std::vector<accumulator_request>& requests);

}  // namespace qk::graph
