// SPDX-License-Identifier: Apache-2.0
#include "qk/graph/files/json_text.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>

#include "qk/graph/base/names.hpp"
#include "qk/graph/base/printable.hpp"

namespace qk::graph {
namespace {

/// Escapes control characters above U+007E, which JSON allows unescaped, as \u (RFC 8259, section 7). They can only occur inside strings.
std::string without_controls(std::string json_text) {
    std::string_view json = json_text;
    if (std::ranges::none_of(json, [](char c) { return static_cast<unsigned char>(c) >= 0x7f; })) return json_text;
    std::string out;
    out.reserve(json.size());
    while (!json.empty()) {
        const code_point c = first_code_point(json);
        const std::size_t length = c.length == 0 ? 1 : c.length;
        if (c.value < 0x7f || !is_control(c.value)) {
            out += json.substr(0, length);
        } else {
            const unsigned v = static_cast<unsigned>(c.value);
            out += v > 0xffff ? formatted("\\u%04x\\u%04x", 0xd7c0u + (v >> 10), 0xdc00u + (v & 0x3ffu)) : formatted("\\u%04x", v);
        }
        json.remove_prefix(length);
    }
    return out;
}

}  // namespace

std::string json_text(const nlohmann::ordered_json& value, int indent) {
    return without_controls(value.dump(indent, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
}
std::string json_text(const nlohmann::json& value, int indent) {
    return without_controls(value.dump(indent, ' ', false, nlohmann::json::error_handler_t::replace));
}

}  // namespace qk::graph
