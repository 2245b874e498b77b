// SPDX-License-Identifier: Apache-2.0
// What each searched layer may get: --wide, --narrow with its alternatives, and choices that are for some layers alone.
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
    std::vector<std::size_t> general;                  ///< the narrow ones of layers that no request speaks of
    std::vector<std::vector<std::size_t>> by_request;  ///< those of each of mix_options::choices
};

/// Error for what means nothing, for none, and for more than a search can number.
option_list list_options(const mix_options& options);

/// offered[layer][option] for these layers: the latest request that names a layer decides. Error for a layer that the model lacks, with the
/// nearest names; what else there is to say goes to `remarks`.
std::vector<std::vector<bool>> offered_options(const option_list& all, const layer_view& layers, const std::vector<std::string>& searched,
                                               const std::vector<choice_request>& choices, std::vector<std::string>& remarks);

}  // namespace qk::graph
