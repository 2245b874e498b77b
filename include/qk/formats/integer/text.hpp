// SPDX-License-Identifier: Apache-2.0
// Integers from text and back: int8:symmetric,pow2 and int:bits=N,signed=0.
#pragma once

#include "qk/exact/begin.hpp"

#include "qk/formats/keys.hpp"
#include "qk/isa.hpp"

namespace qk::detail {
inline namespace QK_ISA {

inline parsed<format> parse_integer(integer f, std::string_view family, std::string_view keys_text, bool named) {
    key keys[] = {{.name = "symmetric", .flag = &f.symmetric}, {.name = "pow2", .flag = &f.pow2},
                  {.name = "narrow", .flag = &f.narrow},       {.name = "reduce_range", .flag = &f.reduce_range},
                  {.name = "bits", .number = &f.bits},         {.name = "signed", .flag = &f.is_signed}};
    message error = parse_keys(family, keys_text, std::span<key>(keys, named ? 4 : 6));
    if (error.empty() && !named && !keys[4].seen) error = missing(family, "bits");
    if (error.empty()) error = check(f);
    return {f, error};
}

inline void append_modifiers(format_text& t, integer f, char separator) {
    const struct {
        bool on;
        std::string_view name;
    } modifiers[] = {{f.symmetric, "symmetric"}, {f.pow2, "pow2"}, {f.narrow, "narrow"}, {f.reduce_range, "reduce_range"}};
    for (const auto& m : modifiers) {
        if (m.on) t.append(std::string_view(&separator, 1)).append(m.name);
        if (m.on) separator = ',';
    }
}

inline format_text text_of(integer f) {
    const integer plain{.bits = f.bits, .is_signed = f.is_signed};
    format_text t;
    if (const named_format* entry = find_format(format(plain))) {
        t.append(entry->name);
        append_modifiers(t, f, ':');
    } else {
        t.append("int:bits=").append(f.bits);
        if (!f.is_signed) t.append(",signed=0");
        append_modifiers(t, f, ',');
    }
    return t;
}

}  // namespace QK_ISA
}  // namespace qk::detail

#include "qk/exact/end.hpp"
