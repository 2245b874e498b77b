// SPDX-License-Identifier: Apache-2.0
// Definitions of plan_file.hpp: reads and writes a precision, a quantizer, semantics or a target profile as JSON.
#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "qk/graph/base/format_text.hpp"
#include "qk/graph/base/names.hpp"
#include "qk/graph/quantize/plan_arrays.hpp"
#include "qk/graph/quantize/plan_file.hpp"
#include "qk/option_names.hpp"

namespace qk::graph {

namespace detail {

template <class T>
T read_option(const json_cursor& c, parsed<T> (*parse)(std::string_view)) {
    const parsed<T> p = parse(c.text());
    if (!p) c.fail(std::string(p.error.view()));
    return *p;
}

/// Reads a name that stands for true or false.
inline bool one_of(const json_cursor& c, const char* other_key, const std::map<std::string, bool>& names) {
    if (c.is_array()) c.fail("a list of choices is for `qk search` and `qk sensitivity`, in entries of an op_type, a layer or a group");
    std::vector<std::string> known;
    for (const auto& [name, value] : names) {
        if (c.text() == name) return value;
        known.push_back(name);
    }
    c.fail("'" + c.text() + "' is none of " + comma_separated(known) + " (or say \"" + other_key + "\")." + did_you_mean(c.text(), known));
}

inline qk::format read_format(const json_cursor& c) {
    return at_place(c, [&] { return format_from(c.text()); });
}

}  // namespace detail

std::vector<std::string> range_method_names(const std::vector<std::string>& more) {
    std::vector<std::string> names;
    for (const range_method m : all_range_methods()) names.emplace_back(name_of(m));
    names.insert(names.end(), more.begin(), more.end());
    return names;
}

qk::semantics read_semantics(const json_cursor& c) {
    if (c.is_string()) return detail::read_option(c, parse_semantics);
    c.only({"base", "rounding", "scale_rule", "scale_objective", "overflow", "integer_mode", "zero_point_before", "mxint_lowest",
            "flush_inputs", "flush_outputs", "seed", "random_bits"});
    qk::semantics s = qk::semantics::ocp;
    if (const auto v = c.find("base")) s = detail::read_option(*v, parse_semantics);
    if (const auto v = c.find("rounding")) s.rounding = detail::read_option(*v, parse_rounding);
    if (const auto v = c.find("scale_rule")) s.scale_rule = detail::read_option(*v, parse_scale_rule);
    if (const auto v = c.find("scale_objective")) s.scale_objective = detail::read_option(*v, parse_scale_objective);
    if (const auto v = c.find("overflow")) s.overflow = detail::read_option(*v, parse_overflow);
    if (const auto v = c.find("integer_mode")) s.integer_mode = detail::read_option(*v, parse_integer_mode);
    if (const auto v = c.find("zero_point_before")) s.zero_point_before = v->boolean();
    if (const auto v = c.find("mxint_lowest")) s.mxint_uses_lowest = v->boolean();
    if (const auto v = c.find("flush_inputs")) s.flush_inputs = v->boolean();
    if (const auto v = c.find("flush_outputs")) s.flush_outputs = v->boolean();
    if (const auto v = c.find("random_bits")) s.stochastic_bits = static_cast<int>(v->integer(1, 32));
    if (const auto v = c.find("seed")) s.seed = static_cast<std::uint64_t>(v->integer(0, std::int64_t{1} << 62));
    return s;
}

nlohmann::ordered_json to_json(const qk::semantics& s) {
    for (const auto& entry : semantics_names)
        if (entry.value == s) return std::string(entry.name);
    // Finds a base that differs only in what this file form can express.
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
        set("scale_objective", b.scale_objective, s.scale_objective, std::string(to_text(s.scale_objective)));
        if (s.overflow != overflow_rule::by_width) set("overflow", b.overflow, s.overflow, std::string(to_text(s.overflow)));
        set("integer_mode", b.integer_mode, s.integer_mode, std::string(to_text(s.integer_mode)));
        set("zero_point_before", b.zero_point_before, s.zero_point_before, s.zero_point_before);
        set("mxint_lowest", b.mxint_uses_lowest, s.mxint_uses_lowest, s.mxint_uses_lowest);
        set("flush_inputs", b.flush_inputs, s.flush_inputs, s.flush_inputs);
        set("flush_outputs", b.flush_outputs, s.flush_outputs, s.flush_outputs);
        set("seed", b.seed, s.seed, s.seed);
        set("random_bits", b.stochastic_bits, s.stochastic_bits, s.stochastic_bits);
        if (b == s) return j;
    }
    throw error(
        "these semantics have no textual form: they are none of the named ones with a change of rounding, scale rule, overflow, integer "
        "mode or flushing");
}

precision read_precision(const json_cursor& c, bool weight) {
    if (c.is_string()) return detail::at_place(c, [&] { return parse_side(c.text(), weight); });
    c.only({"format", "symmetric", "per_channel", "block_size", "method", "percentile", "pow2", "range", "scale", "zero_point", "semantics",
            "scale_rule", "scale_objective", "dynamic", "scheme", "granularity"});
    precision p{.format = detail::read_format(c.at("format"))};
    if (const auto v = c.find("symmetric")) p.symmetric = v->boolean();
    if (const auto v = c.find("per_channel")) p.per_channel = v->boolean();
    // Intel Neural Compressor's words for "symmetric" and "per_channel".
    if (const auto v = c.find("scheme")) p.symmetric = detail::one_of(*v, "symmetric", {{"sym", true}, {"asym", false}});
    if (const auto v = c.find("granularity"))
        p.per_channel = detail::one_of(*v, "per_channel", {{"per_channel", true}, {"per_tensor", false}});
    if (const auto v = c.find("block_size")) {
        p.block_size = static_cast<int>(v->integer(1, 1 << 24));
        if (is_block_format(p.format)) v->fail("the block size of " + to_string(p.format) + " is part of the format");
    }
    if (const auto v = c.find("method")) {
        p.method = parse_range_method(v->text());
        if (!p.method)
            v->fail("unknown calibration method '" + v->text() + "'; say one of " + comma_separated(range_method_names()) + "." +
                    did_you_mean(v->text(), range_method_names()));
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
            if (!p.pow2)
                v->fail("unknown rule for power-of-two scales '" + v->text() + "': non_overflow, nearest or min_mse." +
                        did_you_mean(v->text(), {"non_overflow", "nearest", "min_mse"}));
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
    if (const auto v = c.find("semantics")) {
        p.semantics = read_semantics(*v);
        // A rounding or an overflow alone names no rule for scales.
        if (v->is_object() && !v->has("base") && !v->has("scale_rule")) p.scale_rule = default_scale_rule(p.format);
    }
    if (const auto v = c.find("scale_rule")) p.scale_rule = detail::read_option(*v, parse_scale_rule);
    if (const auto v = c.find("scale_objective")) p.scale_objective = detail::read_option(*v, parse_scale_objective);
    if (const auto v = c.find("dynamic")) p.dynamic = v->boolean();
    return p;
}

namespace detail {

/// Returns a list of numbers from the JSON itself or from the array that it refers to.
inline std::vector<float> floats_of(const json_cursor& c, plan_arrays& arrays) {
    if (!plan_arrays::refers(c)) return c.floats();
    const tensor& t = arrays.at(c);
    if (t.type() != data_type::float32) c.fail("an array of float32 is expected");
    return {t.as<float>().begin(), t.as<float>().end()};
}
inline std::vector<std::int64_t> integers_of(const json_cursor& c, plan_arrays& arrays) {
    if (!plan_arrays::refers(c)) return c.integers();
    const tensor& t = arrays.at(c);
    std::vector<std::int64_t> values(t.size());
    if (t.type() == data_type::uint8)
        std::transform(t.bytes(), t.bytes() + t.size(), values.begin(), [](std::byte b) { return std::to_integer<std::int64_t>(b); });
    else if (t.type() == data_type::int32) std::copy(t.as<std::int32_t>().begin(), t.as<std::int32_t>().end(), values.begin());
    else if (t.type() == data_type::int64) std::copy(t.as<std::int64_t>().begin(), t.as<std::int64_t>().end(), values.begin());
    else c.fail("an array of uint8, int32 or int64 is expected");
    return values;
}

moved_values read_moved(const json_cursor& c, plan_arrays& arrays) {
    c.only({"place", "value"});
    moved_values moved{integers_of(c.at("place"), arrays), floats_of(c.at("value"), arrays)};
    if (moved.place.size() != moved.value.size())
        c.fail("there are " + std::to_string(moved.place.size()) + " places and " + std::to_string(moved.value.size()) + " values");
    return moved;
}

scaled_channels read_scaled(const json_cursor& c, plan_arrays& arrays) {
    c.only({"tensor", "layers", "factors", "weights"});
    scaled_channels one{
        .tensor = c.at("tensor").text(), .layers = {}, .factors = floats_of(c.at("factors"), arrays), .weights = c.at("weights").text()};
    const json_cursor layers = c.at("layers");
    for (std::size_t i = 0; i < layers.size(); ++i) one.layers.push_back(layers.at(i).text());
    for (const float f : one.factors)
        if (!(f > 0) || !std::isfinite(f)) c.at("factors").fail("factors are positive and finite");
    return one;
}

quantizer read_quantizer(const json_cursor& c, plan_arrays& arrays) {
    c.only({"format", "axis", "flatten", "scale", "zero_point", "block_size", "semantics", "dynamic"});
    quantizer q{.format = detail::read_format(c.at("format")), .scale = {}, .zero_point = {}};
    if (const auto v = c.find("axis")) q.axis = static_cast<int>(v->integer(-16, 15));
    if (const auto v = c.find("flatten")) q.flatten = v->boolean();
    if (const auto v = c.find("scale")) {
        q.scale = floats_of(*v, arrays);
        for (const float s : q.scale)
            if (!(s > 0)) v->fail("scales are above 0");
    }
    if (const auto v = c.find("zero_point")) {
        q.zero_point = integers_of(*v, arrays);
        const integer* f = std::get_if<integer>(&q.format);
        if (f == nullptr) v->fail("only integers have zero points");
        for (const std::int64_t z : q.zero_point)
            if (z < qmin(*f) || z > qmax(*f)) v->fail("zero point " + std::to_string(z) + " is no code of " + to_string(q.format));
        if (q.zero_point.size() != q.scale.size())
            v->fail("there are " + std::to_string(q.scale.size()) + " scales and " + std::to_string(q.zero_point.size()) + " zero points");
    }
    if (const auto v = c.find("block_size")) q.block_size = static_cast<int>(v->integer(0, 1 << 24));
    if (const auto v = c.find("semantics")) q.semantics = read_semantics(*v);
    if (const auto v = c.find("dynamic")) q.dynamic = v->boolean();
    if (is_integer_format(q.format) && q.scale.empty() && !q.dynamic) c.fail("an integer needs a scale, or \"dynamic\": true");
    return q;
}

}  // namespace detail

quantizer read_quantizer(const json_cursor& c) {
    detail::plan_arrays arrays;
    return detail::read_quantizer(c, arrays);
}

nlohmann::ordered_json to_json(const quantizer& q) {
    nlohmann::ordered_json j{{"format", to_string(q.format)}, {"axis", q.axis}};
    if (q.flatten) j["flatten"] = true;
    if (!q.scale.empty()) j["scale"] = q.scale;
    if (!q.zero_point.empty()) j["zero_point"] = q.zero_point;
    if (q.block_size != 0) j["block_size"] = q.block_size;
    if (!(q.semantics == qk::semantics::ocp)) j["semantics"] = to_json(q.semantics);
    if (q.dynamic) j["dynamic"] = true;
    return j;
}

namespace detail {

/// Reads the operators' formats; no list means no limits, like an operator without lists.
inline void read_operators(const json_cursor& c, target_profile& t) {
    const auto listed = c.find("operators");
    if (!listed) {
        if (t.operators.empty()) t.operators["*"] = {};
        return;
    }
    t.operators.clear();
    const auto formats = [](const json_cursor& list) {
        std::vector<qk::format> all;
        if (!list.is_array()) list.fail("an array of formats is expected");
        for (std::size_t i = 0; i < list.size(); ++i) all.push_back(read_format(list.at(i)));
        return all;
    };
    for (const std::string& op : listed->keys()) {
        const json_cursor o = listed->at(op);
        o.only({"activation", "weight"});
        target_profile::formats& has = t.operators[op];
        if (const auto v = o.find("activation")) has.activation = formats(*v);
        if (const auto v = o.find("weight")) has.weight = formats(*v);
    }
}

/// Reads the rules of a profile for scales and for formats together.
inline void read_rules(const json_cursor& c, target_profile& t) {
    if (const auto v = c.find("pairs")) {
        t.pairs.clear();
        for (std::size_t i = 0; i < v->size(); ++i) {
            const json_cursor pair = v->at(i);
            if (!pair.is_array() || pair.size() != 2) pair.fail("a pair is [ACTIVATION, WEIGHT], \"fp32\" where there is none");
            t.pairs.emplace_back(read_format(pair.at(0)), read_format(pair.at(1)));
        }
    }
    if (const auto v = c.find("symmetric")) {
        const std::string which = v->text();
        if (which != "none" && which != "activations" && which != "weights" && which != "all")
            v->fail("\"symmetric\" is \"none\", \"activations\", \"weights\" or \"all\": which integers have no zero points, not \"" +
                    which + "\"");
        t.symmetric_activations = which == "activations" || which == "all";
        t.symmetric_weights = which == "weights" || which == "all";
    }
    if (const auto v = c.find("power_of_two")) t.power_of_two = v->boolean();
    if (const auto v = c.find("one_static_scale")) t.one_static_scale = v->boolean();
    if (const auto v = c.find("fused_outputs")) t.fused_outputs = v->boolean();
    if (const auto v = c.find("per_channel")) {
        std::set<std::string> types;
        if (!v->is_array()) v->fail("an array of operator types is expected");
        for (std::size_t i = 0; i < v->size(); ++i) types.insert(v->at(i).text());
        t.per_channel = std::move(types);
    }
    if (const auto v = c.find("placement")) t.where = at_place(*v, [&] { return parse_placement(v->text()); });
}

}  // namespace detail

target_profile read_target(const json_cursor& c) {
    c.only({"name", "base", "operators", "int8_weights", "pairs", "symmetric", "power_of_two", "one_static_scale", "fused_outputs",
            "per_channel", "placement", "activation", "weight", "bias", "style", "inline", "signed_activations"});
    target_profile t;
    if (const auto v = c.find("base")) {
        const auto base = builtin_target(v->text());
        if (!base)
            v->fail("'" + v->text() + "' is no built-in profile; they are " + comma_separated(builtin_target_names()) + "." +
                    did_you_mean(v->text(), builtin_target_names()));
        t = *base;
    }
    t.name = c.at("name").text();
    if (const auto v = c.find("int8_weights")) {
        const std::string codes = v->text();
        if (codes != "signed" && codes != "unsigned" && codes != "pair_safe")
            v->fail(
                "\"int8_weights\" is \"pair_safe\" (int8 that is right on every processor), \"unsigned\" (stored as uint8) or \"signed\", "
                "not \"" +
                codes + "\"");
        t.signed_int8 = codes == "signed", t.unsigned_int8 = codes == "unsigned";
    }
    detail::read_operators(c, t);
    detail::read_rules(c, t);
    for (const auto& [key, text] : std::initializer_list<std::pair<const char*, std::string*>>{
             {"activation", &t.activation}, {"weight", &t.weight}, {"bias", &t.bias}})
        if (const auto v = c.find(key)) detail::read_format(*v), *text = v->text();
    if (const auto v = c.find("style")) t.file.style = v->text();
    if (const auto v = c.find("inline")) t.file.inlined = v->boolean();
    if (const auto v = c.find("signed_activations")) t.file.signed_activations = v->boolean();
    return t;
}
target_profile load_target(const std::filesystem::path& file) {
    if (auto known = builtin_target(file.string())) return *known;
    if (std::error_code ignored; !std::filesystem::exists(file, ignored))
        throw error("--target: there is no file '" + file.string() + "'; names without a file are " +
                    comma_separated(builtin_target_names()) + did_you_mean(file.string(), builtin_target_names()));
    return read_target(json_cursor::load(file));
}

}  // namespace qk::graph
