// SPDX-License-Identifier: Apache-2.0
#include "qk/graph/pipeline/precision.hpp"

#include <algorithm>
#include <cstdlib>

#include "graph/pipeline/unused_options.hpp"
#include "graph/quantize/saved_names.hpp"
#include "qk/graph/base/format_text.hpp"
#include "qk/graph/base/names.hpp"
#include "qk/graph/quantize/encodings.hpp"
#include "qk/graph/quantize/plan_file.hpp"
#include "qk/option_names.hpp"

namespace qk::graph::pipeline {
namespace {

template <class T>
T known(const std::optional<T>& value, const char* option, const std::string& text, const std::vector<std::string>& names) {
    if (!value) throw error(std::string(option) + " '" + text + "' is none of " + comma_separated(names) + "." + did_you_mean(text, names));
    return *value;
}

/// Returns the rule for the scales of MX formats that the options name.
std::optional<scale_rule> rule_of(const precision_settings& o) {
    if (!o.scale_rule.empty()) return parsed_value(parse_scale_rule(o.scale_rule));
    if (o.floor_scales && o.semantics.empty()) return scale_rule::floor;
    return std::nullopt;
}

/// Parses a precision and applies the options that refine it.
precision word(const precision_settings& o, const std::string& text, bool weight) {
    precision p = parse_side(text, weight);
    if (!o.rounding.empty()) {
        // A rounding names no rule for scales; semantics do.
        if (!p.scale_rule) p.scale_rule = rule_of(o);
        if (!p.scale_rule && o.semantics.empty()) p.scale_rule = default_scale_rule(p.format);
        if (!o.scale_objective.empty()) p.scale_objective = parsed_value(parse_scale_objective(o.scale_objective));
        p.semantics = parsed_value(parse_semantics(o.semantics.empty() ? "ocp" : o.semantics));
        p.semantics->rounding = parsed_value(parse_rounding(o.rounding));
    }
    if (integer* f = std::get_if<integer>(&p.format)) {
        if (!o.pow2.empty()) {
            p.pow2 = known(parse_pow2_rule(o.pow2), "--pow2", o.pow2, pow2_rule_names());
            f->pow2 = true;
        }
        if (weight && o.reduce_range) f->reduce_range = true;
        if (!weight && o.symmetric && !p.symmetric) p.symmetric = true;
        if (weight && o.asymmetric_weights && !p.symmetric) p.symmetric = false;
    }
    if (weight && o.weight_block > 0 && !is_block_format(p.format)) p.block_size = o.weight_block;
    return p;
}

/// Parses "search", or alpha from 0 to 1.
channel_scaling scaling(const std::string& option, const std::string& text, channel_scaling::rule how) {
    if (text == "search") return {how, std::nullopt};
    char* end = nullptr;
    const double alpha = std::strtod(text.c_str(), &end);
    if (end == text.c_str() || *end != '\0' || !(alpha >= 0 && alpha <= 1))
        throw error(option + " '" + text + "' is neither a number from 0 to 1 nor search");
    return {how, alpha};
}

/// Asks for what the target's profile names where nobody else says it. `placed`: the plan file names a placement.
void ask_for_target(const precision_settings& o, asked_precision& a, bool placed) {
    const target_profile& t = *a.options.target;
    if (o.placement.empty() && !placed && t.where) a.options.where = *t.where;
    const auto add = [&](const std::string& text, bool weight, role of) {
        if (!text.empty()) a.requests.push_back({.role = of, .what = word(o, text, weight), .origin = "--target"});
    };
    if (a.requests.empty() && o.plan.empty()) {
        if (t.activation.empty() && t.weight.empty())
            throw error("say what to quantize: --activation F --weight F, or --plan P.json; the profile '" + t.name + "' names no formats");
        add(t.activation, false, role::activation);
        add(t.weight, true, role::weight);
    }
    const auto is_own = [](const std::string& said, const std::string& own) { return said.empty() || said == own; };
    if (o.bias.empty() && o.plan.empty() && is_own(o.activation, t.activation) && is_own(o.weight, t.weight)) add(t.bias, true, role::bias);
}

}  // namespace

std::vector<std::string> pow2_rule_names() { return {"non_overflow", "nearest", "min_mse"}; }

bool asked_precision::changes_weights() const {
    return options.rounding != weight_rounding::nearest || options.correct_bias || narrow_rounding || (saved && !saved->moved.empty()) ||
           std::ranges::any_of(requests, [this](const request& r) {
               const integer* f = std::get_if<integer>(&r.what.format);
               const bool pairs = pair_safe && !saved && f != nullptr && f->is_signed && f->bits == 8 && has(r.role, role::weight);
               return pairs || r.what.rounding.has_value();
           });
}

asked_precision precision_settings::read(const model& m, bool searches) const {
    asked_precision a;
    a.iterations = iterations, a.seed = seed;
    // First the defaults of the command line: the file's requests outrank them wherever they stand.
    const auto ask = [&](const char* option, const std::string& text, bool is_weight, role of, scope where = scope::everything) {
        if (!text.empty()) a.requests.push_back({.scope = where, .role = of, .what = word(*this, text, is_weight), .origin = option});
    };
    ask("--activation", activation, false, role::activation);
    ask("--weight", weight, true, role::weight);
    ask("--bias", bias, true, role::bias);
    ask("--kv-cache", kv_cache, false, role::all, scope::kv_cache);
    bool placed = false;
    if (!plan.empty()) {
        plan_file file = plan.read();
        file.fill(a.options);
        placed = file.where.has_value();
        a.by_hand = {.method = file.method || file.best_method,
                     .rounding = file.rounding.has_value(),
                     .bias = file.correct_bias.has_value(),
                     .scaling = file.scaling.has_value()};
        a.choices = std::move(file.choices);
        a.criterion = std::move(file.criterion);
        a.accumulators = resolve_accumulators(m, file.accumulators);
        a.file = plan.name();
        if (file.plan) {
            if (!a.requests.empty())
                throw error("'" + plan.name() +
                            "' is a saved plan, which leaves nothing to ask: drop --activation, --weight, --bias and --kv-cache, or give a "
                            "requests file");
            a.notes = follow_names(*file.plan, m, plan.name());
            place_encodings(*file.plan, m);
            check_plan(*file.plan, m, plan.name());
            a.saved = std::move(file.plan);
        }
        // A default on the command line replaces the file's default for the same role.
        std::erase_if(file.requests, [&](const request& r) {
            return r.scope == scope::everything && std::ranges::any_of(a.requests, [&](const request& c) { return c.role == r.role; });
        });
        a.requests.insert(a.requests.begin(), std::make_move_iterator(file.requests.begin()), std::make_move_iterator(file.requests.end()));
    }
    if (method == "best" && a.saved)
        throw error("'" + plan.name() + "' is a saved plan, which has its ranges: drop --calibration-method best");
    if (!method.empty()) a.options.best_method = method == "best";
    if (!method.empty() && !a.options.best_method)
        a.options.method = known(parse_range_method(method), "--calibration-method", method, range_method_names({"best"}));
    if (percentile > 0) a.options.percentile = percentile;
    if (!placement.empty()) a.options.where = parse_placement(placement);
    if (!approach.empty()) a.options.how = parse_approach(approach);
    if (!weight_rounding.empty()) a.options.rounding = parse_weight_rounding(weight_rounding);
    a.options.correct_bias |= bias_correction;
    if (!smooth_quant.empty() && !awq.empty()) throw error("--smooth-quant and --awq exclude each other: both scale the same channels");
    if (!smooth_quant.empty()) a.options.scaling = scaling("--smooth-quant", smooth_quant, channel_scaling::rule::smooth_quant);
    if (!awq.empty()) a.options.scaling = scaling("--awq", awq, channel_scaling::rule::awq);
    if (!rotation.empty()) a.options.rotation = parse_stream_rotation(rotation);
    if (!target.empty()) a.options.target = load_target(target);
    if (a.options.target && !a.saved && !searches) ask_for_target(*this, a, placed);
    if (per_channel && per_tensor) throw error("--per-channel and --per-tensor exclude each other");
    if (per_channel || per_tensor) a.options.per_channel = per_channel;
    a.options.unshifted = !a.accumulators.empty();
    if (!weight_method.empty()) a.options.weight_method = parse_weight_method(weight_method);
    if (!semantics.empty()) a.options.semantics = parsed_value(parse_semantics(semantics));
    if (!scale_rule.empty() || !semantics.empty()) a.options.scale_rule = rule_of(*this);
    else if (!a.options.scale_rule) a.options.scale_rule = rule_of(*this);
    if (!scale_objective.empty()) a.options.scale_objective = parsed_value(parse_scale_objective(scale_objective));
    a.options.dual |= dual;
    if (!strict.empty() && strict != "requests" && strict != "all")
        throw error("--strict '" + strict + "' is none of requests, all." + did_you_mean(strict, {"requests", "all"}));
    a.options.strict |= !strict.empty();
    a.options.strict_all |= strict == "all";
    a.by_hand.method |= !method.empty();
    a.by_hand.rounding |=
        !weight_rounding.empty() || std::ranges::any_of(a.requests, [](const request& r) { return r.what.rounding.has_value(); });
    a.by_hand.bias |= bias_correction;
    a.by_hand.scaling |= !smooth_quant.empty() || !awq.empty();
    a.unused = unused_options(*this, a, searches);
    return a;
}

}  // namespace qk::graph::pipeline
