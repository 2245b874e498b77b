// SPDX-License-Identifier: Apache-2.0
// Lists the options that each searched layer may get: --wide, --narrow with its alternatives, and choices that are for some layers alone.
#pragma once

#include <string>
#include <vector>

#include "qk/graph/plan/layers.hpp"
#include "qk/graph/quantize/choices.hpp"
#include "qk/graph/search/search.hpp"

namespace qk::graph {

/// All options of a search: [0] is wide.
struct option_list {
    std::vector<std::string> texts;
    std::vector<format_pair> pairs;
    std::vector<std::size_t> general;                  ///< narrow options of layers that no choice request names
    std::vector<std::vector<std::size_t>> by_request;  ///< narrow options of each of mix_options::choices
};

/// Lists the options of a search. Throws for a text that cannot be parsed, when there is no narrow option, and for more options than a
/// search can number.
option_list list_options(const mix_options& options);

/// Returns offered[layer][option] for the layers in `searched`: the latest request that names a layer decides. Throws, with the nearest
/// names, for a layer that the model lacks; renamed layers and requests without a searched layer go to `remarks`.
std::vector<std::vector<bool>> offered_options(const option_list& all, const layer_view& layers, const std::vector<std::string>& searched,
                                               const std::vector<choice_request>& choices, std::vector<std::string>& remarks);

}  // namespace qk::graph
