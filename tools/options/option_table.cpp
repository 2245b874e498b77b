// SPDX-License-Identifier: Apache-2.0
#include "option_table.hpp"

#include <array>
#include <utility>

namespace qk::tool {

std::string option::shown_value() const {
    if (is_flag()) return "";
    if (!value_name.empty()) return value_name;
    if (!is_number()) return "TEXT";
    const bool fraction = std::holds_alternative<double*>(to) || std::holds_alternative<std::optional<double>*>(to) ||
                          std::holds_alternative<std::function<void(double)>>(to);
    return fraction ? "X" : "N";
}

std::string kind_words(input_kinds kinds) {
    using enum input_kind;
    constexpr std::array<std::pair<input_kind, const char*>, 10> all{{{model, "models"},
                                                                      {array, "arrays"},
                                                                      {words, "hexadecimal words"},
                                                                      {packed, "packed arrays"},
                                                                      {checkpoint, "checkpoints"},
                                                                      {format, "converters"},
                                                                      {decoder, "decoders"},
                                                                      {pairs, "multipliers"},
                                                                      {device, "devices"},
                                                                      {answers, "answers of a device"}}};
    std::string text;
    unsigned left = kinds.bits;
    for (const auto& [kind, name] : all) {
        const auto bit = static_cast<unsigned>(kind);
        if ((kinds.bits & bit) == 0) continue;
        left &= ~bit;
        text += (text.empty() ? "" : left == 0 ? " and " : ", ") + std::string(name);
    }
    return text;
}

option& option_table::add(const std::string& names, destination to, std::string text) {
    option o;
    const std::size_t comma = names.find(',');
    o.name = comma == std::string::npos ? names : names.substr(comma + 1);
    if (comma != std::string::npos) o.short_name = names.substr(0, comma);
    if (o.short_name.starts_with("--")) std::swap(o.short_name, o.name);  // "--format,-f"
    o.to = std::move(to);
    o.text = std::move(text);
    o.section = section_;
    o.kinds = added_for_;
    return options_.emplace_back(std::move(o));
}

option& option_table::at(const std::string& name) { return const_cast<option&>(*std::as_const(*this).find(name)); }

const option* option_table::find(const std::string& name) const {
    for (const option& o : options_)
        if (!o.is_argument() && (o.name == name || (!o.short_name.empty() && o.short_name == name))) return &o;
    return nullptr;
}

}  // namespace qk::tool
