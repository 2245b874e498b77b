// SPDX-License-Identifier: Apache-2.0
// Definitions of requests.hpp.
#pragma once

#include <algorithm>
#include <array>
#include <cctype>

#include "qk/graph/format_text.hpp"
#include "qk/graph/requests.hpp"

namespace qk::graph {

namespace detail {
inline constexpr std::array<std::pair<range_method, const char*>, 6> range_method_names{{
    {range_method::min_max, "min_max"}, {range_method::moving_average, "moving_average"}, {range_method::percentile, "percentile"},
    {range_method::layerwise_percentile, "layerwise_percentile"}, {range_method::entropy, "entropy"}, {range_method::mse, "mse"}}};
inline constexpr std::array<std::pair<pow2_rule, const char*>, 3> pow2_rule_names{{
    {pow2_rule::non_overflow, "non_overflow"}, {pow2_rule::nearest, "nearest"}, {pow2_rule::min_mse, "min_mse"}}};
inline constexpr std::array<std::pair<role, const char*>, 6> role_names{{
    {role::input, "input"}, {role::output, "output"}, {role::activation, "activation"}, {role::weight, "weight"},
    {role::bias, "bias"}, {role::all, "all"}}};

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

/// Levenshtein distance without regard to case.
inline std::size_t edit_distance(std::string_view a, std::string_view b) {
    const auto lower = [](char c) { return std::tolower(static_cast<unsigned char>(c)); };
    std::vector<std::size_t> row(b.size() + 1);
    for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
    for (std::size_t i = 1; i <= a.size(); ++i) {
        std::size_t diagonal = row[0];
        row[0] = i;
        for (std::size_t j = 1; j <= b.size(); ++j) {
            const std::size_t changed = diagonal + (lower(a[i - 1]) == lower(b[j - 1]) ? 0 : 1);
            diagonal = row[j];
            row[j] = std::min({changed, row[j] + 1, row[j - 1] + 1});
        }
    }
    return row[b.size()];
}
}  // namespace detail

QK_GRAPH_INLINE const char* name_of(range_method m) { return detail::name_in(detail::range_method_names, m); }
QK_GRAPH_INLINE const char* name_of(pow2_rule r) { return detail::name_in(detail::pow2_rule_names, r); }
QK_GRAPH_INLINE std::string name_of(role r) {
    if (const std::string whole = detail::name_in(detail::role_names, r); !whole.empty()) return whole;
    std::string text;
    for (const auto& [value, name] : detail::role_names) {
        if (value == role::all || (static_cast<int>(r) & static_cast<int>(value)) != static_cast<int>(value)) continue;
        if (value != role::activation && has(role::activation, value) && has(r, role::input) && has(r, role::output)) continue;
        text += (text.empty() ? "" : "+") + std::string(name);
    }
    return text;
}
QK_GRAPH_INLINE std::vector<range_method> all_range_methods() {
    std::vector<range_method> all;
    for (const auto& [method, name] : detail::range_method_names) all.push_back(method);
    return all;
}
QK_GRAPH_INLINE std::optional<range_method> parse_range_method(std::string_view name) {
    return detail::value_in<range_method>(detail::range_method_names, name);
}
QK_GRAPH_INLINE std::optional<pow2_rule> parse_pow2_rule(std::string_view name) {
    return detail::value_in<pow2_rule>(detail::pow2_rule_names, name);
}
QK_GRAPH_INLINE std::optional<role> parse_role(std::string_view name) { return detail::value_in<role>(detail::role_names, name); }

QK_GRAPH_INLINE std::string describe(const request& r) {
    const std::string values = " " + name_of(r.role);
    switch (r.scope) {
        case scope::everything: return "default" + values;
        case scope::op_type: return "op type '" + r.name + "'" + values;
        case scope::layer: return "layer '" + r.name + "'" + values;
        case scope::group: return "group '" + r.name + "'" + values;
        case scope::subgraph: return "sub-graph '" + r.name + "' to '" + r.end + "'" + values;
        case scope::tensor: return "tensor '" + r.name + "'";
        case scope::model_input: return "model input " + std::to_string(r.index);
        case scope::model_output: return "model output " + std::to_string(r.index);
    }
    return {};
}

QK_GRAPH_INLINE bool is_glob(std::string_view text) { return text.find_first_of("*?[") != std::string_view::npos; }

QK_GRAPH_INLINE bool glob_match(std::string_view pattern, std::string_view text) {
    std::size_t p = 0, t = 0, star = std::string_view::npos, resume = 0;
    // One [set] at pattern[p]: its end and whether c is in it. An unclosed bracket stands for itself.
    const auto in_set = [&](std::size_t at, char c, std::size_t& end) {
        end = pattern.find(']', at + 2);
        if (end == std::string_view::npos) return false;
        bool found = false;
        std::size_t i = at + 1;
        const bool negated = pattern[i] == '!' || pattern[i] == '^';
        for (i += negated ? 1 : 0; i < end; ++i) {
            if (i + 2 < end && pattern[i + 1] == '-') {
                found = found || (pattern[i] <= c && c <= pattern[i + 2]);
                i += 2;
            } else {
                found = found || pattern[i] == c;
            }
        }
        return found != negated;
    };
    while (t < text.size()) {
        std::size_t end = p;
        if (p < pattern.size() && pattern[p] == '*') {
            star = p++;
            resume = t;
        } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t])) {
            ++p, ++t;
        } else if (p < pattern.size() && pattern[p] == '[' && in_set(p, text[t], end)) {
            p = end + 1, ++t;
        } else if (star != std::string_view::npos) {
            p = star + 1;
            t = ++resume;
        } else {
            return false;
        }
    }
    while (p < pattern.size() && pattern[p] == '*') ++p;
    return p == pattern.size();
}

QK_GRAPH_INLINE std::vector<std::string> nearest_names(std::string_view name, const std::vector<std::string>& candidates, std::size_t count) {
    std::vector<std::pair<std::size_t, std::string_view>> ranked;
    for (const std::string& c : candidates) {
        std::size_t d = detail::edit_distance(name, c);
        // A name that is part of the other is near however long the rest is.
        if (!name.empty() && (c.find(name) != std::string::npos || name.find(c) != std::string_view::npos)) d = std::min<std::size_t>(d, 2);
        if (d <= std::max<std::size_t>(2, std::max(name.size(), c.size()) / 2)) ranked.emplace_back(d, c);
    }
    std::stable_sort(ranked.begin(), ranked.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    std::vector<std::string> found;
    for (const auto& [d, c] : ranked) {
        if (found.size() == count) break;
        if (std::find(found.begin(), found.end(), c) == found.end()) found.emplace_back(c);
    }
    return found;
}

QK_GRAPH_INLINE std::string did_you_mean(std::string_view name, const std::vector<std::string>& candidates) {
    const std::vector<std::string> near = nearest_names(name, candidates);
    if (near.empty()) return {};
    std::string text = " Did you mean ";
    for (std::size_t i = 0; i < near.size(); ++i) text += (i == 0 ? "'" : i + 1 == near.size() ? " or '" : ", '") + near[i] + "'";
    return text + "?";
}

QK_GRAPH_INLINE precision parse_precision(std::string_view text) { return precision{.format = format_from(text)}; }

QK_GRAPH_INLINE precision_requests& precision_requests::add(request r) {
    if (r.origin.empty()) r.origin = "request " + std::to_string(list_.size() + 1);
    list_.push_back(std::move(r));
    return *this;
}

QK_GRAPH_INLINE precision_requests& precision_requests::set_default(const precision& activation, const precision& weight) {
    add({.scope = scope::everything, .role = role::activation, .what = activation});
    return add({.scope = scope::everything, .role = role::weight, .what = weight});
}
QK_GRAPH_INLINE precision_requests& precision_requests::set_default(std::string_view activation, std::string_view weight) {
    return set_default(parse_precision(activation), parse_precision(weight));
}
QK_GRAPH_INLINE precision_requests& precision_requests::set_precision(
    std::string_view layer, std::string_view activation, std::initializer_list<std::pair<std::string_view, std::string_view>> parameters) {
    set_precision(layer, role::activation, parse_precision(activation));
    for (const auto& [name, format] : parameters) {
        const std::optional<role> values = parse_role(name);
        if (!values || has(*values, role::activation))
            throw error("set_precision('" + std::string(layer) + "'): parameter '" + std::string(name) + "' is neither 'weight' nor 'bias'");
        set_precision(layer, *values, parse_precision(format));
    }
    return *this;
}
QK_GRAPH_INLINE precision_requests& precision_requests::set_precision(std::string_view layer, role values, const precision& what) {
    return add({.scope = scope::layer, .role = values, .name = std::string(layer), .what = what});
}
QK_GRAPH_INLINE precision_requests& precision_requests::set_group_precision(std::string_view prefix, role values, const precision& what) {
    return add({.scope = scope::group, .role = values, .name = std::string(prefix), .what = what});
}
QK_GRAPH_INLINE precision_requests& precision_requests::set_type_precision(std::string_view op_type, role values, const precision& what) {
    return add({.scope = scope::op_type, .role = values, .name = std::string(op_type), .what = what});
}
QK_GRAPH_INLINE precision_requests& precision_requests::set_subgraph_precision(std::string_view start, std::string_view end, role values,
                                                                               const precision& what) {
    return add({.scope = scope::subgraph, .role = values, .name = std::string(start), .end = std::string(end), .what = what});
}
QK_GRAPH_INLINE precision_requests& precision_requests::set_tensor_precision(std::string_view tensor, const precision& what) {
    return add({.scope = scope::tensor, .role = role::all, .name = std::string(tensor), .what = what});
}
QK_GRAPH_INLINE precision_requests& precision_requests::set_model_input_precision(const std::vector<std::optional<std::string>>& formats) {
    for (std::size_t i = 0; i < formats.size(); ++i)
        if (formats[i]) add({.scope = scope::model_input, .role = role::all, .index = static_cast<int>(i), .what = parse_precision(*formats[i])});
    return *this;
}
QK_GRAPH_INLINE precision_requests& precision_requests::set_model_output_precision(const std::vector<std::optional<std::string>>& formats) {
    for (std::size_t i = 0; i < formats.size(); ++i)
        if (formats[i]) add({.scope = scope::model_output, .role = role::all, .index = static_cast<int>(i), .what = parse_precision(*formats[i])});
    return *this;
}
QK_GRAPH_INLINE precision_requests& precision_requests::exclude(std::string_view layer) { return set_precision(layer, role::all, precision{}); }

}  // namespace qk::graph
