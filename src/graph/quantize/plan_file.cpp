// SPDX-License-Identifier: Apache-2.0
// Definitions of plan_file.hpp: reads and writes requests files and saved plans.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "qk/graph/base/format_text.hpp"
#include "qk/graph/base/names.hpp"
#include "qk/graph/files/atomic_file.hpp"
#include "qk/graph/files/file.hpp"
#include "qk/graph/quantize/encodings.hpp"
#include "qk/graph/quantize/plan_arrays.hpp"
#include "qk/graph/quantize/plan_file.hpp"
#include "qk/option_names.hpp"

namespace qk::graph {

namespace detail {
// Names in the order of the enumerators.
inline constexpr const char* placement_names[] = {"layers", "all", "every"};
inline constexpr const char* rounding_names[] = {"nearest", "compensated", "adaround", "adaquant"};
inline constexpr const char* rotation_names[] = {"none", "hadamard"};
inline constexpr const char* approach_names[] = {"static", "dynamic", "weight_only"};

template <class Value, std::size_t N>
Value named(const char* const (&names)[N], std::string_view text, const char* what) {
    for (std::size_t i = 0; i < N; ++i)
        if (text == names[i]) return static_cast<Value>(i);
    const std::vector<std::string> known(std::begin(names), std::end(names));
    throw error("unknown " + std::string(what) + " '" + std::string(text) + "': it is one of " + comma_separated(known) + "." +
                did_you_mean(text, known));
}

/// Reads the roles of one scope: "activation", "weight", ... are precisions, "accumulator" is the unit that multiplies.
inline void read_roles(const json_cursor& c, const request& base, plan_file& file) {
    std::size_t found = 0;
    if (const auto unit = c.find("accumulator")) {
        if (base.scope == scope::subgraph) unit->fail("a sub-graph has no accumulator: name layers, or an op_type");
        check_accumulator_text(unit->text(), unit->where());
        file.accumulators.push_back({base.scope, base.name, unit->text(), unit->where()});
        ++found;
    }
    for (const role r : {role::activation, role::input, role::output, role::weight, role::bias}) {
        const std::optional<json_cursor> what = c.find(name_of(r));
        if (!what || what->is_null()) {
            found += what.has_value();
            continue;
        }
        request& one = file.requests.emplace_back(base);
        one.role = r;
        one.what = read_precision(*what, r == role::weight || r == role::bias);
        one.origin = what->where();
        ++found;
    }
    if (const auto e = c.find("exclude")) {
        if (found > 0) e->fail("an exclusion goes alone: float32 is all it says");
        if (e->boolean()) {
            request& one = file.requests.emplace_back(base);
            one.role = role::all;
            one.origin = e->where();
        }
        ++found;
    }
    if (found == 0) c.fail("nothing is asked: give activation, input, output, weight, bias, accumulator or exclude");
}

inline void read_request(const json_cursor& c, plan_file& file) {
    std::vector<request>& out = file.requests;
    c.only({"op_type", "layer", "group", "subgraph", "tensor", "model_input", "model_output", "format", "activation", "input", "output",
            "weight", "bias", "accumulator", "exclude"});
    std::vector<std::string> scopes;
    for (const char* s : {"op_type", "layer", "group", "subgraph", "tensor", "model_input", "model_output"})
        if (c.has(s)) scopes.emplace_back(s);
    if (scopes.size() != 1) c.fail("a request has exactly one of op_type, layer, group, subgraph, tensor, model_input, model_output");
    const json_cursor target = c.at(scopes[0]);
    const bool whole = scopes[0] == "tensor" || scopes[0].starts_with("model_");
    if (whole) {  // a single value has no roles: "format" holds the precision
        for (const char* r : {"activation", "input", "output", "weight", "bias", "accumulator"})
            if (c.has(r)) c.at(r).fail("a " + scopes[0] + " has no roles: say \"format\"");
        request base{.role = role::all, .origin = c.where()};
        if (const auto e = c.find("exclude"); e && c.has("format")) e->fail("an exclusion goes alone: float32 is all it says");
        if (!c.has("exclude")) base.what = read_precision(c.at("format"));
        else if (!c.at("exclude").boolean()) return;
        if (scopes[0] == "tensor") {
            base.scope = scope::tensor;
            for (const std::string& name : target.texts()) base.name = name, out.push_back(base);
        } else {
            base.scope = scopes[0] == "model_input" ? scope::model_input : scope::model_output;
            base.index = static_cast<int>(target.integer(-(1 << 20), 1 << 20));
            out.push_back(base);
        }
        return;
    }
    if (const auto f = c.find("format")) f->fail("a layer has several values: say \"activation\" and \"weight\" instead of \"format\"");
    if (scopes[0] == "subgraph") {
        const std::vector<std::string> ends = target.texts();
        if (ends.size() != 2) target.fail("a sub-graph is [first layer, last layer]");
        return read_roles(c, {.scope = scope::subgraph, .name = ends[0], .end = ends[1]}, file);
    }
    const scope s = scopes[0] == "op_type" ? scope::op_type : scopes[0] == "layer" ? scope::layer : scope::group;
    if (s == scope::layer && target.value().is_number()) {
        if (c.has("accumulator")) c.at("accumulator").fail("a layer with an accumulator is named, not counted");
        return read_roles(c, {.scope = s, .position = static_cast<int>(target.integer(-(1 << 20), 1 << 20))}, file);
    }
    const std::vector<std::string> names = target.texts();
    for (const std::string& name : names)
        read_roles(c, {.scope = s, .name = name, .beside = s == scope::op_type ? names : std::vector<std::string>{}}, file);
}

/// Reads what a search may choose from. An entry without alternatives becomes requests as well, for instance for the rounding of weights.
inline void add_choices(const json_cursor& entry, bool everything, plan_file& f) {
    const auto weight = entry.find("weight");
    const bool rounds = weight && weight->is_object() && weight->has("weight_rounding");
    for (choice_request& r : read_choices(entry, everything)) {
        r.settled = r.activation.size() <= 1 && r.weight.size() <= 1;
        const auto ask = [&](role of, const side_choice& side, bool rounded) {
            request one{
                .scope = r.scope, .role = of, .name = r.name, .what = side.what, .origin = r.origin, .beside = r.beside, .of_choice = true};
            if (rounded) one.what.rounding = side.rounding;
            f.requests.push_back(std::move(one));
        };
        if (r.settled) {
            for (const side_choice& side : r.activation) ask(role::activation, side, false);
            for (const side_choice& side : r.weight) ask(role::weight, side, rounds);
        }
        f.choices.push_back(std::move(r));
    }
}

inline precision_plan read_saved_plan(const json_cursor& c) {
    c.only({"qk", "version", "tensors", "edges", "accumulators", "rotation", "scaled", "moved"});
    precision_plan plan;
    if (const auto units = c.find("accumulators"))
        for (const std::string& layer : units->keys()) {
            const json_cursor unit = units->at(layer);
            check_accumulator_text(plan.accumulators[layer] = unit.text(), unit.where());
        }
    plan_arrays arrays;
    if (const auto tensors = c.find("tensors"))
        for (const std::string& name : tensors->keys()) plan.tensors[name] = read_quantizer(tensors->at(name), arrays);
    if (const auto edges = c.find("edges"))
        for (std::size_t i = 0; i < edges->size(); ++i) {
            const json_cursor e = edges->at(i);
            e.only({"tensor", "consumer", "index", "quantizer"});
            edge key{e.at("tensor").text(), e.at("consumer").text(), static_cast<int>(e.at("index").integer(0, 1 << 20))};
            if (!plan.edges.emplace(std::move(key), read_quantizer(e.at("quantizer"), arrays)).second) e.fail("the same edge stands twice");
        }
    if (const auto how = c.find("rotation"))
        plan.rotated = at_place(*how, [&] { return parse_stream_rotation(how->text()); }) == stream_rotation::hadamard;
    if (const auto all = c.find("scaled"))
        for (std::size_t i = 0; i < all->size(); ++i) plan.scaled.push_back(read_scaled(all->at(i), arrays));
    if (const auto moved = c.find("moved"))
        for (const std::string& name : moved->keys()) plan.moved[name] = read_moved(moved->at(name), arrays);
    return plan;
}

/// Reads a boolean, "search", a number, or {"alpha": ...}. true and "search" leave alpha to the search.
inline channel_scaling read_scaling(const json_cursor& c, channel_scaling::rule how) {
    if (c.value().is_boolean()) return channel_scaling{c.boolean() ? how : channel_scaling::rule::none, std::nullopt};
    if (c.is_object()) {
        c.only({"alpha"});
        return read_scaling(c.at("alpha"), how);
    }
    if (c.is_string()) {
        if (c.text() != "search") c.fail("alpha is a number from 0 to 1, or \"search\"");
        return channel_scaling{how, std::nullopt};
    }
    const double alpha = c.number();
    if (!(alpha >= 0 && alpha <= 1)) c.fail("alpha is a number from 0 to 1, or \"search\"");
    return channel_scaling{how, alpha};
}

/// Reads {"relative": X} or {"absolute": X}.
inline tolerable_loss read_criterion(const json_cursor& c) {
    c.only({"relative", "absolute"});
    const bool relative = c.has("relative");
    if (relative == c.has("absolute"))
        c.fail("a criterion is {\"relative\": X} or {\"absolute\": X}: how much worse than the reference's the metric may be");
    const json_cursor value = c.at(relative ? "relative" : "absolute");
    const double x = value.number();
    if (!(x >= 0)) value.fail("how much worse than the reference's the metric may be is a number of at least 0");
    return {x, relative, value.where()};
}

inline void read_model_values(const json_cursor& list, scope s, std::vector<request>& out) {
    if (!list.is_array()) list.fail("an array is expected: a format for each position, null to skip one");
    for (std::size_t i = 0; i < list.size(); ++i)
        if (!list.at(i).is_null())
            out.push_back({.scope = s,
                           .role = role::all,
                           .index = static_cast<int>(i),
                           .what = read_precision(list.at(i)),
                           .origin = list.at(i).where()});
}
}  // namespace detail

const char* name_of(placement p) { return detail::placement_names[static_cast<std::size_t>(p)]; }
const char* name_of(approach a) { return detail::approach_names[static_cast<std::size_t>(a)]; }
placement parse_placement(std::string_view n) { return detail::named<placement>(detail::placement_names, n, "placement"); }
approach parse_approach(std::string_view n) { return detail::named<approach>(detail::approach_names, n, "approach"); }
const char* name_of(weight_rounding r) { return detail::rounding_names[static_cast<std::size_t>(r)]; }
weight_rounding parse_weight_rounding(std::string_view n) {
    return detail::named<weight_rounding>(detail::rounding_names, n, "weight rounding");
}
range_method parse_weight_method(std::string_view n) {
    const auto method = parse_range_method(n);
    if (method == range_method::min_max || method == range_method::mse) return *method;
    throw error("unknown method for the scales of weights '" + std::string(n) + "': it is one of min_max, mse." +
                did_you_mean(n, {"min_max", "mse"}));
}
stream_rotation parse_stream_rotation(std::string_view n) { return detail::named<stream_rotation>(detail::rotation_names, n, "rotation"); }

void plan_file::fill(quantize_options& o) const {
    if (where) o.where = *where;
    if (how) o.how = *how;
    if (dual) o.dual = *dual;
    if (strict) o.strict = *strict;
    if (strict_all) o.strict_all = *strict_all;
    if (per_channel) o.per_channel = *per_channel;
    if (method) o.method = *method;
    if (weight_method) o.weight_method = weight_method;
    if (scale_rule) o.scale_rule = scale_rule;
    if (scale_objective) o.scale_objective = scale_objective;
    o.best_method = best_method;
    if (percentile) o.percentile = *percentile;
    if (target) o.target = target;
    if (rounding) o.rounding = *rounding;
    if (correct_bias) o.correct_bias = *correct_bias;
    if (scaling) o.scaling = *scaling;
    if (rotation) o.rotation = *rotation;
}

/// Is true for AIMET's encodings; those of version 2.0.0 have one list.
static bool holds_encodings(const json_cursor& c) {
    return c.has("activation_encodings") || c.has("param_encodings") || (c.has("encodings") && c.has("version"));
}

static void read_calibration(const json_cursor& v, plan_file& f) {
    v.only({"method", "percentile"});
    if (const auto m = v.find("method")) {
        f.method = parse_range_method(m->text());
        f.best_method = m->text() == "best";
        if (!f.method && !f.best_method)
            m->fail("unknown calibration method '" + m->text() + "'; say one of " + comma_separated(range_method_names({"best"})) + "." +
                    did_you_mean(m->text(), range_method_names({"best"})));
    }
    if (const auto p = v.find("percentile")) f.percentile = p->number();
}

/// Reads what changes the model before it is planned.
static void read_transformations(const json_cursor& c, plan_file& f) {
    if (const auto v = c.find("rotation")) f.rotation = detail::at_place(*v, [&] { return parse_stream_rotation(v->text()); });
    if (const auto v = c.find("smooth_quant")) f.scaling = detail::read_scaling(*v, channel_scaling::rule::smooth_quant);
    if (const auto v = c.find("awq")) {
        if (f.scaling && f.scaling->any()) v->fail("\"smooth_quant\" and \"awq\" exclude each other: both scale the same channels");
        f.scaling = detail::read_scaling(*v, channel_scaling::rule::awq);
    }
}

plan_file parse_plan_file(std::string_view text, const std::string& label) {
    const json_cursor c = json_cursor::parse(text, label);
    if (!c.is_object()) c.fail("a requests file or a saved plan is one JSON object");
    plan_file f;
    if (holds_encodings(c)) {
        f.plan = read_encodings(c);
        return f;
    }
    if (const auto kind = c.find("qk")) {
        if (const auto v = c.find("version")) v->integer(1, 1);
        if (kind->text() == "plan") {
            f.plan = detail::read_saved_plan(c);
            return f;
        }
        if (kind->text() != "requests") kind->fail("\"qk\" is \"plan\" or \"requests\", not '" + kind->text() + "'");
    }
    c.only({"qk",        "version",         "default",         "requests",    "model_inputs", "model_outputs", "placement",
            "approach",  "boundary",        "strict",          "per_channel", "calibration",  "weight_method", "scale_rule",
            "target",    "weight_rounding", "bias_correction", "kv_cache",    "smooth_quant", "awq",           "rotation",
            "criterion", "scale_objective"});
    if (const auto d = c.find("default")) {
        d->only({"activation", "input", "output", "weight", "bias", "accumulator"});
        if (has_choices(*d)) detail::add_choices(*d, true, f);
        else detail::read_roles(*d, {.scope = scope::everything}, f);
    }
    if (const auto v = c.find("kv_cache"))
        f.requests.push_back({.scope = scope::kv_cache, .role = role::all, .what = read_precision(*v), .origin = v->where()});
    read_transformations(c, f);
    if (const auto v = c.find("model_inputs")) detail::read_model_values(*v, scope::model_input, f.requests);
    if (const auto v = c.find("model_outputs")) detail::read_model_values(*v, scope::model_output, f.requests);
    if (const auto v = c.find("requests")) {
        if (!v->is_array()) v->fail("an array of requests is expected");
        for (std::size_t i = 0; i < v->size(); ++i) {
            if (has_choices(v->at(i))) detail::add_choices(v->at(i), false, f);
            else detail::read_request(v->at(i), f);
        }
    }
    if (const auto v = c.find("criterion")) f.criterion = detail::read_criterion(*v);
    if (const auto v = c.find("placement")) f.where = detail::at_place(*v, [&] { return parse_placement(v->text()); });
    if (const auto v = c.find("approach")) f.how = detail::at_place(*v, [&] { return parse_approach(v->text()); });
    if (const auto v = c.find("weight_rounding")) f.rounding = detail::at_place(*v, [&] { return parse_weight_rounding(v->text()); });
    if (const auto v = c.find("bias_correction")) f.correct_bias = v->boolean();
    if (const auto v = c.find("boundary")) {
        const std::string rule = v->text();
        if (rule != "wider" && rule != "dual") v->fail("\"boundary\" is \"wider\" or \"dual\", not '" + rule + "'");
        f.dual = rule == "dual";
    }
    if (const auto v = c.find("strict")) {
        if (v->is_string() && v->text() != "all") v->fail("\"strict\" is true, false or \"all\", not '" + v->text() + "'");
        f.strict = v->is_string() || v->boolean();
        f.strict_all = v->is_string();
    }
    if (const auto v = c.find("per_channel")) f.per_channel = v->boolean();
    if (const auto v = c.find("calibration")) read_calibration(*v, f);
    if (const auto v = c.find("weight_method")) f.weight_method = detail::at_place(*v, [&] { return parse_weight_method(v->text()); });
    if (const auto v = c.find("scale_rule")) f.scale_rule = detail::at_place(*v, [&] { return parsed_value(parse_scale_rule(v->text())); });
    if (const auto v = c.find("scale_objective"))
        f.scale_objective = detail::at_place(*v, [&] { return parsed_value(parse_scale_objective(v->text())); });
    if (const auto v = c.find("target")) {
        if (v->is_string()) {
            f.target = builtin_target(v->text());
            if (!f.target)
                v->fail("unknown target '" + v->text() +
                        "': \"onnxruntime\", or an object with \"name\" and, if it has limits, \"operators\"");
        } else {
            f.target = read_target(*v);
        }
    }
    return f;
}

plan_file load_plan_file(const std::filesystem::path& file) { return parse_plan_file(read_file(file), file.string()); }

nlohmann::ordered_json to_json(const precision_plan& plan) {
    nlohmann::ordered_json j{
        {"qk", "plan"}, {"version", 1}, {"tensors", nlohmann::ordered_json::object()}, {"edges", nlohmann::ordered_json::array()}};
    for (const auto& [name, q] : plan.tensors) j["tensors"][name] = to_json(q);
    for (const auto& [e, q] : plan.edges)
        j["edges"].push_back({{"tensor", e.tensor}, {"consumer", e.consumer}, {"index", e.index}, {"quantizer", to_json(q)}});
    if (!plan.accumulators.empty()) j["accumulators"] = plan.accumulators;
    if (plan.rotated) j["rotation"] = detail::rotation_names[static_cast<std::size_t>(stream_rotation::hadamard)];
    for (const scaled_channels& one : plan.scaled)
        j["scaled"].push_back({{"tensor", one.tensor}, {"layers", one.layers}, {"factors", one.factors}, {"weights", one.weights}});
    for (const auto& [name, moved] : plan.moved) j["moved"][name] = {{"place", moved.place}, {"value", moved.value}};
    return j;
}
/// Returns a quantizer's JSON for a report. A long list of scales is reduced to its count, lowest and highest; a saved plan holds it all.
static nlohmann::ordered_json summary_of(const quantizer& q) {
    if (q.scale.size() <= longest_list(q)) return to_json(q);
    quantizer rest = q;
    rest.scale.assign(1, 1.0f), rest.zero_point.clear();
    nlohmann::ordered_json j = to_json(rest);
    const auto [low, high] = std::minmax_element(q.scale.begin(), q.scale.end());
    j["scale"] = {{"count", q.scale.size()}, {"lowest", *low}, {"highest", *high}};
    return j;
}

nlohmann::ordered_json to_json(const quantize_report& r) {
    using json = nlohmann::ordered_json;
    const auto number = [](double v) { return std::isfinite(v) ? json(v) : json(); };
    constexpr const char* parts[] = {"none", "input", "weight", "bias"};
    json notes = json::array(), edges = json::array();
    for (const plan_note& n : r.notes)
        notes.push_back({{"kind", name_of(n.what)}, {"subject", n.subject}, {"text", n.text}, {"origin", n.origin}});
    for (const edge_report& e : r.edges)
        edges.push_back({{"tensor", e.edge.tensor},
                         {"consumer", e.edge.consumer},
                         {"index", e.edge.index},
                         {"op_type", e.op_type},
                         {"role", e.edge.consumer.empty() ? "model_output" : parts[static_cast<int>(e.part)]},
                         {"quantizer", summary_of(e.how)},
                         {"range", {number(static_cast<double>(e.range.lo)), number(static_cast<double>(e.range.hi))}},
                         {"elements", e.elements},
                         {"sqnr", number(e.sqnr)},
                         {"why", e.why},
                         {"origin", e.origin},
                         {"module", e.module}});
    json all = {{"notes", notes}, {"edges", edges}, {"weight_bytes", r.quantized_bits / 8}, {"float_weight_bytes", r.float_bits / 8}};
    if (r.method) {
        json tried = json::array();
        for (const method_choice::trial& t : r.method->tried)
            tried.push_back({{"method", name_of(t.method)}, {"metric", number(t.metric)}, {"error", number(t.error)}});
        all["calibration_method"] = {
            {"chosen", name_of(r.method->method())}, {"metric", r.method->metric}, {"samples", r.method->samples}, {"tried", tried}};
    }
    return all;
}

void save_plan(const precision_plan& plan, const std::filesystem::path& file) {
    output_set out;
    save_plan(plan, out, file);
    out.commit();
}

}  // namespace qk::graph
