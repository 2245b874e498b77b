// SPDX-License-Identifier: Apache-2.0
// Quantizes one value to an affine integer. docs/reference/numerics.md, equations (5) and (6).
#pragma once

#include <cmath>

#include "qk/formats/integer.hpp"
#include "qk/isa.hpp"
#include "qk/reference/rounding.hpp"

namespace qk::reference {
inline namespace QK_ISA {

inline std::int64_t special_code(integer f, integer_special rule, std::int64_t zero_point) {
    return rule == integer_special::zero_point ? zero_point : rule == integer_special::lowest ? qmin(f) : qmax(f);
}

/// Returns the code of x. `one_scale` says that the tensor has one scale (not one per channel or block), which decides what +Inf becomes.
inline std::int64_t code_of(integer f, float x, float scale, std::int64_t zero_point, bool one_scale, const semantics& how,
                            std::uint32_t random) {
    x = flush_input(x, how);
    if (std::isnan(x)) return special_code(f, how.integer_nan, zero_point);
    if (std::isinf(x)) {
        if (x < 0) return qmin(f);
        return special_code(f, one_scale ? how.integer_infinity : how.integer_infinity_per_channel, zero_point);
    }
    float quotient = how.integer_mode == integer_mode::division ? divide(x, scale) : multiply(x, divide(1.0f, scale));
    if (std::isnan(quotient)) return special_code(f, how.integer_nan, zero_point);  // 0 times an infinite reciprocal
    double code;
    if (how.zero_point_before) {
        quotient = static_cast<float>(static_cast<double>(quotient) + static_cast<double>(static_cast<float>(zero_point)));
        code = round_whole(static_cast<double>(quotient), how, random);
    } else {
        code = round_whole(static_cast<double>(quotient), how, random) + static_cast<double>(zero_point);
    }
    if (code <= static_cast<double>(qmin(f))) return qmin(f);
    if (code >= static_cast<double>(qmax(f))) return qmax(f);
    return static_cast<std::int64_t>(code);
}

inline float value_of(std::int64_t code, float scale, std::int64_t zero_point) {
    return multiply(static_cast<float>(code - zero_point), scale);
}

inline float quantize(integer f, float x, float scale, std::int64_t zero_point, bool one_scale, const semantics& how,
                      std::uint32_t random) {
    return flush_output(value_of(code_of(f, x, scale, zero_point, one_scale, how, random), scale, zero_point), 0x1p-126, how);
}

}  // namespace QK_ISA
}  // namespace qk::reference
