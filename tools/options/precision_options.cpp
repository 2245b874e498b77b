// SPDX-License-Identifier: Apache-2.0
#include "options/precision_options.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <thread>

#include "options/words.hpp"
#include "qk/graph/base/format_text.hpp"
#include "qk/graph/calibrate/calibrate.hpp"
#include "qk/graph/evaluate/fold.hpp"
#include "qk/graph/quantize/compensate.hpp"
#include "qk/graph/quantize/encodings.hpp"
#include "qk/graph/quantize/plan_file.hpp"
#include "qk/graph/quantize/saved_names.hpp"
#include "qk/graph/search/choose_method.hpp"
#include "qk/option_names.hpp"
#include "support/console.hpp"

namespace qk::tool {
namespace {

template <class T>
T checked(const parsed<T>& p) {
    if (!p) throw graph::error(std::string(p.error.view()));
    return *p;
}

template <class T>
T known(const std::optional<T>& value, const char* option, const std::string& text, const word_list& names) {
    if (!value)
        throw graph::error(fmt::format("{} '{}' is none of {}.{}", option, text, comma_separated(names), graph::did_you_mean(text, names)));
    return *value;
}

const word_list pow2_words{"non_overflow", "nearest", "min_mse"};

/// A precision from the command line's words.
graph::precision word(const precision_options& o, const std::string& text, bool weight) {
    graph::precision p = graph::parse_precision(text);
    if (!o.semantics.empty()) p.semantics = checked(parse_semantics(o.semantics));
    if (!o.rounding.empty()) p.semantics.rounding = checked(parse_rounding(o.rounding));
    if (integer* f = std::get_if<integer>(&p.format)) {
        if (!o.pow2.empty()) {
            p.pow2 = known(graph::parse_pow2_rule(o.pow2), "--pow2", o.pow2, pow2_words);
            f->pow2 = true;
        }
        if (weight && o.reduce_range) f->reduce_range = true;
        if (!weight && o.symmetric) p.symmetric = true;
        if (weight && o.asymmetric_weights) p.symmetric = false;
    }
    if (weight && o.weight_block > 0 && !is_block_format(p.format)) p.block_size = o.weight_block;
    return p;
}

/// Whether --calibration names statistics instead of samples.
bool has_statistics(const data_options& data) {
    return data.calibration.size() == 1 && std::filesystem::is_regular_file(data.calibration[0]) &&
           graph::is_calibration_file(data.calibration[0]);
}
}  // namespace

void precision_options::add(option_table& verb, bool formats) {
    verb.section("Precision");
    if (formats) {
        verb.add_option("--activation", activation, "format of what layers read (`qk formats` lists them)")
            .type_name("F")
            .common()
            .suggest(format_words());
        verb.add_option("--weight", weight, "format of weights").type_name("F").common().suggest(format_words());
        verb.add_option(
                "--weight-rounding", weight_rounding,
                "nearest (default), or compensated: weights not yet rounded take up the error of those that are (GPTQ), by the calibration "
                "samples")
            .type_name("R")
            .suggest({"nearest", "compensated"});
        verb.add_option("--bias", bias, "format of biases; int32 for integers, float32 otherwise, if not given")
            .type_name("F")
            .suggest(format_words());
    }
    verb.add_option("--plan", plan, "a requests file (docs/plan.md), a saved plan, or AIMET encodings 1.0.0")
        .type_name("P.json")
        .common()
        .reads();
    verb.add_option(
            "--target", target,
            "profile of a runtime, or onnxruntime: layers that it has no kernel for stay float32, and whether it has int8 weights signed "
            "(docs/plan.md)")
        .type_name("PROFILE.json")
        .suggest({"onnxruntime"});
    verb.add_flag("--per-channel", per_channel, "a weight scale for each output channel").common();
    verb.add_option("--weight-block", weight_block, "a weight scale for each run of N along the reduction axis")
        .type_name("N")
        .at_least(1, "it is how many weights share a scale; leave --weight-block out for one scale for the tensor, or give --per-channel");
    verb.add_flag("--symmetric", symmetric, "activations: zero point in the middle");
    verb.add_flag("--asymmetric-weights", asymmetric_weights, "weights with a zero point");
    verb.add_flag("--reduce-range", reduce_range, "weights use one bit less");
    verb.add_option("--pow2", pow2, "power-of-two scales, chosen by non_overflow, nearest or min_mse")
        .type_name("RULE")
        .suggest(pow2_words);
    verb.add_option("--calibration-method", method,
                    "how ranges are chosen: " + comma_separated(method_words({"best"})) +
                        " (of these the one that does best on the inputs, by top1 with --labels, else by sqnr)")
        .type_name("M")
        .suggest(method_words({"best"}));
    verb.add_option("--percentile", percentile, "per cent of values inside the range (99.999)")
        .type_name("P")
        .between(50, 100, "it is the per cent of values that stay inside the range, as 99.99");
    verb.add_option("--semantics", semantics, "ocp (default), nvidia, quark, microxcaling, torchao, ml_dtypes, torch or onnx")
        .type_name("S")
        .suggest(words_of(semantics_names));
    verb.add_option("--rounding", rounding, "half-even (default), half-away, half-up, toward-zero, up, down, stochastic")
        .type_name("R")
        .suggest(words_of(rounding_names));
    verb.add_option("--placement", placement, "layers (default), all or every: which activations a default format means (docs/plan.md)")
        .type_name("P")
        .suggest({"layers", "all", "every"});
    verb.add_option("--approach", approach, "static (default), dynamic or weight_only")
        .type_name("A")
        .suggest({"static", "dynamic", "weight_only"});
    verb.add_flag("--dual", dual, "a tensor between two formats keeps both");
    verb.add_flag("--strict", strict, "a request that cannot be met as asked is an error");
    verb.section("");
}

precision_options::asked precision_options::read(const graph::model& m) const {
    asked a;
    // The default first: requests of the file lie over it wherever they stand.
    if (!activation.empty())
        a.requests.push_back({.scope = graph::scope::everything,
                              .role = graph::role::activation,
                              .what = word(*this, activation, false),
                              .origin = "--activation"});
    if (!weight.empty())
        a.requests.push_back(
            {.scope = graph::scope::everything, .role = graph::role::weight, .what = word(*this, weight, true), .origin = "--weight"});
    if (!bias.empty())
        a.requests.push_back(
            {.scope = graph::scope::everything, .role = graph::role::bias, .what = word(*this, bias, true), .origin = "--bias"});
    if (!plan.empty()) {
        graph::plan_file file = graph::load_plan_file(plan);
        file.fill(a.options);
        if (file.plan) {
            if (!a.requests.empty())
                throw graph::error(fmt::format(
                    "'{}' is a saved plan, which leaves nothing to ask: drop --activation, --weight and --bias, or give a requests file",
                    plan));
            a.notes = graph::follow_names(*file.plan, m, plan);
            graph::place_encodings(*file.plan, m);
            graph::check_plan(*file.plan, m, plan);
            a.saved = std::move(file.plan);
        }
        // A default on the command line outranks the file's.
        std::vector<graph::request> all;
        for (graph::request& r : file.requests) {
            const bool outranked =
                r.scope == graph::scope::everything &&
                std::any_of(a.requests.begin(), a.requests.end(), [&](const graph::request& c) { return c.role == r.role; });
            if (!outranked) all.push_back(std::move(r));
        }
        all.insert(all.end(), std::make_move_iterator(a.requests.begin()), std::make_move_iterator(a.requests.end()));
        a.requests = std::move(all);
    }
    if (method == "best" && a.saved)
        throw graph::error(fmt::format("'{}' is a saved plan, which has its ranges: drop --calibration-method best", plan));
    if (!method.empty()) a.options.best_method = method == "best";
    if (!method.empty() && !a.options.best_method)
        a.options.method = known(graph::parse_range_method(method), "--calibration-method", method, method_words({"best"}));
    if (percentile > 0) a.options.percentile = percentile;
    if (!placement.empty()) a.options.where = graph::parse_placement(placement);
    if (!approach.empty()) a.options.how = graph::parse_approach(approach);
    if (!weight_rounding.empty()) a.options.rounding = graph::parse_weight_rounding(weight_rounding);
    if (!target.empty()) a.options.target = graph::load_target(target);
    a.options.per_channel |= per_channel;
    a.options.dual |= dual;
    a.options.strict |= strict;
    return a;
}

graph::model load_for_planning(const std::string& file) {
    graph::model m = graph::model::load(file);
    graph::fold_constants(m);
    graph::fold_batch_normalization(m);
    return m;
}

graph::calibration calibrate_for(const graph::model& m, const data_options& data, const precision_options::asked& asked, bool histograms,
                                 const graph::named_tensors* inputs, graph::named_tensors* outputs) {
    using graph::range_method;
    if (has_statistics(data)) return graph::load_calibration(data.calibration[0]);
    bool ranges = false, dynamic = asked.options.how == graph::approach::dynamic;
    graph::calibrate_options wanted{.histograms = histograms};
    for (const graph::request& r : asked.requests) {
        const graph::precision& p = r.what;
        const floating* f = std::get_if<floating>(&p.format);
        const bool needs = is_integer_format(p.format) || std::holds_alternative<nvfloat>(p.format) ||
                           (f != nullptr && graph::is_scaled(*f) && !is_identity(p.format));
        const bool activation = has(r.role, graph::role::activation) || r.scope >= graph::scope::tensor;
        if (!needs || !activation || p.range || !p.scale.empty() ||
            (r.scope == graph::scope::everything && (dynamic || asked.options.how == graph::approach::weight_only)))
            continue;
        ranges = true;
        const range_method method = p.method.value_or(asked.options.method);
        const graph::calibrate_options needed = graph::options_for(method);
        wanted.moving_average |= needed.moving_average || asked.options.best_method;
        wanted.histograms |= needed.histograms || asked.options.best_method || p.pow2 == graph::pow2_rule::min_mse;
    }
    if ((!ranges && !histograms) || asked.saved || (data.calibration.empty() && data.inputs.empty())) return {};
    wanted.threads = data.threads;
    const bool of_inputs = inputs != nullptr && data.calibration.empty();
    const graph::named_tensors samples = of_inputs ? *inputs : data.load_calibration(m);
    progress bar("calibrating", 0);
    return graph::calibrate(
        m, samples, wanted, [&](std::size_t done, std::size_t all) { bar.show(done, all); }, of_inputs ? outputs : nullptr);
}

namespace {
graph::method_choice choose_method(const graph::model& m, const data_options& data, const precision_options::asked& asked,
                                   const graph::calibration& seen) {
    if (data.inputs.empty() && has_statistics(data))
        throw graph::error("--calibration-method best measures on samples, and '" + data.calibration[0] +
                           "' holds statistics: give --inputs X.npy too");
    graph::score_options scoring{.metric = data.labels.empty() ? "sqnr" : "top1",
                                 .user = {},
                                 .user_name = {},
                                 .labels = data.load_labels(),
                                 .float_outputs = {},
                                 .session = {.threads = data.threads, .stop = {}}};
    progress bar("comparing calibration methods", 0);
    return graph::choose_method(m, asked.requests, asked.options, seen,
                                data.inputs.empty() ? data.load_calibration(m) : data.load_inputs(m), std::move(scoring),
                                [&](std::size_t done, std::size_t all) { bar.show(done, all); });
}

void compensate(graph::model& m, const data_options& data, const precision_options::asked& asked, graph::quantize_result& result) {
    if ((data.calibration.empty() && data.inputs.empty()) || has_statistics(data))
        throw graph::error("compensated rounding of weights needs the samples themselves: give --calibration X.npy");
    const graph::named_tensors samples = data.load_calibration(m);
    progress bar("rounding weights", 0);
    const auto done = graph::compensate_rounding(m, result.plan, samples, {.threads = data.threads},
                                                 [&](std::size_t n, std::size_t all) { bar.show(n, all); });
    graph::add_to(result.report, done);
    for (const graph::plan_note& n : result.report.notes)
        if (asked.options.strict && n.origin == "weight rounding") throw graph::error(n.subject + ": " + n.text + " (strict)");
}

/// A saved plan is not made, only described.
graph::quantize_result take_saved(const graph::model& m, const precision_options::asked& asked, const graph::calibration& seen,
                                  const std::string& file) {
    graph::quantize_result result{
        *asked.saved, graph::describe_plan(graph::layer_view(m), *asked.saved, seen.empty() ? nullptr : &seen, "saved plan " + file)};
    result.report.notes = asked.notes;
    if (result.report.edges.empty())
        result.report.notes.push_back({graph::plan_note::kind::unchanged, m.label(),
                                       "the plan changes nothing: it has no quantizer for any value of the model", file});
    graph::throw_violations(result.report, asked.options.strict);
    return result;
}
}  // namespace

graph::quantize_result make_plan(graph::model& m, const data_options& data, const precision_options& precision, graph::calibration* seen,
                                 bool full) {
    precision_options::asked asked = precision.read(m);
    graph::calibration own = calibrate_for(m, data, asked, full);
    std::optional<graph::method_choice> method;
    if (asked.options.best_method && !own.empty()) {
        method = choose_method(m, data, asked, own);
        asked.options.method = method->method();
    }
    graph::quantize_result result;
    if (asked.saved) result = take_saved(m, asked, own, precision.plan);
    else result = graph::planner(m, own.empty() ? nullptr : &own).plan(asked.requests, asked.options);
    result.report.method = std::move(method);
    if (asked.options.rounding == graph::weight_rounding::compensated) compensate(m, data, asked, result);
    if (seen != nullptr) *seen = std::move(own);
    return result;
}

}  // namespace qk::tool
