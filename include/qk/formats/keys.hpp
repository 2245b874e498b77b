// SPDX-License-Identifier: Apache-2.0
// What the texts of all families have in common: names, and keys with their values. parse.hpp is what to include.
#pragma once

#include "qk/exact/begin.hpp"

#include <span>

#include "qk/formats/catalogue.hpp"
#include "qk/formats/check.hpp"
#include "qk/formats/p3109.hpp"
#include "qk/isa.hpp"
#include "qk/text.hpp"

namespace qk {

inline constexpr std::size_t longest_format_text = 4159;  ///< that of a table of 256 values
using format_text = fixed_text<longest_format_text>;

inline namespace QK_ISA {

parsed<format> parse_format(std::string_view text);
format_text to_text(const format& f);

}  // namespace QK_ISA

namespace detail {
inline namespace QK_ISA {

/// Elements as papers and data sheets name them, without their width. e4m3 is OCP's, so without Inf.
struct short_name {
    std::string_view name, catalogued;
};
inline constexpr short_name short_names[] = {
    {"e4m3", "fp8_e4m3fn"},       {"e4m3fn", "fp8_e4m3fn"}, {"e5m2", "fp8_e5m2"},           {"e3m4", "fp8_e3m4"},
    {"e3m2", "fp6_e3m2"},         {"e2m3", "fp6_e2m3"},     {"e2m1", "fp4_e2m1"},           {"e4m3fnuz", "fp8_e4m3fnuz"},
    {"e5m2fnuz", "fp8_e5m2fnuz"}, {"e3m0", "fp4_e3m0"},     {"e1m2", "fp4_e1m2"},           {"e5m3", "ue5m3"},
    {"fp8_ue5m3", "ue5m3"},       {"ue8m0", "e8m0"},        {"amdfp4_global", "nvfp4_e5m3"}};
/// Names that leave something open or belong to others, and what to say for them here.
inline constexpr short_name other_names[] = {{"fp8", "fp8_e4m3fn or fp8_e5m2"},
                                             {"float8", "fp8_e4m3fn or fp8_e5m2"},
                                             {"fp6", "fp6_e3m2 or fp6_e2m3"},
                                             {"fp4", "fp4_e2m1, or with scales mxfp4 or nvfp4"},
                                             {"float4", "fp4_e2m1, or with scales mxfp4 or nvfp4"},
                                             {"mxfp8", "mxfp8_e4m3 or mxfp8_e5m2"},
                                             {"mxfp6", "mxfp6_e3m2 or mxfp6_e2m3"},
                                             {"msfp12", "bfp:block=16,exponent=8,mantissa=3"},
                                             {"msfp16", "bfp:block=16,exponent=8,mantissa=7"},
                                             {"float32", "fp32"},
                                             {"float16", "fp16"},
                                             {"half", "fp16"},
                                             {"bfloat16", "bf16"}};

/// Returns the catalogue's entry of a name or a short name, or null.
constexpr const named_format* find_named(std::string_view name) {
    for (const short_name& s : short_names)
        if (s.name == name) return find_format(s.catalogued);
    return find_format(name);
}

/// Takes the text up to `separator` (or all of it) off the front.
constexpr std::string_view take_until(std::string_view& rest, char separator) {
    const std::size_t at = rest.find(separator);
    const std::string_view head = rest.substr(0, at);
    rest = at == std::string_view::npos ? std::string_view{} : rest.substr(at + 1);
    return head;
}

constexpr bool parse_number(std::string_view s, int& n) {
    const bool negative = !s.empty() && s.front() == '-';
    if (negative) s.remove_prefix(1);
    if (s.empty() || s.size() > 9) return false;
    int value = 0;
    for (char c : s) {
        if (c < '0' || c > '9') return false;
        value = value * 10 + (c - '0');
    }
    n = negative ? -value : value;
    return true;
}

/// Where the value of a key goes: a number, a switch (`key`, `key=1`, `key=0`), or words that the caller reads.
struct key {
    std::string_view name;
    int* number = nullptr;
    bool* flag = nullptr;
    std::string_view* words = nullptr;
    bool seen = false;
};

/// Reads "a=1,b,c=x" into `keys`. Returns a sentence that says which key is wrong and which there are, empty if all went well.
inline message parse_keys(std::string_view family, std::string_view rest, std::span<key> keys) {
    while (!rest.empty()) {
        const std::string_view whole = rest;
        std::string_view item = take_until(rest, ',');
        const bool has_value = item.find('=') != std::string_view::npos;
        const std::string_view name = take_until(item, '=');
        key* found = nullptr;
        for (key& k : keys) {
            if (k.name == name) found = &k;
        }
        if (found == nullptr) {
            message m("unknown key '");
            m.append(name).append("' for ").append(family).append("; the keys are");
            for (std::size_t i = 0; i < keys.size(); ++i) m.append(i == 0 ? " " : ", ").append(keys[i].name);
            return m;
        }
        if (found->seen) return message("key '").append(name).append("' stands twice");
        found->seen = true;
        int number = 0;
        if (found->words != nullptr) {
            if (item.empty()) return message("key '").append(name).append("' needs a value, as in ").append(name).append("=...");
            *found->words = item;
            if (item.substr(0, 6) == "float:") {  // its own keys follow, up to the next key of this family
                std::string_view value = whole.substr(name.size() + 1);
                for (const key& k : keys) {
                    const std::size_t at = value.find(fixed_text<32>(",").append(k.name).append("=").view());
                    value = value.substr(0, at);
                }
                *found->words = value;
                rest = whole.substr(name.size() + 1 + value.size());
                if (!rest.empty()) rest.remove_prefix(1);
            }
        } else if (found->flag != nullptr) {
            if (has_value && item != "0" && item != "1")
                return message("key '").append(name).append("' is 0 or 1, not '").append(item).append("'");
            *found->flag = !has_value || item == "1";
        } else if (parse_number(item, number)) {
            *found->number = number;
        } else {
            return message("key '").append(name).append("' needs a whole number, not '").append(item).append("'");
        }
    }
    return {};
}

inline message missing(std::string_view family, std::string_view name) {
    return message(family).append(" needs ").append(name).append("=N");
}

}  // namespace QK_ISA
}  // namespace detail
}  // namespace qk

#include "qk/exact/end.hpp"
