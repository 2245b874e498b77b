// SPDX-License-Identifier: Apache-2.0
#include "qk/graph/base/names.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdarg>
#include <cstdio>
#include <utility>

#include "qk/text.hpp"

namespace qk::graph {
namespace {

/// The distances of qk/text.hpp without regard to case; names may be of any length.
std::size_t distance(std::string_view a, std::string_view b, bool anywhere) {
    const auto lower = [](char c) { return std::tolower(static_cast<unsigned char>(c)); };
    const std::vector<std::size_t> row(b.size() + 1);
    return qk::detail::edit_distance(a, b, anywhere, std::array{row, row, row}, [&](char x, char y) { return lower(x) == lower(y); });
}

}  // namespace

bool is_glob(std::string_view text) { return text.find_first_of("*?[") != std::string_view::npos; }

bool glob_match(std::string_view pattern, std::string_view text) {
    std::size_t p = 0, t = 0, star = std::string_view::npos, resume = 0;
    // Finds the end of the [set] at pattern[at] and returns whether c is in it. An unclosed bracket stands for itself.
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

std::vector<std::string> nearest_names(std::string_view name, const std::vector<std::string>& candidates, std::size_t count) {
    std::vector<std::pair<std::size_t, std::string_view>> ranked;
    constexpr std::size_t longest = 256;  // the work is the product of the lengths, and nobody types a longer name
    for (const std::string& c : candidates) {
        if (name.size() > longest || c.size() > longest) continue;
        std::size_t d = distance(c, name, false);
        // A name that is part of the other, or nearly, is near however long the rest is.
        const std::size_t part = name.find(c) != std::string_view::npos ? 0 : distance(c, name, true);
        if (!name.empty() && part <= name.size() / 4) d = std::min(d, 2 + part);
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

std::string did_you_mean(std::string_view name, const std::vector<std::string>& candidates) {
    std::string plain;
    for (std::size_t i = 0; i < name.size(); ++i) {
        const std::size_t end = name[i] == '[' ? name.find(']', i) : std::string_view::npos;
        if (end != std::string_view::npos) i = end;
        else if (name[i] != '*' && name[i] != '?') plain += name[i];
    }
    std::vector<std::string> others;  // what the name means already is no help
    for (const std::string& c : candidates)
        if (c != name && !glob_match(name, c)) others.push_back(c);
    const std::vector<std::string> near = nearest_names(plain, others);
    if (near.empty()) return {};
    std::string text = " Did you mean ";
    for (std::size_t i = 0; i < near.size(); ++i) text += (i == 0 ? "'" : i + 1 == near.size() ? " or '" : ", '") + near[i] + "'";
    return text + "?";
}

std::string listed(const std::vector<std::string>& names, std::size_t most) {
    const std::size_t shown = names.size() <= most + 1 ? names.size() : most;  // "and 1 more" would take the room of the name
    std::string text;
    for (std::size_t i = 0; i < shown; ++i)
        text += (i == 0 ? "'" : shown == names.size() && i + 1 == shown ? " and '" : ", '") + names[i] + "'";
    return shown < names.size() ? text + " and " + std::to_string(names.size() - shown) + " more" : text;
}

std::string comma_separated(const std::vector<std::string>& names) {
    std::string text;
    for (const std::string& n : names) text += (text.empty() ? "" : ", ") + n;
    return text;
}

std::string formatted(const char* format, ...) {
    std::va_list values, again;
    va_start(values, format);
    va_copy(again, values);
    std::string text(static_cast<std::size_t>(std::max(std::vsnprintf(nullptr, 0, format, values), 0)), '\0');
    std::vsnprintf(text.data(), text.size() + 1, format, again);
    va_end(again);
    va_end(values);
    return text;
}

}  // namespace qk::graph
