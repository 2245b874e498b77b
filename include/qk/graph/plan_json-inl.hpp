// SPDX-License-Identifier: Apache-2.0
// Definitions of plan_json.hpp.
#pragma once

#include <onnx/onnx_pb.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "qk/graph/encodings.hpp"
#include "qk/graph/file.hpp"
#include "qk/graph/format_text.hpp"
#include "qk/graph/pending_file.hpp"
#include "qk/graph/plan_json.hpp"
#include "qk/option_names.hpp"

namespace qk::graph {

namespace detail {
inline constexpr std::array<std::pair<placement, const char*>, 3> placement_names{
    {{placement::layers, "layers"}, {placement::all, "all"}, {placement::every, "every"}}};
inline constexpr std::array<std::pair<approach, const char*>, 3> approach_names{
    {{approach::static_ranges, "static"}, {approach::dynamic, "dynamic"}, {approach::weight_only, "weight_only"}}};

template <class Value, class Table>
Value named(const Table& table, std::string_view text, const char* what) {
    std::string list;
    for (const auto& [value, name] : table) {
        if (text == name) return value;
        list += (list.empty() ? "" : ", ") + std::string(name);
    }
    throw error("unknown " + std::string(what) + " '" + std::string(text) + "': it is one of " + list);
}

/// Runs f, and gives its error the place in the file.
template <class Function>
auto at_place(const json_cursor& c, const Function& f) {
    try {
        return f();
    } catch (const error& e) {
        c.fail(e.what());
    }
}

template <class T>
T read_option(const json_cursor& c, parsed<T> (*parse)(std::string_view)) {
    const std::string word = c.text();
    const parsed<T> p = parse(word);
    if (!p) c.fail(std::string(p.error.view()));
    return *p;
}

inline qk::format read_format(const json_cursor& c) {
    return at_place(c, [&] { return format_from(c.text()); });
}

/// "activation", "weight", ... of one scope, each a precision.
inline void read_roles(const json_cursor& c, const request& base, std::vector<request>& out) {
    std::size_t found = 0;
    for (const role r : {role::activation, role::input, role::output, role::weight, role::bias}) {
        const std::optional<json_cursor> what = c.find(name_of(r));
        if (!what || what->is_null()) {
            found += what.has_value();
            continue;
        }
        request one = base;
        one.role = r;
        one.what = read_precision(*what);
        one.origin = what->where();
        out.push_back(std::move(one));
        ++found;
    }
    if (const auto e = c.find("exclude")) {
        if (found > 0) e->fail("an exclusion goes alone: float32 is all it says");
        if (e->boolean()) {
            request one = base;
            one.role = role::all;
            one.origin = e->where();
            out.push_back(std::move(one));
        }
        ++found;
    }
    if (found == 0) c.fail("nothing is asked: give activation, input, output, weight, bias or exclude");
}

inline void read_request(const json_cursor& c, std::vector<request>& out) {
    c.only({"op_type", "layer", "group", "subgraph", "tensor", "model_input", "model_output", "format", "activation", "input", "output", "weight", "bias", "exclude"});
    std::vector<std::string> scopes;
    for (const char* s : {"op_type", "layer", "group", "subgraph", "tensor", "model_input", "model_output"})
        if (c.has(s)) scopes.emplace_back(s);
    if (scopes.size() != 1) c.fail("a request has exactly one of op_type, layer, group, subgraph, tensor, model_input, model_output");
    const json_cursor target = c.at(scopes[0]);
    const bool whole = scopes[0] == "tensor" || scopes[0].starts_with("model_");
    if (whole) {  // one value: "format" is the precision, or an object of it
        for (const char* r : {"activation", "input", "output", "weight", "bias"})
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
            base.index = static_cast<int>(target.integer(0, 1 << 20));
            out.push_back(base);
        }
        return;
    }
    if (const auto f = c.find("format")) f->fail("a layer has several values: say \"activation\" and \"weight\" instead of \"format\"");
    if (scopes[0] == "subgraph") {
        const std::vector<std::string> ends = target.texts();
        if (ends.size() != 2) target.fail("a sub-graph is [first layer, last layer]");
        return read_roles(c, {.scope = scope::subgraph, .name = ends[0], .end = ends[1]}, out);
    }
    const scope s = scopes[0] == "op_type" ? scope::op_type : scopes[0] == "layer" ? scope::layer : scope::group;
    for (const std::string& name : target.texts()) read_roles(c, {.scope = s, .name = name}, out);
}

inline precision_plan read_saved_plan(const json_cursor& c) {
    c.only({"qk", "version", "tensors", "edges"});
    precision_plan plan;
    if (const auto tensors = c.find("tensors"))
        for (const std::string& name : tensors->keys()) plan.tensors[name] = read_quantizer(tensors->at(name));
    if (const auto edges = c.find("edges"))
        for (std::size_t i = 0; i < edges->size(); ++i) {
            const json_cursor e = edges->at(i);
            e.only({"tensor", "consumer", "index", "quantizer"});
            edge key{e.at("tensor").text(), e.at("consumer").text(), static_cast<int>(e.at("index").integer(0, 1 << 20))};
            if (!plan.edges.emplace(std::move(key), read_quantizer(e.at("quantizer"))).second) e.fail("the same edge stands twice");
        }
    return plan;
}

inline void read_model_values(const json_cursor& list, scope s, std::vector<request>& out) {
    if (!list.is_array()) list.fail("an array is expected: a format for each position, null to skip one");
    for (std::size_t i = 0; i < list.size(); ++i)
        if (!list.at(i).is_null())
            out.push_back({.scope = s, .role = role::all, .index = static_cast<int>(i), .what = read_precision(list.at(i)), .origin = list.at(i).where()});
}
}  // namespace detail

QK_GRAPH_INLINE const char* name_of(placement p) { return detail::placement_names[static_cast<std::size_t>(p)].second; }
QK_GRAPH_INLINE const char* name_of(approach a) { return detail::approach_names[static_cast<std::size_t>(a)].second; }
QK_GRAPH_INLINE placement parse_placement(std::string_view n) { return detail::named<placement>(detail::placement_names, n, "placement"); }
QK_GRAPH_INLINE approach parse_approach(std::string_view n) { return detail::named<approach>(detail::approach_names, n, "approach"); }

QK_GRAPH_INLINE void plan_file::fill(quantize_options& o) const {
    if (where) o.where = *where;
    if (how) o.how = *how;
    if (dual) o.dual = *dual;
    if (strict) o.strict = *strict;
    if (per_channel) o.per_channel = *per_channel;
    if (method) o.method = *method;
    if (percentile) o.percentile = *percentile;
    if (target) o.target = target;
}

QK_GRAPH_INLINE qk::semantics read_semantics(const json_cursor& c) {
    if (c.is_string()) return detail::read_option(c, +[](std::string_view w) { return parse_semantics(w); });
    c.only({"base", "rounding", "scale_rule", "overflow", "integer_mode", "zero_point_before", "mxint_lowest", "flush_inputs", "flush_outputs", "seed"});
    qk::semantics s = qk::semantics::ocp;
    if (const auto v = c.find("base")) s = detail::read_option(*v, +[](std::string_view w) { return parse_semantics(w); });
    if (const auto v = c.find("rounding")) s.rounding = detail::read_option(*v, +[](std::string_view w) { return parse_rounding(w); });
    if (const auto v = c.find("scale_rule")) s.scale_rule = detail::read_option(*v, +[](std::string_view w) { return parse_scale_rule(w); });
    if (const auto v = c.find("overflow")) s.overflow = detail::read_option(*v, +[](std::string_view w) { return parse_overflow(w); });
    if (const auto v = c.find("integer_mode")) s.integer_mode = detail::read_option(*v, +[](std::string_view w) { return parse_integer_mode(w); });
    if (const auto v = c.find("zero_point_before")) s.zero_point_before = v->boolean();
    if (const auto v = c.find("mxint_lowest")) s.mxint_uses_lowest = v->boolean();
    if (const auto v = c.find("flush_inputs")) s.flush_inputs = v->boolean();
    if (const auto v = c.find("flush_outputs")) s.flush_outputs = v->boolean();
    if (const auto v = c.find("seed")) s.seed = static_cast<std::uint64_t>(v->integer(0, std::int64_t{1} << 53));
    return s;
}

QK_GRAPH_INLINE nlohmann::ordered_json to_json(const qk::semantics& s) {
    for (const auto& entry : semantics_names)
        if (entry.value == s) return std::string(entry.name);
    // A base that differs in nothing but what this file form can say.
    for (const auto& entry : semantics_names) {
        qk::semantics b = entry.value;
        nlohmann::ordered_json j{{"base", std::string(entry.name)}};
        const auto set = [&](const char* key, auto& mine, const auto& wanted, auto text) {
            if (mine == wanted) return;
            mine = wanted;
            j[key] = text;
        };
        set("rounding", b.rounding, s.rounding, std::string(to_text(s.rounding)));
        set("scale_rule", b.scale_rule, s.scale_rule, std::string(to_text(s.scale_rule)));
        if (s.overflow != overflow_rule::by_width) set("overflow", b.overflow, s.overflow, std::string(to_text(s.overflow)));
        set("integer_mode", b.integer_mode, s.integer_mode, std::string(to_text(s.integer_mode)));
        set("zero_point_before", b.zero_point_before, s.zero_point_before, s.zero_point_before);
        set("mxint_lowest", b.mxint_uses_lowest, s.mxint_uses_lowest, s.mxint_uses_lowest);
        set("flush_inputs", b.flush_inputs, s.flush_inputs, s.flush_inputs);
        set("flush_outputs", b.flush_outputs, s.flush_outputs, s.flush_outputs);
        set("seed", b.seed, s.seed, s.seed);
        if (b == s) return j;
    }
    throw error("these semantics have no textual form: they are none of the named ones with a change of rounding, scale rule, overflow, integer mode or flushing");
}

QK_GRAPH_INLINE precision read_precision(const json_cursor& c) {
    if (c.is_string()) return precision{.format = detail::read_format(c)};
    c.only({"format", "symmetric", "per_channel", "block_size", "method", "percentile", "pow2", "range", "scale", "zero_point", "semantics", "dynamic"});
    precision p{.format = detail::read_format(c.at("format"))};
    if (const auto v = c.find("symmetric")) p.symmetric = v->boolean();
    if (const auto v = c.find("per_channel")) p.per_channel = v->boolean();
    if (const auto v = c.find("block_size")) {
        p.block_size = static_cast<int>(v->integer(1, 1 << 24));
        if (is_block_format(p.format)) v->fail("the block size of " + to_string(p.format) + " is part of the format");
    }
    if (const auto v = c.find("method")) {
        p.method = parse_range_method(v->text());
        if (!p.method) v->fail("unknown calibration method '" + v->text() + "': min_max, moving_average, percentile, layerwise_percentile, entropy or mse");
    }
    if (const auto v = c.find("percentile")) {
        p.percentile = v->number();
        if (!(*p.percentile > 50 && *p.percentile <= 100)) v->fail("a percentile above 50 and at most 100 is expected");
    }
    if (const auto v = c.find("pow2")) {
        if (v->value().is_boolean()) {
            if (v->boolean()) p.pow2 = pow2_rule::non_overflow;
        } else {
            p.pow2 = parse_pow2_rule(v->text());
            if (!p.pow2) v->fail("unknown rule for power-of-two scales '" + v->text() + "': non_overflow, nearest or min_mse");
        }
        integer* f = std::get_if<integer>(&p.format);
        if (p.pow2 && f == nullptr) v->fail("only integers have power-of-two scales to choose; " + to_string(p.format) + " is none");
        if (p.pow2) f->pow2 = true;
    }
    if (const auto v = c.find("range")) {
        const std::vector<float> r = v->floats();
        if (r.size() != 2 || r[0] > r[1]) v->fail("a range is [lowest, highest]");
        p.range = {r[0], r[1]};
    }
    if (const auto v = c.find("scale")) {
        p.scale = v->floats();
        for (const float s : p.scale)
            if (!(s > 0)) v->fail("scales are above 0");
        if (is_block_format(p.format)) v->fail(to_string(p.format) + " makes its own scales");
    }
    if (const auto v = c.find("zero_point")) {
        p.zero_point = v->integers();
        const integer* f = std::get_if<integer>(&p.format);
        if (f == nullptr || p.scale.empty()) v->fail("a zero point needs an integer format and a scale");
        for (const std::int64_t z : p.zero_point)
            if (z < qmin(*f) || z > qmax(*f)) v->fail("zero point " + std::to_string(z) + " is no code of " + to_string(p.format));
    }
    if (const auto v = c.find("semantics")) p.semantics = read_semantics(*v);
    if (const auto v = c.find("dynamic")) p.dynamic = v->boolean();
    return p;
}

QK_GRAPH_INLINE quantizer read_quantizer(const json_cursor& c) {
    c.only({"format", "axis", "flatten", "scale", "zero_point", "block_size", "semantics", "dynamic"});
    quantizer q{.format = detail::read_format(c.at("format")), .scale = {}, .zero_point = {}};
    if (const auto v = c.find("axis")) q.axis = static_cast<int>(v->integer(-16, 15));
    if (const auto v = c.find("flatten")) q.flatten = v->boolean();
    if (const auto v = c.find("scale")) {
        q.scale = v->floats();
        for (const float s : q.scale)
            if (!(s > 0)) v->fail("scales are above 0");
    }
    if (const auto v = c.find("zero_point")) {
        q.zero_point = v->integers();
        const integer* f = std::get_if<integer>(&q.format);
        if (f == nullptr) v->fail("only integers have zero points");
        for (const std::int64_t z : q.zero_point)
            if (z < qmin(*f) || z > qmax(*f)) v->fail("zero point " + std::to_string(z) + " is no code of " + to_string(q.format));
        if (q.zero_point.size() != q.scale.size()) v->fail("there are " + std::to_string(q.scale.size()) + " scales and " + std::to_string(q.zero_point.size()) + " zero points");
    }
    if (const auto v = c.find("block_size")) q.block_size = static_cast<int>(v->integer(0, 1 << 24));
    if (const auto v = c.find("semantics")) q.semantics = read_semantics(*v);
    if (const auto v = c.find("dynamic")) q.dynamic = v->boolean();
    if (is_integer_format(q.format) && q.scale.empty() && !q.dynamic) c.fail("an integer needs a scale, or \"dynamic\": true");
    return q;
}

QK_GRAPH_INLINE plan_file parse_plan_file(std::string_view text, const std::string& label) {
    const json_cursor c = json_cursor::parse(text, label);
    if (!c.is_object()) c.fail("a requests file or a saved plan is one JSON object");
    plan_file f;
    if (c.has("activation_encodings") || c.has("param_encodings")) {
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
    c.only({"qk", "version", "default", "requests", "model_inputs", "model_outputs", "placement", "approach", "boundary", "strict", "per_channel", "calibration", "target"});
    if (const auto d = c.find("default")) {
        d->only({"activation", "input", "output", "weight", "bias"});
        detail::read_roles(*d, {.scope = scope::everything}, f.requests);
    }
    if (const auto v = c.find("model_inputs")) detail::read_model_values(*v, scope::model_input, f.requests);
    if (const auto v = c.find("model_outputs")) detail::read_model_values(*v, scope::model_output, f.requests);
    if (const auto v = c.find("requests"))
        for (std::size_t i = 0; i < (v->is_array() ? v->size() : (v->fail("an array of requests is expected"), 0)); ++i) detail::read_request(v->at(i), f.requests);
    if (const auto v = c.find("placement")) f.where = detail::at_place(*v, [&] { return parse_placement(v->text()); });
    if (const auto v = c.find("approach")) f.how = detail::at_place(*v, [&] { return parse_approach(v->text()); });
    if (const auto v = c.find("boundary")) {
        const std::string rule = v->text();
        if (rule != "wider" && rule != "dual") v->fail("\"boundary\" is \"wider\" or \"dual\", not '" + rule + "'");
        f.dual = rule == "dual";
    }
    if (const auto v = c.find("strict")) f.strict = v->boolean();
    if (const auto v = c.find("per_channel")) f.per_channel = v->boolean();
    if (const auto v = c.find("calibration")) {
        v->only({"method", "percentile"});
        if (const auto m = v->find("method")) {
            f.method = parse_range_method(m->text());
            if (!f.method) m->fail("unknown calibration method '" + m->text() + "': min_max, moving_average, percentile, layerwise_percentile, entropy or mse");
        }
        if (const auto p = v->find("percentile")) f.percentile = p->number();
    }
    if (const auto v = c.find("target")) {
        if (v->is_string()) {
            f.target = builtin_target(v->text());
            if (!f.target) v->fail("unknown target '" + v->text() + "': \"onnxruntime\", or an object with \"name\" and \"operators\"");
        } else {
            f.target = read_target(*v);
        }
    }
    return f;
}

QK_GRAPH_INLINE plan_file load_plan_file(const std::filesystem::path& file) { return parse_plan_file(read_file(file), file.string()); }

QK_GRAPH_INLINE target_profile read_target(const json_cursor& c) {
    c.only({"name", "operators"});
    target_profile t{.name = c.at("name").text(), .operators = {}};
    const json_cursor operators = c.at("operators");
    const auto formats = [](const json_cursor& list) {
        std::vector<qk::format> all;
        if (!list.is_array()) list.fail("an array of formats is expected");
        for (std::size_t i = 0; i < list.size(); ++i) all.push_back(detail::read_format(list.at(i)));
        return all;
    };
    for (const std::string& op : operators.keys()) {
        const json_cursor o = operators.at(op);
        o.only({"activation", "weight"});
        if (const auto v = o.find("activation")) t.operators[op].activation = formats(*v);
        if (const auto v = o.find("weight")) t.operators[op].weight = formats(*v);
    }
    return t;
}
QK_GRAPH_INLINE target_profile load_target(const std::filesystem::path& file) {
    if (auto known = builtin_target(file.string())) return *known;
    return read_target(json_cursor::load(file));
}

QK_GRAPH_INLINE std::optional<target_profile> builtin_target(std::string_view name) {
    if (name != "onnxruntime") return std::nullopt;
    // Pairs that its QDQ fusion has integer kernels for (qdq_selectors.cc), and the float conversions that it runs.
    const std::vector<qk::format> eight{int8, uint8}, data{int8, uint8, int16, uint16, fp16, bf16, fp8_e4m3fn, fp8_e5m2};
    const std::vector<qk::format> product{int8, uint8, fp16}, weights{int8, uint8, fp16}, packed{int8, uint8, int4, uint4, fp16};
    return target_profile{"onnxruntime", {{"Conv", {product, weights}}, {"ConvTranspose", {{fp16}, {int8, uint8, fp16}}}, {"Gemm", {product, weights}},
                                          {"MatMul", {product, packed}}, {"Add", {eight, {}}}, {"Mul", {eight, {}}}, {"AveragePool", {eight, {}}},
                                          {"GlobalAveragePool", {eight, {}}}, {"Concat", {eight, {}}}, {"*", {data, {}}}}};
}

QK_GRAPH_INLINE nlohmann::ordered_json to_json(const quantizer& q) {
    nlohmann::ordered_json j{{"format", to_string(q.format)}, {"axis", q.axis}};
    if (q.flatten) j["flatten"] = true;
    if (!q.scale.empty()) j["scale"] = q.scale;
    if (!q.zero_point.empty()) j["zero_point"] = q.zero_point;
    if (q.block_size != 0) j["block_size"] = q.block_size;
    if (!(q.semantics == qk::semantics::ocp)) j["semantics"] = to_json(q.semantics);
    if (q.dynamic) j["dynamic"] = true;
    return j;
}
QK_GRAPH_INLINE nlohmann::ordered_json to_json(const precision_plan& plan) {
    nlohmann::ordered_json j{{"qk", "plan"}, {"version", 1}, {"tensors", nlohmann::ordered_json::object()}, {"edges", nlohmann::ordered_json::array()}};
    for (const auto& [name, q] : plan.tensors) j["tensors"][name] = to_json(q);
    for (const auto& [e, q] : plan.edges) j["edges"].push_back({{"tensor", e.tensor}, {"consumer", e.consumer}, {"index", e.index}, {"quantizer", to_json(q)}});
    return j;
}
QK_GRAPH_INLINE nlohmann::ordered_json to_json(const quantize_report& r) {
    using json = nlohmann::ordered_json;
    const auto number = [](double v) { return std::isfinite(v) ? json(v) : json(); };
    constexpr const char* parts[] = {"none", "input", "weight", "bias"};
    json notes = json::array(), edges = json::array();
    for (const plan_note& n : r.notes) notes.push_back({{"kind", name_of(n.what)}, {"subject", n.subject}, {"text", n.text}, {"origin", n.origin}});
    for (const edge_report& e : r.edges)
        edges.push_back({{"tensor", e.edge.tensor}, {"consumer", e.edge.consumer}, {"index", e.edge.index}, {"op_type", e.op_type},
                         {"role", e.edge.consumer.empty() ? "model_output" : parts[static_cast<int>(e.part)]}, {"quantizer", to_json(e.how)},
                         {"range", {number(static_cast<double>(e.range.lo)), number(static_cast<double>(e.range.hi))}}, {"elements", e.elements},
                         {"sqnr", number(e.sqnr)}, {"why", e.why}, {"origin", e.origin}});
    return {{"notes", notes}, {"edges", edges}, {"weight_bytes", r.quantized_bits / 8}, {"float_weight_bytes", r.float_bits / 8}};
}

QK_GRAPH_INLINE void save_plan(const precision_plan& plan, const std::filesystem::path& file) { write_file(file, to_json(plan).dump(1) + "\n"); }

QK_GRAPH_INLINE void check_plan(const precision_plan& plan, const model& m, const std::string& label) {
    std::vector<std::string> tensors, nodes;
    for (const value_info& i : m.inputs()) tensors.push_back(i.name);
    for (const auto& i : m.graph().initializer()) tensors.push_back(i.name());
    for (const auto& n : m.graph().node()) {
        nodes.push_back(n.name());
        for (const std::string& o : n.output()) tensors.push_back(o);
    }
    std::sort(tensors.begin(), tensors.end());
    const auto check = [&](const std::string& tensor, const quantizer& q) {
        if (!std::binary_search(tensors.begin(), tensors.end(), tensor))
            throw error(label + ": the model has no tensor '" + tensor + "'." + did_you_mean(tensor, tensors));
        if (!m.is_constant(tensor) || q.scale.size() <= 1 || q.block_size > 0) return;
        const dims shape = m.constant(tensor).shape();
        const std::size_t axis = resolve_axis(q.axis, shape.size());
        if (shape.empty() || static_cast<std::size_t>(shape[axis]) != q.scale.size())
            throw error(label + ": tensor '" + tensor + "' has shape " + to_string(shape) + " and " + std::to_string(q.scale.size()) + " scales along axis " + std::to_string(axis));
    };
    for (const auto& [name, q] : plan.tensors) check(name, q);
    for (const auto& [e, q] : plan.edges) {
        check(e.tensor, q);
        if (e.consumer.empty()) {
            if (e.index < 0 || static_cast<std::size_t>(e.index) >= m.outputs().size())
                throw error(label + ": the model has no output number " + std::to_string(e.index));
            continue;
        }
        const int n = m.node_index(e.consumer);
        if (n < 0) throw error(label + ": the model has no layer '" + e.consumer + "'." + did_you_mean(e.consumer, nodes));
        const auto& node = m.graph().node(n);
        if (e.index < 0 || e.index >= node.input_size() || node.input(e.index) != e.tensor)
            throw error(label + ": input " + std::to_string(e.index) + " of layer '" + e.consumer + "' is not tensor '" + e.tensor + "'");
    }
}

}  // namespace qk::graph
