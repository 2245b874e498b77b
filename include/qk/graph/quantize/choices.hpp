// SPDX-License-Identifier: Apache-2.0
// A choice says how the values of a layer may be stored; a search decides among several. Its text is a format and, behind each '@', a word
// that says how the format is used; a requests file gives alternatives as lists. docs/guide/search.md, "Choices".
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
    weight_rounding rounding = weight_rounding::nearest;  ///< weights only
    bool rounds = false;                                  ///< a word of the text says `rounding`
};

/// Parses FORMAT[@WORD...]. Both sides take an MX scale rule and sym or asym (or symmetric, asymmetric); activations take a calibration
/// method; weights take min_max or mse, per_tensor or per_channel, and nearest, compensated or adaround. Any other word is an error that
/// lists the words and suggests the nearest.
side_choice parse_side_choice(std::string_view text, bool weight);

/// Parses the same text as a precision, where there is nothing to choose from.
precision parse_side(std::string_view text, bool weight);

/// Expands the alternatives in a text: "int8@min_max|entropy/int8" becomes "int8@min_max/int8" and "int8@entropy/int8".
std::vector<std::string> each_choice(const std::string& text);

/// What some layers may choose from, instead of what a search offers to every layer. An empty side has the choices of every layer.
struct choice_request {
    qk::graph::scope scope = scope::everything;  ///< everything, op_type, layer or group
    std::string name{};
    std::string origin{};
    std::vector<std::string> pairs{};  ///< "ACTIVATION/WEIGHT" as on a command line; both sides are empty then
    std::vector<side_choice> activation{}, weight{};
    std::vector<std::string> beside{};  ///< op_type: all types of the list that `name` comes from
    bool settled = false;               ///< no alternatives: the plan file also holds it as requests
};

/// Parses LAYERS=A/W[,A/W...]. LAYERS is an operator type that a search knows, or a layer's name or pattern.
choice_request parse_choice_request(const std::string& text, const std::string& origin);

/// Is true when a side of an entry of a requests file has lists or a "weight_rounding": the entry then says what a search may choose from.
bool has_choices(const json_cursor& entry);
/// Reads {"op_type" | "layer" | "group": NAMES, "activation": SIDE, "weight": SIDE}; with `everything` the entry is the default, which has
/// no names. SIDE is a FORMAT, or an object with "format" and other keys of a precision, of which "format", "method", "scheme",
/// "granularity" and "weight_rounding" may be lists.
std::vector<choice_request> read_choices(const json_cursor& entry, bool everything);

}  // namespace qk::graph
