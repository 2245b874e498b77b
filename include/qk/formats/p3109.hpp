// SPDX-License-Identifier: Apache-2.0
// The formats of IEEE P3109 (draft 3.2): binaryKpP{s,u}{e,f}, with K bits in all, P bits of precision (the leading one counted), signed or
// unsigned, extended by infinities or finite. There are hundreds of them, so their names are a rule and not rows of the catalogue.
#pragma once

#include <string_view>

#include "qk/formats/floating.hpp"
#include "qk/text.hpp"

namespace qk {

inline constexpr int p3109_least_width = 3, p3109_largest_width = 15;

/// Is true when there is a format of that width and precision: K from 3 to 15, P from 1 to K - 1, unsigned to K.
constexpr bool is_p3109(int width, int precision, bool is_signed) {
    return width >= p3109_least_width && width <= p3109_largest_width && precision >= 1 && precision <= width - int{is_signed};
}

/// Returns binary{width}p{precision}{s or u}{e or f}, or no_format where there is none. The bias is half of the exponents' number, the only
/// NaN is the code of -0 or, without a sign, the highest one, and Inf is the highest magnitude beside it.
constexpr floating p3109(int width, int precision, bool is_signed = true, bool extended = true) {
    if (!is_p3109(width, precision, is_signed)) return no_format;
    const int exponent_bits = width - precision + int{!is_signed};
    return {.exponent_bits = exponent_bits,
            .mantissa_bits = precision - 1,
            .bias = 1 << (exponent_bits - 1),
            .specials = is_signed ? (extended ? specials::extended : specials::fnuz)
                                  : (extended ? specials::unsigned_extended : specials::unsigned_nan),
            .is_signed = is_signed};
}

/// Is true for the formats that p3109 returns.
constexpr bool is_p3109(floating f) {
    return f != no_format && f.exponent_bits >= 1 && f.exponent_bits <= 15 && f.mantissa_bits >= 0 && f.mantissa_bits <= 15 &&
           f == p3109(bits(f), f.mantissa_bits + 1, f.is_signed, f.specials.infinity);
}

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

}  // namespace qk
