// SPDX-License-Identifier: Apache-2.0
// Finds the steps of a program that become one row_unit.
#include <algorithm>
#include <unordered_map>

#include "graph/evaluate/execute/row_unit.hpp"
#include "graph/evaluate/execute/sum_unit.hpp"

namespace qk::graph::execute {
namespace {

constexpr std::size_t most_steps = 64;  ///< from the first to the last of a unit

/// One unit: its steps in their order, perhaps behind a product.
struct joined {
    std::vector<std::size_t> members;
    std::size_t product = no_step;
    static constexpr std::size_t no_step = static_cast<std::size_t>(-1);
};

/// Returns for each step the first step of its plan. A unit joins steps of one plan only, so that a plan's results are not delayed.
std::vector<std::size_t> first_of_plan(const program& p) {
    std::vector<std::size_t> first(p.steps.size(), 0);
    for (const program::candidate& c : p.candidates)
        for (auto i = static_cast<std::size_t>(c.after + 1); i < first.size(); ++i) first[i] = static_cast<std::size_t>(c.after + 1);
    return first;
}

}  // namespace

void join_rows(program& p) {
    const std::vector<int> readers = readers_of_slots(p);
    const std::vector<std::size_t> begin = first_of_plan(p);
    std::vector<char> may(p.steps.size()), taken(p.steps.size(), 0), rounded(readers.size(), 0);
    for (const step& t : p.steps)
        if (t.only_for_sums) rounded[static_cast<std::size_t>(t.out[0])] = 1;
    for (std::size_t i = 0; i < p.steps.size(); ++i) {
        const step& t = p.steps[i];
        may[i] = row_unit::takes(t, *p.shared) &&
                 std::none_of(t.in.begin(), t.in.end(), [&](slot s) { return s >= 0 && rounded[static_cast<std::size_t>(s)] != 0; });
    }
    std::vector<joined> at_root(p.steps.size());
    for (std::size_t root = p.steps.size(); root-- > 0;) {
        if (!may[root] || taken[root]) continue;
        joined& all = at_root[root];
        std::unordered_map<slot, int> reads;
        const auto add = [&](std::size_t i) {
            all.members.push_back(i);
            for (const slot s : p.steps[i].in) ++reads[s];
        };
        add(root);
        for (std::size_t i = root; i-- > std::max(begin[root], root - std::min(root, most_steps));) {
            const step& t = p.steps[i];
            if (taken[i] || t.out.size() != 1 || t.out[0] < 0 || !reads.contains(t.out[0]) ||
                reads.at(t.out[0]) != readers[static_cast<std::size_t>(t.out[0])])
                continue;
            if (may[i]) add(i);
            else if (t.dense && all.product == joined::no_step) all.product = i;
        }
        std::reverse(all.members.begin(), all.members.end());
        std::vector<const step*> members;
        for (const std::size_t i : all.members) members.push_back(&p.steps[i]);
        const bool behind = all.product != joined::no_step;
        const auto unit = std::make_shared<row_unit>(members, *p.shared, behind ? p.steps[all.product].out[0] : no_slot);
        if (!behind && !unit->is_worth_it()) {
            all.members.clear();
            continue;
        }
        for (const std::size_t i : all.members) taken[i] = 1;
        if (behind) taken[all.product] = 1, p.steps[all.product].together = unit;
        if (unit->is_worth_it()) p.steps[all.members.front()].together = unit;
    }
    std::vector<step> ordered;
    for (std::size_t i = 0; i < p.steps.size(); ++i) {
        if (!taken[i]) ordered.push_back(std::move(p.steps[i]));
        if (at_root[i].members.empty()) continue;
        if (at_root[i].product != joined::no_step) ordered.push_back(std::move(p.steps[at_root[i].product]));
        for (const std::size_t m : at_root[i].members) ordered.push_back(std::move(p.steps[m]));
    }
    p.steps = std::move(ordered);
}

}  // namespace qk::graph::execute
