// SPDX-License-Identifier: Apache-2.0
#include "qk/graph/plan/requests.hpp"
#include "qk/graph/base/format_text.hpp"
#include "qk/graph/base/printable.hpp"

namespace qk::graph {

namespace detail {
inline constexpr std::pair<range_method, const char*> range_method_words[] = {
    {range_method::min_max, "min_max"},       {range_method::moving_average, "moving_average"},
    {range_method::percentile, "percentile"}, {range_method::layerwise_percentile, "layerwise_percentile"},
    {range_method::entropy, "entropy"},       {range_method::mse, "mse"},
};
inline constexpr std::pair<pow2_rule, const char*> pow2_rule_names[] = {
    {pow2_rule::non_overflow, "non_overflow"}, {pow2_rule::nearest, "nearest"}, {pow2_rule::min_mse, "min_mse"}};
inline constexpr std::pair<role, const char*> role_names[] = {
    {role::input, "input"},   {role::output, "output"}, {role::activation, "activation"},
    {role::weight, "weight"}, {role::bias, "bias"},     {role::all, "all"}};

template <class Table, class Value>
const char* name_in(const Table& table, Value v) {
    for (const auto& [value, name] : table)
        if (value == v) return name;
    return "";
}
template <class Value, class Table>
std::optional<Value> value_in(const Table& table, std::string_view text) {
    for (const auto& [value, name] : table)
        if (text == name) return value;
    return std::nullopt;
}
}  // namespace detail

const char* name_of(range_method m) { return detail::name_in(detail::range_method_words, m); }
const char* name_of(pow2_rule r) { return detail::name_in(detail::pow2_rule_names, r); }
std::string name_of(role r) {
    if (const std::string whole = detail::name_in(detail::role_names, r); !whole.empty()) return whole;
    std::string text;
    for (const auto& [value, name] : detail::role_names) {
        if (value == role::all || (static_cast<int>(r) & static_cast<int>(value)) != static_cast<int>(value)) continue;
        if (value != role::activation && has(role::activation, value) && has(r, role::input) && has(r, role::output)) continue;
        text += (text.empty() ? "" : "+") + std::string(name);
    }
    return text;
}
std::vector<range_method> all_range_methods() {
    std::vector<range_method> all;
    for (const auto& [method, name] : detail::range_method_words) all.push_back(method);
    return all;
}
std::optional<range_method> parse_range_method(std::string_view name) {
    return detail::value_in<range_method>(detail::range_method_words, name);
}
std::optional<pow2_rule> parse_pow2_rule(std::string_view name) { return detail::value_in<pow2_rule>(detail::pow2_rule_names, name); }
std::optional<role> parse_role(std::string_view name) { return detail::value_in<role>(detail::role_names, name); }

std::string describe(const request& r) {
    // Every place that a request reaches keeps this text, and a glob that reaches many may be long.
    const std::string name = shortened(r.name), values = " " + name_of(r.role);
    switch (r.scope) {
        case scope::everything: return "default" + values;
        case scope::op_type: return "op type '" + name + "'" + values;
        case scope::layer: return r.position ? "layer number " + std::to_string(*r.position) + values : "layer '" + name + "'" + values;
        case scope::group: return "group '" + name + "'" + values;
        case scope::subgraph: return "sub-graph '" + name + "' to '" + shortened(r.end) + "'" + values;
        case scope::tensor: return "tensor '" + name + "'";
        case scope::model_input: return "model input " + std::to_string(r.index);
        case scope::model_output: return "model output " + std::to_string(r.index);
        case scope::kv_cache: return "kv_cache";
    }
    return {};
}

scale_rule default_scale_rule(const qk::format& f) {
    const microscaling* mx = std::get_if<microscaling>(&f);
    if (mx == nullptr || has_integer_elements(*mx)) return scale_rule::floor;
    // With few exponents a scale that is twice as large loses more at the small values than it saves at the largest.
    return mx->element.exponent_bits <= 2 ? scale_rule::even : scale_rule::rceil;
}

qk::semantics semantics_of(const precision& p) {
    qk::semantics s = p.semantics.value_or(qk::semantics::ocp);
    if (p.scale_rule) s.scale_rule = *p.scale_rule;
    else if (!p.semantics) s.scale_rule = default_scale_rule(p.format);
    if (p.scale_objective) s.scale_objective = *p.scale_objective;
    return s;
}

precision parse_precision(std::string_view text) { return precision{.format = format_from(text)}; }

precision_requests& precision_requests::add(request r) {
    if (r.origin.empty()) r.origin = "request " + std::to_string(list_.size() + 1);
    list_.push_back(std::move(r));
    return *this;
}

precision_requests& precision_requests::set_default(const precision& activation, const precision& weight) {
    add({.scope = scope::everything, .role = role::activation, .what = activation});
    return add({.scope = scope::everything, .role = role::weight, .what = weight});
}
precision_requests& precision_requests::set_default(std::string_view activation, std::string_view weight) {
    return set_default(parse_precision(activation), parse_precision(weight));
}
precision_requests& precision_requests::set_precision(std::string_view layer, std::string_view activation,
                                                      std::initializer_list<std::pair<std::string_view, std::string_view>> parameters) {
    set_precision(layer, role::activation, parse_precision(activation));
    for (const auto& [name, format] : parameters) {
        const std::optional<role> values = parse_role(name);
        if (!values || has(*values, role::activation))
            throw error("set_precision('" + std::string(layer) + "'): parameter '" + std::string(name) +
                        "' is neither 'weight' nor 'bias'");
        set_precision(layer, *values, parse_precision(format));
    }
    return *this;
}
precision_requests& precision_requests::set_precision(std::string_view layer, role values, const precision& what) {
    return add({.scope = scope::layer, .role = values, .name = std::string(layer), .what = what});
}
precision_requests& precision_requests::set_group_precision(std::string_view prefix, role values, const precision& what) {
    return add({.scope = scope::group, .role = values, .name = std::string(prefix), .what = what});
}
precision_requests& precision_requests::set_type_precision(std::string_view op_type, role values, const precision& what) {
    return add({.scope = scope::op_type, .role = values, .name = std::string(op_type), .what = what});
}
precision_requests& precision_requests::set_subgraph_precision(std::string_view start, std::string_view end, role values,
                                                               const precision& what) {
    return add({.scope = scope::subgraph, .role = values, .name = std::string(start), .end = std::string(end), .what = what});
}
precision_requests& precision_requests::set_tensor_precision(std::string_view tensor, const precision& what) {
    return add({.scope = scope::tensor, .role = role::all, .name = std::string(tensor), .what = what});
}
precision_requests& precision_requests::set_model_input_precision(const std::vector<std::optional<std::string>>& formats) {
    for (std::size_t i = 0; i < formats.size(); ++i)
        if (formats[i])
            add({.scope = scope::model_input, .role = role::all, .index = static_cast<int>(i), .what = parse_precision(*formats[i])});
    return *this;
}
precision_requests& precision_requests::set_model_output_precision(const std::vector<std::optional<std::string>>& formats) {
    for (std::size_t i = 0; i < formats.size(); ++i)
        if (formats[i])
            add({.scope = scope::model_output, .role = role::all, .index = static_cast<int>(i), .what = parse_precision(*formats[i])});
    return *this;
}
precision_requests& precision_requests::exclude(std::string_view layer) { return set_precision(layer, role::all, precision{}); }

}  // namespace qk::graph
