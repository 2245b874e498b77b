// SPDX-License-Identifier: Apache-2.0
// Says which operands an accumulator takes.
#pragma once

#include "qk/dot/elements.hpp"
#include "qk/isa.hpp"

namespace qk {

inline namespace QK_ISA {

/// Returns a sentence that says why `acc` cannot sum products of a and b, empty if it can. Checks the accumulator, too; the formats have
/// passed their own checks.
constexpr message check_operands(const format& a, const format& b, const accumulator& acc);

}  // namespace QK_ISA

namespace detail {
inline namespace QK_ISA {

constexpr bool is_fp64(const format& f) { return std::holds_alternative<floating>(f) && std::get<floating>(f) == fp64; }
constexpr element_kind kind_of(const format& f) {
    return with_family(f, [](const auto& g) { return kind_of(g); });
}
constexpr bool exceeds_float32(const format& f) {
    return std::holds_alternative<floating>(f) && qk::exceeds_float32(std::get<floating>(f));
}
constexpr bool is_wide_unsigned(const format& f) {
    return is_integer_format(f) && !std::get<integer>(f).is_signed && std::get<integer>(f).bits > 31;
}

}  // namespace QK_ISA
}  // namespace detail

namespace device_sums {
inline namespace QK_ISA {

/// kind_of(format): what is the same for all elements of an operand in this format.
using detail::kind_of;

}  // namespace QK_ISA
}  // namespace device_sums

inline namespace QK_ISA {

constexpr message check_operands(const format& a, const format& b, const accumulator& acc) {
    const message own = check(acc);
    if (!own.empty()) return own;
    if (acc.sum == summation::integer) {
        if (is_integer_format(a) && is_integer_format(b)) return {};
        return "sum=integer multiplies integer formats; for others say exact, aligned, sequential or pairwise";
    }
    if (detail::exceeds_float32(a) || detail::exceeds_float32(b)) return "operands are formats whose numbers float32 has";
    const bool doubles = acc.partial == fp64;
    if (doubles != detail::is_fp64(a) || doubles != detail::is_fp64(b)) return "fp64 operands and an fp64 accumulator go together";
    if (doubles) return {};
    if (detail::is_wide_unsigned(a) || detail::is_wide_unsigned(b)) return "uint32 operands need sum=integer";
    const detail::element_kind x = detail::kind_of(a), y = detail::kind_of(b);
    const bool rounded = acc.sum == summation::sequential || acc.sum == summation::pairwise;
    const int width = x.width + y.width, room = rounded ? 53 : 62;
    if (width > room) return message("these products have up to ").append(width).append(" bits; this accumulator takes ").append(room);
    if (acc.bundle > 1) {
        const int range = width + x.highest - x.lowest + y.highest - y.lowest + 6, wide = rounded ? 53 : 96;
        if (range > wide)
            return message("bundles of these products may have ").append(range).append(" bits; this accumulator takes ").append(wide);
    }
    return {};
}

}  // namespace QK_ISA

}  // namespace qk
