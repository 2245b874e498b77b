// SPDX-License-Identifier: Apache-2.0
// Makes the rows of a sensitivity sweep, with their plans: each layer at each other option alone, its weights alone, its activations alone.
#pragma once

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "graph/search/moves.hpp"
#include "qk/graph/search/search.hpp"

namespace qk::graph::detail {

/// Rows that have no results yet, and the move that gives each its plan.
struct planned_rows {
    struct move {
        std::size_t layer;
        std::uint8_t option;
        mixture::part part;
    };
    const mix_problem* problem;
    assignment base;
    std::vector<sensitivity_row> rows;
    std::vector<move> moves;  ///< by row

    precision_plan base_plan() const { return problem->mix().plan(base); }
    precision_plan plan(std::size_t row) const { return problem->mix().plan(base, moves[row].layer, moves[row].option, moves[row].part); }
    /// Returns the plan of the base, then one for each row.
    std::vector<precision_plan> plans() const {
        std::vector<precision_plan> all{base_plan()};
        for (std::size_t i = 0; i < rows.size(); ++i) all.push_back(plan(i));
        return all;
    }
};

inline planned_rows sensitivity_rows(const mix_problem& problem, const assignment& base, bool widen) {
    const search_space& space = problem.space();
    planned_rows made{&problem, base, {}, {}};
    const precision_plan of_base = made.base_plan();
    for (std::size_t l = 0; l < space.size(); ++l) {
        for (std::size_t o = 0; o < space.options.size(); ++o) {
            if (o == base[l] || (widen && o != 0) || !space.offers(l, o)) continue;
            precision_plan both;
            for (const auto part : {mixture::part::both, mixture::part::weights, mixture::part::activations}) {
                precision_plan plan = problem.mix().plan(base, l, static_cast<std::uint8_t>(o), part);
                if (plan == of_base) continue;                              // the option does not change this part
                if (part != mixture::part::both && plan == both) continue;  // this part is all that changes in the layer
                if (part == mixture::part::both) both = std::move(plan);
                made.moves.push_back({l, static_cast<std::uint8_t>(o), part});
                made.rows.push_back({.layer = space.layers[l],
                                     .op_type = problem.op_type(l),
                                     .option = space.options[o],
                                     .part = part,
                                     .saving = part == mixture::part::both ? space.cost[l][base[l]] - space.cost[l][o] : 0,
                                     .position = l});
            }
        }
    }
    return made;
}

inline void put_measured(sensitivity_row& row, const metric& measure, const score& base, const score& found) {
    row.metric = found.metric;
    row.harm = harm_of(measure, base.metric, found.metric);
    row.error = found.error;
    row.added = found.error - base.error;
    row.standard_error = 0;
    row.measured = true;
}

inline double seconds_since(std::chrono::steady_clock::time_point start) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Assembles the result; orders rows by harm, least first.
inline sensitivity_result result_of(mix_problem& problem, std::vector<sensitivity_row> rows, const score& base, bool widen,
                                    std::chrono::steady_clock::time_point start) {
    order_by_harm(rows);
    sensitivity_result result;
    result.metric_name = problem.score().title();
    result.cost_unit = problem.cost_unit();
    result.base_metric = base.metric;
    result.base_error = base.error;
    result.widened = widen;
    result.rows = std::move(rows);
    result.modules = problem.modules();
    result.statistics = problem.score().statistics();
    result.seconds = seconds_since(start);
    result.remarks = problem.remarks();
    return result;
}

}  // namespace qk::graph::detail
