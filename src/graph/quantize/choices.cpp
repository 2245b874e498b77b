// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "graph/ops/op.hpp"
#include "qk/graph/base/names.hpp"
#include "qk/graph/quantize/choices.hpp"
#include "qk/graph/quantize/plan_file.hpp"
#include "qk/option_names.hpp"

namespace qk::graph {
namespace detail {

/// Keys of a side whose values may be lists, in the order of the words in a choice's text.
inline constexpr std::array<const char*, 5> listed_keys{"format", "method", "scheme", "granularity", "weight_rounding"};

inline std::vector<std::string> side_words(bool weight) {
    std::vector<std::string> words{"sym", "asym", "symmetric", "asymmetric"};
    if (weight) words.insert(words.end(), {"min_max", "mse", "per_tensor", "per_channel", "nearest", "compensated", "adaround"});
    else words = range_method_names(words);
    for (const auto& entry : scale_rule_names) words.emplace_back(entry.name);
    return words;
}

/// Applies one word behind '@'. Returns false if it means nothing for this side.
inline bool apply_word(side_choice& side, const std::string& word, bool weight) {
    const auto method = parse_range_method(word);
    const bool known_method = method && (!weight || *method == range_method::min_max || *method == range_method::mse);
    if (known_method) side.what.method = method;
    else if (word == "sym" || word == "symmetric") side.what.symmetric = true;
    else if (word == "asym" || word == "asymmetric") side.what.symmetric = false;
    else if (weight && (word == "per_tensor" || word == "per_channel")) side.what.per_channel = word == "per_channel";
    else if (weight && (word == "nearest" || word == "compensated" || word == "adaround"))
        side.rounding = parse_weight_rounding(word), side.rounds = true;
    else if (const auto rule = parse_scale_rule(word)) side.what.scale_rule = *rule;
    else return false;
    return true;
}

/// Returns every value of a key that may be a list, or nothing if the key is missing.
inline std::vector<nlohmann::json> values_of(const json_cursor& side, const char* key) {
    const auto found = side.find(key);
    if (!found) return {};
    if (!found->is_array()) return {found->value()};
    if (found->size() == 0) found->fail("an empty list leaves nothing to choose from");
    return {found->value().begin(), found->value().end()};
}

inline side_choice read_side(const json_cursor& side, nlohmann::json one, const std::vector<std::string>& named, bool weight) {
    side_choice choice;
    for (const char* key : listed_keys) {
        if (!one.contains(key)) continue;
        if (!one[key].is_string()) side.at(key).fail("a list of names is expected, not of " + std::string(one[key].type_name()));
        const std::string word = one[key].get<std::string>();
        const bool is_format = std::string_view(key) == "format";
        if (is_format || std::find(named.begin(), named.end(), key) != named.end()) choice.text += (is_format ? "" : "@") + word;
        if (std::string_view(key) == "weight_rounding") {
            if (!weight) side.at(key).fail("only weights have a rounding of their own");
            choice.rounding = at_place(side.at(key), [&] { return parse_weight_rounding(word); });
        }
    }
    one.erase("weight_rounding");
    choice.what = at_place(side, [&] { return read_precision(json_cursor::parse(one.dump(), "a choice of it")); });
    return choice;
}

inline std::vector<side_choice> read_sides(const json_cursor& side, bool weight) {
    if (side.is_string()) return {at_place(side, [&] { return parse_side_choice(side.text(), weight); })};
    if (!side.is_object()) side.fail("a format, or an object with \"format\", is expected");
    side.at("format");
    std::vector<nlohmann::json> all{side.value()};
    std::vector<std::string> named;
    for (const char* key : listed_keys) {
        const std::vector<nlohmann::json> values = values_of(side, key);
        if (values.empty()) continue;
        named.emplace_back(key);
        std::vector<nlohmann::json> next;
        for (const nlohmann::json& one : all)
            for (const nlohmann::json& v : values) next.push_back(one), next.back()[key] = v;
        all = std::move(next);
    }
    std::vector<side_choice> sides;
    for (nlohmann::json& one : all) sides.push_back(read_side(side, std::move(one), named, weight));
    return sides;
}

}  // namespace detail

side_choice parse_side_choice(std::string_view text, bool weight) {
    std::size_t at = text.find('@');
    side_choice side{.text = std::string(text), .what = parse_precision(text.substr(0, at))};
    while (at != std::string_view::npos) {
        const std::size_t begin = at + 1;
        at = text.find('@', begin);
        const std::string word(text.substr(begin, at == std::string_view::npos ? at : at - begin));
        if (detail::apply_word(side, word, weight)) continue;
        const std::vector<std::string> known = detail::side_words(weight);
        throw error("'" + std::string(text) + "': '" + word + "' is no word for " + (weight ? "weights" : "activations") +
                    " (scheme, range, granularity, rounding, MX scale rule): say one of " + comma_separated(known) + "." +
                    did_you_mean(word, known));
    }
    return side;
}

precision parse_side(std::string_view text, bool weight) {
    side_choice side = parse_side_choice(text, weight);
    if (side.rounds) side.what.rounding = side.rounding;
    return side.what;
}

std::vector<std::string> each_choice(const std::string& text) {
    const std::size_t bar = text.find('|');
    if (bar == std::string::npos) return {text};
    const std::size_t before = text.find_last_of("@/", bar), begin = before == std::string::npos ? 0 : before + 1,
                      end = std::min(text.find_first_of("@/", bar), text.size());
    std::vector<std::string> all;
    for (std::size_t from = begin; from <= end;) {
        const std::size_t to = std::min(text.find('|', from), end);
        for (std::string& rest : each_choice(text.substr(0, begin) + text.substr(from, to - from) + text.substr(end)))
            all.push_back(std::move(rest));
        from = to + 1;
    }
    return all;
}

choice_request parse_choice_request(const std::string& text, const std::string& origin) {
    const std::size_t is = text.find('=');
    if (is == std::string::npos || is == 0 || is + 1 == text.size())
        throw error(origin + " '" + text + "' must be LAYERS=ACTIVATION/WEIGHT, as in Conv=int8@min_max|entropy/int8");
    choice_request r{.name = text.substr(0, is), .origin = origin + " " + text.substr(0, is)};
    r.scope = facts_of_type(r.name).has(ops::layer) ? scope::op_type : scope::layer;
    for (std::size_t from = is + 1; from <= text.size();) {
        const std::size_t to = std::min(text.find(',', from), text.size());
        for (std::string& pair : each_choice(text.substr(from, to - from))) r.pairs.push_back(std::move(pair));
        from = to + 1;
    }
    return r;
}

bool has_choices(const json_cursor& entry) {
    const auto lists = [&](const char* role) {
        const auto side = entry.find(role);
        return side && side->is_object() &&
               (side->has("weight_rounding") || std::any_of(detail::listed_keys.begin(), detail::listed_keys.end(),
                                                            [&](const char* key) { return side->has(key) && side->at(key).is_array(); }));
    };
    return entry.is_object() && (lists("activation") || lists("weight"));
}

std::vector<choice_request> read_choices(const json_cursor& entry, bool everything) {
    if (everything) entry.only({"activation", "weight"});
    else entry.only({"op_type", "layer", "group", "activation", "weight"});
    choice_request r{.origin = entry.where()};
    if (const auto side = entry.find("activation")) r.activation = detail::read_sides(*side, false);
    if (const auto side = entry.find("weight")) r.weight = detail::read_sides(*side, true);
    if (everything) return {r};
    std::vector<choice_request> all;
    constexpr std::pair<const char*, scope> scopes[] = {{"op_type", scope::op_type}, {"layer", scope::layer}, {"group", scope::group}};
    for (const auto& [key, s] : scopes) {
        if (!entry.has(key)) continue;
        if (!all.empty()) entry.fail("choices have exactly one of op_type, layer, group");
        r.scope = s;
        const std::vector<std::string> names = entry.at(key).texts();
        if (s == scope::op_type) r.beside = names;
        for (const std::string& name : names) r.name = name, all.push_back(r);
    }
    if (all.empty()) entry.fail("choices are those of an op_type, a layer, a group or the default");
    return all;
}

}  // namespace qk::graph
