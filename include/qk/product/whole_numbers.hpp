// SPDX-License-Identifier: Apache-2.0
// Says which formats product_sums::integers takes.
#pragma once

#include "qk/formats/format.hpp"
#include "qk/formats/number.hpp"
#include "qk/isa.hpp"

namespace qk {

namespace detail {
inline namespace QK_ISA {

/// Is true for a float whose numbers are at most 512 times the smallest, and that has no NaN and no Inf.
constexpr bool is_small_whole(floating f) noexcept {
    return bits(f) <= 8 && !has_nan(f) && !has_infinity(f) && max_value(f) <= 512 * min_value(f);
}

}  // namespace QK_ISA
}  // namespace detail

inline namespace QK_ISA {

/// Is true where the elements of a format are whole numbers of a unit, as product_sums::integers needs them.
[[nodiscard]] constexpr bool takes_integers(const format& f) noexcept {
    const auto whole = [](floating e) { return detail::is_small_whole(e); };
    if (const auto* i = std::get_if<integer>(&f)) return i->bits <= 8;
    if (const auto* b = std::get_if<block_float>(&f)) return b->mantissa_bits <= 7;
    if (const floating* element = element_float(f)) return whole(*element);
    if (const auto* m = std::get_if<microscaling>(&f)) return m->integer_bits <= 8;
    if (const auto* e = std::get_if<floating>(&f)) return whole(*e);
    if (std::holds_alternative<ggml_blocks>(f)) return true;
    return false;
}

}  // namespace QK_ISA

}  // namespace qk
