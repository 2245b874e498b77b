// SPDX-License-Identifier: Apache-2.0
// Tables from text and back: table:values=V/V/...,ties=....
#pragma once

#include "qk/exact/begin.hpp"

#include <charconv>
#include <cstdlib>

#include "qk/formats/keys.hpp"
#include "qk/isa.hpp"

namespace qk::detail {
inline namespace QK_ISA {

/// Reads the nearest float32. Some libraries have no from_chars for floats.
inline bool parse_float(std::string_view word, float& value) {
#if defined(__cpp_lib_to_chars)
    const auto read = std::from_chars(word.data(), word.data() + word.size(), value);
    return read.ec == std::errc() && read.ptr == word.data() + word.size();
#else
    char digits[64];
    if (word.empty() || word.size() >= sizeof digits) return false;
    digits[word.copy(digits, sizeof digits - 1)] = 0;
    char* end = nullptr;
    value = std::strtof(digits, &end);
    return end == digits + word.size();
#endif
}

constexpr std::string_view ties_names[] = {"even-code", "lower", "upper", "toward-zero", "away"};  // in the order of table_ties

inline parsed<format> parse_table(std::string_view keys_text) {
    std::string_view values, ties = ties_names[0];
    key keys[] = {{.name = "values", .words = &values}, {.name = "ties", .words = &ties}};
    const message wrong = parse_keys("table", keys_text, keys);
    if (!wrong.empty()) return {{}, wrong};
    if (values.empty()) return {{}, "table needs values=V/V/..., as in table:values=-1/0/1"};
    int tie = 0;
    while (tie < 5 && ties_names[tie] != ties) ++tie;
    if (tie == 5)
        return {{}, message("ties is even-code, lower, upper, toward-zero or away, not '").append(ties.substr(0, 60)).append("'")};
    float v[256];
    std::size_t count = 0;
    while (!values.empty()) {
        const std::string_view word = take_until(values, '/');
        if (count == 256) return {{}, "a table has 256 values at most"};
        if (!parse_float(word, v[count]))
            return {{}, message("'").append(word.substr(0, 60)).append("' is no number of a table (nan is one)")};
        ++count;
    }
    const table t = table_of(std::span<const float>(v, count), static_cast<table_ties>(tie));
    return {t, check(t)};
}

inline format_text text_of(const table& f) {
    format_text t("table:values=");
    for (std::size_t i = 0; i < static_cast<std::size_t>(f.size()); ++i) {
        char digits[32];
        if (i != 0) t.append("/");
        const float v = f.values->number[i];
        if (v != v) t.append("nan");
        else t.append(std::string_view(digits, static_cast<std::size_t>(std::to_chars(digits, digits + 32, v).ptr - digits)));
    }
    if (f.ties != table_ties::even_code) t.append(",ties=").append(ties_names[static_cast<int>(f.ties)]);
    return t;
}

}  // namespace QK_ISA
}  // namespace qk::detail

#include "qk/exact/end.hpp"
