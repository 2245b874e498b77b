// SPDX-License-Identifier: Apache-2.0
#include "qk/graph/pipeline/expand.hpp"

#include <algorithm>
#include <string_view>

#include "graph/export/raise_functions.hpp"
#include "graph/quantize/expand_attention.hpp"
#include "graph/quantize/model_changes.hpp"
#include "graph/quantize/narrow_doubles.hpp"
#include "graph/quantize/open_bodies.hpp"
#include "qk/graph/base/names.hpp"
#include "qk/graph/evaluate/fold.hpp"
#include "qk/graph/quantize/plan_file.hpp"

namespace qk::graph::pipeline {
namespace {

bool starts(std::string_view name, const std::string& prefix, std::string_view separators) {
    return name.size() > prefix.size() && name.starts_with(prefix) && separators.find(name[prefix.size()]) != separators.npos;
}

/// Is true for a request about what the node of that name reads.
bool speaks_of(const request& r, const std::string& name) {
    if (!has(r.role, role::input)) return false;
    if (r.scope == scope::op_type) return glob_match(r.name, "Attention");
    if (r.scope == scope::group) return name == r.name || starts(name, r.name, "/.:_");
    // The products are named after the node: NAME/scores and NAME/context.
    return r.scope == scope::layer && (glob_match(r.name, name) || starts(name, r.name, "/.:_") || starts(r.name, name, "/"));
}

bool names_products(const precision_plan& plan, const std::string& name) {
    return std::ranges::any_of(plan.edges, [&](const auto& e) { return starts(e.first.consumer, name, "/"); }) ||
           std::ranges::any_of(plan.tensors, [&](const auto& t) { return starts(t.first, name, "/"); });
}

}  // namespace

void prepare_for_plan(model& m, std::vector<plan_note>* notes) {
    const auto say = [&](const std::string& text) {
        if (notes != nullptr && !text.empty()) notes->push_back({plan_note::kind::adjusted, m.label(), text});
    };
    say(narrow_doubles(m));
    fold_constants(m);
    if (m.proto().functions_size() > 0) raise_functions(m);
    for (int depth = 0; depth < 8; ++depth) {  // what stands inside of what was opened may have a constant condition now
        const std::vector<std::string> opened = open_bodies(m);
        for (const std::string& text : opened) say(text);
        if (opened.empty()) break;
        fold_constants(m);
    }
    fold_batch_normalization(m);
}

void expand_for(model& m, const precision_settings& asked, bool searches) {
    if (asked.plan.empty() && !has_attentions(m)) return;
    const plan_file file = asked.plan.empty() ? plan_file{} : asked.plan.read();
    if (file.plan) reshape_for(m, *file.plan, asked.plan.name());
    if (!has_attentions(m)) return;
    if (file.plan) return expand_attentions(m, [&](const std::string& name) { return names_products(*file.plan, name); });
    const approach how = asked.approach.empty() ? file.how.value_or(approach::static_ranges) : parse_approach(asked.approach);
    bool all = searches;
    if (!asked.activation.empty()) all = !is_identity(parse_side_choice(asked.activation, false).what.format);
    else
        for (const request& r : file.requests)
            if (r.scope == scope::everything && has(r.role, role::input)) all = !is_identity(r.what.format);
    expand_attentions(m, [&](const std::string& name) {
        bool wanted = all && how != approach::weight_only;
        for (const request& r : file.requests)
            if (speaks_of(r, name)) wanted = !is_identity(r.what.format);
        return wanted;
    });
}

}  // namespace qk::graph::pipeline
