// SPDX-License-Identifier: Apache-2.0
// Definitions of parts.hpp that belong to no file's format: files, and text for messages.
#include "parts.hpp"

namespace qk::checkpoint {

void complain(const std::filesystem::path& file, const std::string& why) { throw error(file.string() + ": " + why); }

void checkpoint::check() const {
    for (const auto& file : files) file->check();
}

std::string read_text(const std::filesystem::path& file, std::uint64_t most) { return disk::read_whole(file, complain, most); }

std::string text_of(const std::vector<std::uint64_t>& shape) {
    std::string s = "[";
    for (std::size_t k = 0; k < shape.size(); ++k) s += (k == 0 ? "" : ", ") + std::to_string(shape[k]);
    return s + "]";
}

std::string shown(std::string_view name) {
    std::string s;
    for (const char ch : name.substr(0, 200)) {
        const auto u = static_cast<unsigned char>(ch);
        if (u < 0x20 || u == 0x7f) s += '?';
        else s += ch;
    }
    return name.size() > 200 ? s + "..." : s;
}

std::optional<std::uint64_t> product_of(const std::vector<std::uint64_t>& shape) {
    std::uint64_t n = 1;
    for (const std::uint64_t d : shape)
        if (__builtin_mul_overflow(n, d, &n) || n >> 62 != 0) {
            for (const std::uint64_t other : shape)
                if (other == 0) return 0;
            return std::nullopt;
        }
    return n;
}

bool fits(std::string_view pattern, std::string_view name) {
    std::size_t p = 0, n = 0, star = std::string_view::npos, mark = 0;
    while (n < name.size()) {
        if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == name[n]) && pattern[p] != '*') ++p, ++n;
        else if (p < pattern.size() && pattern[p] == '*') star = p++, mark = n;
        else if (star != std::string_view::npos) p = star + 1, n = ++mark;
        else return false;
    }
    while (p < pattern.size() && pattern[p] == '*') ++p;
    return p == pattern.size();
}

}  // namespace qk::checkpoint
