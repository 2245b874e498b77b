// SPDX-License-Identifier: Apache-2.0
// Mistakes in what comes out: constants, the top binade taken for overflow, NaN that a converter rounds like a number.
#pragma once

#include <cmath>
#include <cstdio>
#include <limits>
#include <optional>
#include <string>

#include "model.hpp"

namespace qk::compare {

/// Returns the number that every output is, or every output's element; nullopt if they differ, or if that is right.
inline std::optional<float> constant_output(const problem& p) {
    bool wrong = false;
    for (std::size_t i = 0; i < p.device.size(); ++i) {
        if (!same_value(p.device[i], p.device[0])) return std::nullopt;
        wrong = wrong || !same_value(p.expected[i], p.expected[0]);
    }
    return wrong ? std::optional(p.device[0]) : std::nullopt;
}
inline bool is_constant(const problem& p) { return constant_output(p).has_value(); }
inline std::string constant_text(const problem& p) {
    char text[32];
    std::snprintf(text, sizeof text, "%g", static_cast<double>(p.device[0]));
    return text;
}
inline float constant(float, const element_facts& e) { return e.all->device[0]; }

inline bool has_element(const element_facts& e) { return e.grid != nullptr && !e.grid->fixed && std::isfinite(e.x) && e.unit > 0; }
/// Returns the magnitude of the input in units of its scale.
inline double magnitude_of(const element_facts& e) { return std::abs(static_cast<double>(e.x) / static_cast<double>(e.unit)); }
inline float largest_of(const element_facts& e) {
    return std::copysign(static_cast<float>(e.grid->largest * static_cast<double>(e.unit)), e.x);
}
/// Returns what a converter gives that sees an overflow: Inf, or NaN where the format has none.
inline float infinity_or_nan(const element_facts& e) {
    const floating* f = std::get_if<floating>(&e.c->format);
    return f != nullptr && has_infinity(*f) ? std::copysign(std::numeric_limits<float>::infinity(), e.x)
                                            : std::numeric_limits<float>::quiet_NaN();
}
inline double top_binade(const element_facts& e) { return std::ldexp(1.0, std::ilogb(e.grid->largest)); }

inline float top_binade_largest(float y, const element_facts& e) {
    return has_element(e) && magnitude_of(e) >= top_binade(e) ? largest_of(e) : y;
}
inline float top_binade_special(float y, const element_facts& e) {
    return has_element(e) && magnitude_of(e) >= top_binade(e) ? infinity_or_nan(e) : y;
}
inline float next_binade_special(float y, const element_facts& e) {
    return has_element(e) && magnitude_of(e) >= 2 * top_binade(e) ? infinity_or_nan(e) : y;
}
inline float overflow_before_rounding(float y, const element_facts& e) {
    return has_element(e) && magnitude_of(e) > e.grid->largest ? infinity_or_nan(e) : y;
}

inline float negative_zero_is_nan(float y, const element_facts& e) {
    return y == 0 && std::signbit(e.x) ? std::numeric_limits<float>::quiet_NaN() : y;
}
inline bool without_negative_zero(const problem& p) {
    const floating* f = number_float(p.asked.format);
    return f != nullptr && f->is_signed && !has_negative_zero(*f) && has_nan(*f);
}

inline std::uint32_t kept_payload(const element_facts& e) {
    return (std::bit_cast<std::uint32_t>(e.x) & 0x7fffffu) >> (23 - e.grid->mantissa);
}
/// NaN whose payload lies below what the mantissa keeps has the code of Inf.
inline float cut_nan_is_infinity(float y, const element_facts& e) {
    if (e.x == e.x || e.grid == nullptr || e.grid->fixed || kept_payload(e) != 0) return y;
    return std::copysign(std::numeric_limits<float>::infinity(), e.x);
}
/// Rounding adds to a NaN's payload as to a mantissa: what becomes 0 is Inf, and all ones carry through the exponent into the sign.
inline float nan_rounded(float y, const element_facts& e) {
    if (e.x == e.x || e.grid == nullptr || e.grid->fixed) return y;
    const int drop = 23 - e.grid->mantissa;
    const std::uint32_t payload = std::bit_cast<std::uint32_t>(e.x) & 0x7fffffu, odd = payload >> drop & 1u;
    const std::uint32_t rounded = (payload + (1u << (drop - 1)) - 1 + odd) >> drop;
    if (rounded == 0) return std::copysign(std::numeric_limits<float>::infinity(), e.x);
    return rounded >> e.grid->mantissa != 0 ? std::copysign(0.0f, -e.x) : y;
}
inline bool has_infinities(const problem& p) {
    const floating* f = std::get_if<floating>(&p.asked.format);
    return f != nullptr && has_infinity(*f) && f->mantissa_bits < 23;
}

}  // namespace qk::compare
