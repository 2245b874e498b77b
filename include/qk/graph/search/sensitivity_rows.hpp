// SPDX-License-Identifier: Apache-2.0
// The rows of a sensitivity sweep: each layer at each other option alone, its weights alone, its activations alone, with their plans.
#pragma once

#include <utility>
#include <vector>

#include "qk/graph/search/search.hpp"

namespace qk::graph::detail {

/// The rows without results, and the plans: the base's first, then one for each row.
inline std::pair<std::vector<sensitivity_row>, std::vector<precision_plan>> sensitivity_rows(const mix_problem& problem,
                                                                                             const assignment& base, bool widen) {
    const search_space& space = problem.space();
    std::vector<sensitivity_row> rows;
    std::vector<precision_plan> plans{problem.mix().plan(base)};
    for (std::size_t l = 0; l < space.size(); ++l) {
        for (std::size_t o = 0; o < space.options.size(); ++o) {
            if (o == base[l] || (widen && o != 0) || !space.offers(l, o)) continue;
            for (const auto part : {mixture::part::both, mixture::part::weights, mixture::part::activations}) {
                precision_plan plan = problem.mix().plan(base, l, static_cast<std::uint8_t>(o), part);
                if (plan == plans[0]) continue;  // this part is the same in both
                const bool same = part != mixture::part::both && !rows.empty() && plan == plans.back();
                if (same && rows.back().position == l && rows.back().part == mixture::part::both) continue;  // it is the whole layer
                plans.push_back(std::move(plan));
                rows.push_back({.layer = space.layers[l],
                                .op_type = problem.op_type(l),
                                .option = space.options[o],
                                .part = part,
                                .saving = part == mixture::part::both ? space.cost[l][base[l]] - space.cost[l][o] : 0,
                                .position = l});
            }
        }
    }
    return {std::move(rows), std::move(plans)};
}

}  // namespace qk::graph::detail
