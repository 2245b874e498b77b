// SPDX-License-Identifier: Apache-2.0
// The status that encode returns, and which semantics it supports.
#pragma once

#include "qk/formats/format.hpp"
#include "qk/semantics.hpp"

namespace qk {

enum class encode_status : std::uint8_t {
    done,
    no_code,    ///< this semantics gives results for which the format has no code: use fake_quantize, or another semantics
    too_small,  ///< `packed` has too few bytes
};

/// Is true when every result of fake_quantize under this semantics has a code.
constexpr bool encodable(floating f, const semantics& how) {
    return f != no_format && (has_nan(f) || how.nan_without_code != nan_rule::nan);
}
constexpr bool encodable(integer, const semantics&) { return true; }
constexpr bool encodable(const table& f, const semantics& how) { return has_nan(f) || how.nan_without_code != nan_rule::nan; }
constexpr bool encodable(const block_float&, const semantics& how) { return how.bfp_specials == block_specials::block_nan; }
constexpr bool encodable(const microexponent&, const semantics&) { return true; }
/// encode searches the scale of a block that it sees as a whole.
constexpr bool search_has_codes(int block_size, const semantics& how) { return !is_searched(how.scale_rule) || block_size <= 512; }
constexpr bool encodable(const microscaling& f, const semantics& how) {
    if (!how.clamp_mx_scale || !search_has_codes(f.block_size, how)) return false;
    if (has_integer_elements(f)) return how.mx_specials == block_specials::block_nan && how.mxint_zero == zero_sign::positive;
    return how.mx_specials == block_specials::block_nan || (has_infinity(f.element) && has_nan(f.element));
}
constexpr bool encodable(const nvfloat& f, const semantics& how) {
    return has_nan(f.scale) && how.mx_specials == block_specials::block_nan && search_has_codes(f.block_size, how);
}
constexpr bool encodable(const format& f, const semantics& how) {
    return detail::with_family(f, [&how](const auto& g) { return encodable(g, how); });
}

}  // namespace qk
