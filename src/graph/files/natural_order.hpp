// SPDX-License-Identifier: Apache-2.0
// The order that people expect of numbered files.
#pragma once

#include <string>

namespace qk::graph {

/// Compares names; numbers inside them compare as numbers: "x2" before "x10".
inline bool natural_less(const std::string& a, const std::string& b) {
    std::size_t i = 0, j = 0;
    const auto digit = [](char c) { return c >= '0' && c <= '9'; };
    while (i < a.size() && j < b.size()) {
        if (digit(a[i]) && digit(b[j])) {
            const auto number = [&](const std::string& s, std::size_t& at) {
                while (at < s.size() && s[at] == '0') ++at;
                const std::size_t start = at;
                while (at < s.size() && digit(s[at])) ++at;
                return s.substr(start, at - start);
            };
            const std::string m = number(a, i), n = number(b, j);
            if (m != n) return m.size() != n.size() ? m.size() < n.size() : m < n;
        } else if (a[i] != b[j]) {
            return a[i] < b[j];
        } else {
            ++i, ++j;
        }
    }
    return a.size() - i < b.size() - j;
}

}  // namespace qk::graph
