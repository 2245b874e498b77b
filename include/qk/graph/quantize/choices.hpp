// SPDX-License-Identifier: Apache-2.0
// Choices: how the values of a layer may be stored where a search decides it. A format and, behind each '@', how it is used; alternatives
// of a requests file as lists. docs/guide/search.md, "Choices".
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "qk/graph/files/json_cursor.hpp"
#include "qk/graph/plan/requests.hpp"
#include "qk/graph/quantize/planner.hpp"

namespace qk::graph {

/// One way to store the activations, or the weights, of a layer. `text` names it where results are shown: "int8@entropy".
struct side_choice {
    std::string text;
    precision what;
    weight_rounding rounding = weight_rounding::nearest;  ///< of weights
};

/// FORMAT[@WORD...]: of both sides an MX scale rule, sym or asym (or symmetric, asymmetric); of activations a calibration method; of
/// weights min_max or mse, per_tensor or per_channel, nearest, compensated or adaround. Error with the nearest words.
side_choice parse_side_choice(std::string_view text, bool weight);

/// The texts that one with alternatives stands for: "int8@min_max|entropy/int8" is "int8@min_max/int8" and "int8@entropy/int8".
std::vector<std::string> each_choice(const std::string& text);

/// What some layers may choose from, instead of what a search offers to all. A side without alternatives has those that all have.
struct choice_request {
    qk::graph::scope scope = scope::everything;  ///< everything, op_type, layer or group
    std::string name{};
    std::string origin{};
    std::vector<std::string> pairs{};  ///< "ACTIVATION/WEIGHT" as a command line says it; then there are no sides
    std::vector<side_choice> activation{}, weight{};
    std::vector<std::string> beside{};  ///< op_type: the list that it stands in
    bool settled = false;               ///< no alternatives: there are requests that say the same
};

/// LAYERS=A/W[,A/W...]: LAYERS is an operator type that a search knows, or a layer's name or pattern.
choice_request parse_choice_request(const std::string& text, const std::string& origin);

/// Whether an entry of a requests file has lists: what a search may choose from, not what is asked.
bool has_choices(const json_cursor& entry);
/// {"op_type" | "layer" | "group": NAMES, "activation": SIDE, "weight": SIDE}; `everything`: the default, which has no names. SIDE is a
/// FORMAT, or an object with "format" and other keys of a precision, of which "format", "method", "scheme", "granularity" and
/// "weight_rounding" may be lists.
std::vector<choice_request> read_choices(const json_cursor& entry, bool everything);

}  // namespace qk::graph
