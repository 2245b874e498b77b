// SPDX-License-Identifier: Apache-2.0
// The formats of IEEE P3109 (draft 3.2): binaryKpP{s,u}{e,f}, with K bits in all, P bits of precision (the leading one counted), signed or
// unsigned, extended by infinities or finite. There are hundreds of them, so their names are a rule and not rows of the catalogue.
#pragma once

#include <string_view>

#include "qk/formats/floating/format.hpp"
#include "qk/isa.hpp"
#include "qk/text.hpp"

namespace qk {

inline namespace QK_ISA {

/// Returns "binary8p3se" and the like; empty for other formats.
constexpr fixed_text<16> p3109_name(floating f) {
    if (!is_p3109(f)) return {};
    fixed_text<16> name("binary");
    return name.append(bits(f))
        .append("p")
        .append(f.mantissa_bits + 1)
        .append(f.is_signed ? "s" : "u")
        .append(f.specials.infinity ? "e" : "f");
}

/// Returns the format of such a name; no_format for any other text.
constexpr floating find_p3109(std::string_view name) {
    const std::string_view whole = name;
    if (name.substr(0, 6) != "binary") return no_format;
    name.remove_prefix(6);
    const auto number = [&name] {
        int n = 0, digits = 0;
        for (; !name.empty() && name.front() >= '0' && name.front() <= '9' && digits < 3; ++digits, name.remove_prefix(1))
            n = 10 * n + (name.front() - '0');
        return digits == 0 ? -1 : n;
    };
    const int width = number();
    if (name.substr(0, 1) != "p") return no_format;
    name.remove_prefix(1);
    const int precision = number();
    if (name.size() != 2 || (name[0] != 's' && name[0] != 'u') || (name[1] != 'e' && name[1] != 'f')) return no_format;
    const floating f = p3109(width, precision, name[0] == 's', name[1] == 'e');
    return p3109_name(f) == whole ? f : no_format;  // no leading zeros
}

}  // namespace QK_ISA

}  // namespace qk
