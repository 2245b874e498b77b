// SPDX-License-Identifier: Apache-2.0
// Microscaling formats from text and back: mx:element=F,block=N.
#pragma once

#include "qk/exact/begin.hpp"

#include "qk/formats/floating/text.hpp"
#include "qk/formats/keys.hpp"
#include "qk/isa.hpp"

namespace qk::detail {
inline namespace QK_ISA {

inline parsed<format> parse_microscaling(std::string_view keys_text) {
    microscaling f;
    std::string_view element;
    key keys[] = {{.name = "element", .words = &element}, {.name = "block", .number = &f.block_size}};
    message error = parse_keys("mx", keys_text, keys);
    if (error.empty() && element.empty()) error = "mx needs element=F, for instance element=fp6_e3m2";
    int width = 0;
    if (error.empty() && element.substr(0, 3) == "int" && parse_number(element.substr(3), width)) {
        if (width < 2) error = "an MX integer element needs at least 2 bits";
        f.element = {};
        f.integer_bits = width;
    } else if (error.empty()) {
        const parsed<floating> e = parse_element(element);
        f.element = e.value;
        error = e.error;
    }
    if (error.empty()) error = check(f);
    return {f, error};
}

inline format_text text_of(const microscaling& f) {
    format_text t("mx:");
    if (has_integer_elements(f)) return t.append("element=int").append(f.integer_bits).append(",block=").append(f.block_size);
    return t.append("element=").append(to_text(format(f.element))).append(",block=").append(f.block_size);
}

}  // namespace QK_ISA
}  // namespace qk::detail

#include "qk/exact/end.hpp"
