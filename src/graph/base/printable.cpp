// SPDX-License-Identifier: Apache-2.0
#include "qk/graph/base/printable.hpp"

#include <algorithm>

#include "qk/graph/base/names.hpp"

namespace qk::graph {
namespace {

std::string escaped(char32_t c) {
    if (c == '\n') return "\\n";
    if (c == '\t') return "\\t";
    if (c == '\r') return "\\r";
    return formatted(c < 0x80 ? "\\x%02x" : "\\u%04x", static_cast<unsigned>(c));
}

/// Returns the text with every code point that `escapes` picks, and every byte that is not UTF-8, spelled out.
template <class Escapes>
std::string replaced(std::string_view text, const Escapes& escapes) {
    std::string out;
    out.reserve(text.size());
    while (!text.empty()) {
        const code_point c = first_code_point(text);
        if (c.length == 0) out += formatted("\\x%02x", static_cast<unsigned>(static_cast<unsigned char>(text.front())));
        else if (escapes(c.value)) out += escaped(c.value);
        else out += text.substr(0, c.length);
        text.remove_prefix(c.length == 0 ? 1 : c.length);
    }
    return out;
}

}  // namespace

code_point first_code_point(std::string_view text) {
    if (text.empty()) return {};
    const auto byte = [&](std::size_t i) { return static_cast<char32_t>(static_cast<unsigned char>(text[i])); };
    const char32_t lead = byte(0);
    if (lead < 0x80) return {lead, 1};
    const std::size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
    constexpr char32_t lowest[] = {0, 0, 0x80, 0x800, 0x10000};
    if (lead < 0xc0 || lead > 0xf7 || text.size() < length) return {};
    char32_t value = lead & (0x7fu >> length);
    for (std::size_t i = 1; i < length; ++i) {
        if ((byte(i) & 0xc0u) != 0x80u) return {};
        value = value << 6 | (byte(i) & 0x3fu);
    }
    const bool surrogate = value >= 0xd800 && value < 0xe000;
    if (value < lowest[length] || value > 0x10ffff || surrogate) return {};
    return {value, length};
}

bool is_control(char32_t c) {
    if (c < 0x20 || (c >= 0x7f && c < 0xa0)) return true;
    if (c == 0xad || c == 0x61c || c == 0xfeff) return true;  // soft hyphen, Arabic letter mark, byte order mark
    if (c >= 0x200b && c <= 0x200f) return true;              // zero width, left to right, right to left
    if (c >= 0x2028 && c <= 0x202e) return true;              // separators of lines and paragraphs, embeddings, overrides
    if (c >= 0x2060 && c <= 0x206f) return true;              // word joiner, isolates, deprecated controls
    return (c >= 0xfff9 && c <= 0xfffb) || (c >= 0xe0000 && c <= 0xe007f);
}

std::string printable(std::string_view text, std::string_view layout) {
    return replaced(text,
                    [&](char32_t c) { return is_control(c) && (c > 0x7f || layout.find(static_cast<char>(c)) == std::string_view::npos); });
}

std::string as_utf8(std::string_view text) {
    return replaced(text, [](char32_t) { return false; });
}

std::string shortened(std::string_view sentence) {
    const auto cut = [](std::string_view text, std::size_t most, std::size_t first, std::size_t last) {
        if (text.size() <= most) return std::string(text);
        const auto inside = [&](std::size_t at) { return (static_cast<unsigned char>(text[at]) & 0xc0u) == 0x80u; };
        std::size_t from = first, to = text.size() - last;  // moved to where a character of UTF-8 begins
        for (int i = 0; i < 3 && inside(from); ++i) --from;
        for (int i = 0; i < 3 && inside(to); ++i) --to;
        return std::string(text.substr(0, from)) + "...[" + std::to_string(to - from) + " bytes]..." + std::string(text.substr(to));
    };
    std::string out;
    while (!sentence.empty()) {
        const std::size_t word = std::min(sentence.find_first_of(" \n"), sentence.size());
        const std::size_t next = std::min(sentence.find_first_not_of(" \n", word), sentence.size());
        out += cut(sentence.substr(0, word), 300, 120, 40);
        out += sentence.substr(word, next - word);
        sentence.remove_prefix(next);
    }
    return cut(out, 4000, 3000, 800);
}

bool is_utf8(std::string_view text) {
    while (!text.empty()) {
        const std::size_t length = first_code_point(text).length;
        if (length == 0) return false;
        text.remove_prefix(length);
    }
    return true;
}

}  // namespace qk::graph
