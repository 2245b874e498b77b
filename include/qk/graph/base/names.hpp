// SPDX-License-Identifier: Apache-2.0
// Names that people type: shell patterns, and the nearest names when one matches nothing.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace qk::graph {

/// Returns whether the whole text matches a shell pattern: * any run, ? any character, [abc] one of these, [!abc] none of these.
bool glob_match(std::string_view pattern, std::string_view text);
bool is_glob(std::string_view text);
/// Returns up to `count` candidates closest to `name` (edit distance, case ignored), the closest first; distant ones are left out.
std::vector<std::string> nearest_names(std::string_view name, const std::vector<std::string>& candidates, std::size_t count = 3);
/// Returns " Did you mean 'a' or 'b'?", or "" when nothing is near. A pattern is compared without its wildcards.
std::string did_you_mean(std::string_view name, const std::vector<std::string>& candidates);
/// Returns "'a', 'b' and 3 more".
std::string listed(const std::vector<std::string>& names, std::size_t most = 3);
/// Returns "a, b, c".
std::string comma_separated(const std::vector<std::string>& names);
/// Returns what std::printf would write.
[[gnu::format(printf, 1, 2)]] std::string formatted(const char* format, ...);

}  // namespace qk::graph
