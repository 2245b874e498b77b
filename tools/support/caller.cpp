// SPDX-License-Identifier: Apache-2.0
#include "support/caller.hpp"

#include <nlohmann/json.hpp>
#include <utility>

#include "qk/graph/quantize/plan_arrays.hpp"
#include "support/console.hpp"

namespace qk::tool {
namespace {

thread_local caller* present = nullptr;

}  // namespace

caller* this_caller() { return present; }
caller* keeper_of_results() { return present != nullptr && present->keeps_results ? present : nullptr; }

void caller::keep(const graph::precision_plan& plan) { results.plan = graph::plan_text(plan, "plan.json.npz", results.lists); }

void tell(bool json, const nlohmann::ordered_json& object, const std::string& text) {
    if (json) print_json(object);
    else print_lines(text);
    if (caller* by = keeper_of_results()) by->results.text = text;
}

verb_result run_for(caller& by, std::vector<std::string> words) {
    struct restored {
        caller* before;
        ~restored() { present = before; }
    };
    const restored at_the_end{std::exchange(present, &by)};
    verb_result result;
    command app("qk", "", QK_VERSION);
    add_verbs(app, result, words.empty() ? std::string_view() : words.front());
    app.run(std::move(words));
    return result;
}

}  // namespace qk::tool
