// SPDX-License-Identifier: Apache-2.0
// Which unit multiplies the layers of a model: asked for by layer, type or for all, and found out layer by layer. docs/guide/evaluate.md.
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
    std::string accumulator{};  ///< a device's name, or an accumulator as text; checked
    std::string origin{};       ///< "requests.json:12", "--accumulator"
};

/// A layer's name to what multiplies it: a device's name or an accumulator's text.
using layer_accumulators = std::map<std::string, std::string>;

/// "TEXT" for every layer, "TYPE:TEXT" for a type, "LAYER:TEXT" for a layer, pattern or group. Error where TEXT is no accumulator.
accumulator_request parse_accumulator_request(const std::string& text, const std::string& origin);
/// Error where the text is neither a device nor an accumulator; `origin` stands before it.
void check_accumulator_text(const std::string& text, const std::string& origin);

/// Conv, Gemm and MatMul are layers that a unit multiplies. Later requests win over earlier ones, single layers over everything. Error
/// where a request meets no layer, with the nearest names.
layer_accumulators resolve_accumulators(const model& m, const std::vector<accumulator_request>& requests);

}  // namespace qk::graph
