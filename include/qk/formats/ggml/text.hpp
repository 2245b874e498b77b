// SPDX-License-Identifier: Apache-2.0
// ggml's blocks from text and back: ggml.q4_K.
#pragma once

#include "qk/formats/keys.hpp"
#include "qk/isa.hpp"

namespace qk::detail {
inline namespace QK_ISA {

/// Reads the name behind "ggml.", in either case, as ggml's own tools do.
inline parsed<format> parse_ggml(std::string_view name) {
    const auto small = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; };
    for (const ggml::named_blocks& known : ggml::named) {
        bool same = known.name.size() == name.size();
        for (std::size_t i = 0; same && i < name.size(); ++i) same = small(known.name[i]) == small(name[i]);
        if (same) return {known.format, {}};
    }
    message m("unknown format 'ggml.");
    m.append(name.substr(0, 60)).append("'; ggml's blocks are");
    for (const ggml::named_blocks& known : ggml::named) m.append(&known == ggml::named ? " " : ", ").append(known.name);
    return {no_format, m};
}

inline format_text text_of(const ggml_blocks& f) {
    for (const ggml::named_blocks& known : ggml::named)
        if (known.format == f) return format_text("ggml.").append(known.name);
    return "no format";
}

}  // namespace QK_ISA
}  // namespace qk::detail
