// SPDX-License-Identifier: Apache-2.0
#include "graph/pipeline/unused_options.hpp"

#include <algorithm>
#include <functional>
#include <string>

#include "graph/calibrate/searched_scales.hpp"
#include "qk/formats/facts.hpp"
#include "qk/graph/base/format_text.hpp"
#include "qk/graph/base/names.hpp"
#include "qk/option_names.hpp"

namespace qk::graph::pipeline {
namespace {

bool is_whole(const format& f) { return is_integer_format(f); }
/// Is true for formats whose scales are chosen for each run that an option names.
bool takes_runs(const format& f) {
    const floating* split = std::get_if<floating>(&f);
    return is_integer_format(f) || is_table_format(f) || (split != nullptr && is_scaled(*split) && !is_identity(f));
}

class unused_search {
  public:
    unused_search(const precision_settings& given, const asked_precision& asked, bool searches)
        : given_(given), asked_(asked), searches_(searches) {
        for (const request& r : asked.requests) {
            if (is_identity(r.what.format)) continue;
            if (has(r.role, role::weight) || has(r.role, role::bias)) weights_.push_back(&r);
            const bool dropped = r.scope == scope::everything && asked.options.how == approach::weight_only;
            if ((has(r.role, role::activation) || r.scope >= scope::tensor) && !dropped) activations_.push_back(&r);
        }
    }

    std::vector<plan_note> run() {
        if (asked_.saved) beside_saved_plan();
        else beside_requests();
        return std::move(notes_);
    }

  private:
    using test = std::function<bool(const format&)>;

    void say(bool used, const char* option, const std::string& why) {
        if (!used) notes_.push_back({plan_note::kind::unused, std::string("option ") + option, "has no effect: " + why});
    }
    /// Is true if a format of the command line, for what the option is about, passes the test. The options that refine formats are about
    /// those alone: a requests file says all of its own.
    bool any_typed(bool weights, const test& fits) const {
        return std::ranges::any_of(weights ? weights_ : activations_, [&](const request* r) {
            return (r->origin.starts_with("--") || r->scope == scope::kv_cache) && fits(r->what.format);
        });
    }

    /// Is true if a request's scales are searched, whoever says so.
    bool searches_scale(const request& r) const {
        const semantics how = semantics_of(completed(r.what, asked_.options, has(r.role, role::weight)));
        return is_searched(how.scale_rule) && (has_scale_rule(r.what.format, how.scale_rule) || searches_scales(r.what.format, how));
    }

    void beside_saved_plan() {
        say(given_.weight_rounding.empty() || asked_.saved->moved.empty(), "--weight-rounding",
            "the saved plan holds how its weights are rounded");
        const char* why = "a saved plan has its own formats, ranges and scales";
        const auto& g = given_;
        const std::pair<bool, const char*> all[] = {{g.per_channel, "--per-channel"},
                                                    {g.per_tensor, "--per-tensor"},
                                                    {!g.weight_method.empty(), "--weight-method"},
                                                    {!g.scale_rule.empty(), "--scale-rule"},
                                                    {!g.scale_objective.empty(), "--scale-objective"},
                                                    {g.weight_block > 0, "--weight-block"},
                                                    {g.symmetric, "--symmetric"},
                                                    {g.asymmetric_weights, "--asymmetric-weights"},
                                                    {g.reduce_range, "--reduce-range"},
                                                    {!g.pow2.empty(), "--pow2"},
                                                    {g.percentile > 0, "--percentile"},
                                                    {!g.method.empty(), "--calibration-method"},
                                                    {!g.semantics.empty(), "--semantics"},
                                                    {!g.rounding.empty(), "--rounding"},
                                                    {!g.placement.empty(), "--placement"},
                                                    {!g.approach.empty(), "--approach"},
                                                    {g.dual, "--dual"}};
        for (const auto& [is_given, option] : all) say(!is_given, option, why);
    }

    void beside_requests() {
        const auto& g = given_;
        const std::string weight = formats(weights_), activation = formats(activations_);
        const bool weight_only = asked_.options.how == approach::weight_only;
        if (!g.activation.empty() && weight_only && !is_identity(parse_side(g.activation, false).format))
            say(false, "--activation", "with the approach weight_only activations stay float32");
        if (g.symmetric) say(any_typed(false, is_whole), "--symmetric", "no activation is a whole number (" + activation + ")");
        if (g.asymmetric_weights) say(any_typed(true, is_whole), "--asymmetric-weights", "no weight is a whole number (" + weight + ")");
        if (g.reduce_range) say(any_typed(true, is_whole), "--reduce-range", "no weight is a whole number (" + weight + ")");
        if (!g.pow2.empty())
            say(any_typed(true, is_whole) || any_typed(false, is_whole), "--pow2",
                "nothing is a whole number with a scale (" + activation + ", " + weight + ")");
        if (g.weight_block > 0)
            say(any_typed(true, takes_runs), "--weight-block", "no weight has scales that are chosen for runs (" + weight + ")");
        const bool typed = any_typed(true, [](const format&) { return true; }) || any_typed(false, [](const format&) { return true; });
        if (!g.rounding.empty()) say(typed, "--rounding", "no format is given as an option");
        if (searches_) return;
        if (!g.semantics.empty()) say(typed, "--semantics", "no format is given as an option");
        if (!g.scale_rule.empty()) {
            const auto rule = parse_scale_rule(g.scale_rule);
            const test follows = [&](const format& f) { return !rule || has_scale_rule(f, *rule); };
            const test searches = [&](const format& f) {
                return follows(f) || (*rule == scale_rule::search && detail::has_searched_scale(f));
            };
            say(any_typed(true, searches) || any_typed(false, follows), "--scale-rule",
                "it is for MX formats, NVFP4's are search and four_over_six, and that of weights with other scales is search (" +
                    activation + ", " + weight + ")");
        }
        if (!g.scale_objective.empty())
            say(std::ranges::any_of(weights_, [&](const request* r) { return searches_scale(*r); }) ||
                    std::ranges::any_of(activations_, [&](const request* r) { return searches_scale(*r); }),
                "--scale-objective", "no scales are searched: say --scale-rule search, or FORMAT@search");
        per_channel(weight);
        ranges(activation, weight_only);
        if (!g.placement.empty())
            say(std::ranges::any_of(activations_, [](const request* r) { return r->scope == scope::everything; }), "--placement",
                "no default format is for activations");
        weights_learn(weight);
    }

    void per_channel(const std::string& weight) {
        if (!given_.per_channel) return;
        const bool whole = std::ranges::any_of(weights_, [](const request* r) { return is_whole(r->what.format); });
        const bool free =
            std::ranges::any_of(weights_, [](const request* r) { return is_whole(r->what.format) && r->what.block_size.value_or(0) == 0; });
        say(free, "--per-channel",
            whole ? "the weights have a scale for each run (--weight-block)" : "no weight is a whole number (" + weight + ")");
    }

    void ranges(const std::string& activation, bool weight_only) {
        const bool dynamic = asked_.options.how == approach::dynamic;
        const auto chosen = [&](const request* r) {
            return (takes_runs(r->what.format) || has_floating_scales(r->what.format)) && !r->what.range && r->what.scale.empty() &&
                   !r->what.dynamic && !(r->scope == scope::everything && dynamic);
        };
        const bool any = std::ranges::any_of(activations_, chosen);
        const std::string why = dynamic       ? "with the approach dynamic each run has its own ranges"
                                : weight_only ? "with the approach weight_only activations stay float32"
                                              : "no activation has a range that is chosen (" + activation + ")";
        if (!given_.method.empty()) say(any, "--calibration-method", why);
        if (given_.percentile <= 0) return;
        const bool percentile =
            (asked_.options.method == range_method::percentile || asked_.options.best_method) ||
            std::ranges::any_of(activations_, [](const request* r) { return r->what.method == range_method::percentile; });
        say(any && percentile, "--percentile", any ? "no range is chosen by the calibration method percentile" : why);
    }

    void weights_learn(const std::string& weight) {
        const bool rounds = std::ranges::any_of(weights_, [](const request* r) {
            const floating* split = std::get_if<floating>(&r->what.format);
            return has(r->role, role::weight) && (split == nullptr || is_scaled(*split));
        });
        if (!given_.weight_rounding.empty() && given_.weight_rounding != "nearest")
            say(rounds, "--weight-rounding", "weights of this format are rounded to nearest (" + weight + ")");
        const auto learns = [](weight_rounding r) { return r == weight_rounding::adaround || r == weight_rounding::adaquant; };
        const bool any = learns(asked_.options.rounding) || std::ranges::any_of(asked_.requests, [&](const request& r) {
                             return r.what.rounding && learns(*r.what.rounding);
                         });
        if (given_.seed != 0) say(any && rounds, "--seed", "no weight learns its rounding");
    }

    /// Returns "int8, fp16", or "fp32".
    static std::string formats(const std::vector<const request*>& of) {
        std::vector<std::string> names;
        for (const request* r : of)
            if (const std::string one = to_string(r->what.format); std::ranges::find(names, one) == names.end()) names.push_back(one);
        return names.empty() ? "fp32" : comma_separated(names);
    }

    const precision_settings& given_;
    const asked_precision& asked_;
    bool searches_;
    std::vector<const request*> weights_, activations_;
    std::vector<plan_note> notes_;
};

}  // namespace

std::vector<plan_note> unused_options(const precision_settings& given, const asked_precision& asked, bool searches) {
    return unused_search(given, asked, searches).run();
}

std::vector<plan_note> unused_data_options(const data_settings& given) {
    std::vector<plan_note> notes;
    if (!given.labels.empty() && !given.has_samples())
        notes.push_back(
            {plan_note::kind::unused, "option --labels", "has no effect: they are those of samples, and --inputs X.npy names none"});
    if (given.samples > 0 && given.inputs.empty())
        notes.push_back(
            {plan_note::kind::unused, "option --samples", "has no effect: it counts --inputs, and --calibration is read whole"});
    return notes;
}

}  // namespace qk::graph::pipeline
