// SPDX-License-Identifier: Apache-2.0
// Turns values of a format into codes: the loops of `encode`. The values are on the format's grid already; nothing rounds here.
#pragma once

#include "qk/formats/codes/unpack.hpp"
#include "qk/isa.hpp"

namespace qk::detail {
inline namespace QK_ISA {

/// Computes code_of for n values.
template <class Arch>
QK_APART void to_codes(floating f, const float* y, std::uint32_t* code, std::size_t n) {
    const int m = f.mantissa_bits, magnitude_bits = f.exponent_bits + m;
    if (f == fp32) {
        for (std::size_t i = 0; i < n; ++i) code[i] = as_bits(y[i]);
    } else if (f == bf16) {
        for (std::size_t i = 0; i < n; ++i) code[i] = as_bits(y[i]) >> 16;
    } else if (!has_values_by_shift(f)) {
        for (std::size_t i = 0; i < n; ++i) code[i] = code_of(f, y[i]);
    } else {
        const std::uint32_t rebias = static_cast<std::uint32_t>(127 - f.bias) << m;
        const std::uint32_t least_normal = static_cast<std::uint32_t>(min_exponent(f) + 127) << 23;
        const float per_step = exact_power(m - min_exponent(f));
        const auto infinity = static_cast<std::uint32_t>(infinity_magnitude(f));
        const std::uint32_t nan = has_nan(f) ? nan_code(f) : 0, nan_has_sign = has_negative_zero(f) ? 1 : 0;
        for (std::size_t i = 0; i < n; ++i) {
            const std::uint32_t u = as_bits(y[i]), a = u & 0x7fffffffu;
            const std::uint32_t normal = (a >> (23 - m)) - rebias;
            // Magnitudes below the least normal; 0 for the other lanes, so that their conversion is defined.
            const std::uint32_t low = a < least_normal ? a : 0;
            const auto subnormal = static_cast<std::uint32_t>(static_cast<std::int32_t>(as_float(low) * per_step));
            std::uint32_t c = a < least_normal ? subnormal : normal;
            c = a >= 0x7f800000u ? infinity : c;
            const std::uint32_t sign = (u >> 31) << magnitude_bits;
            code[i] = a > 0x7f800000u ? nan | sign * nan_has_sign : c | sign;
        }
    }
}

/// Holds 2^-exponent as a product of two factors, because the power alone can lie beyond float32. y times both is the element.
struct inverse {
    float first = 1, second = 1;
};
QK_INLINE constexpr inverse inverse_of(int exponent) {
    const int e = -exponent, half = e > 127 ? 127 : e < -126 ? -126 : e;
    return {exact_power(half), exact_power(e - half)};
}

QK_INLINE std::uint32_t whole(float magnitude) { return static_cast<std::uint32_t>(static_cast<std::int32_t>(magnitude)); }

template <class Arch>
QK_APART void to_sign_magnitude_codes(int mantissa_bits, const float* y, const float* first, const float* second, std::uint32_t* code,
                                      std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) {
        const std::uint32_t u = as_bits(y[i]);
        code[i] = whole(as_float(u & 0x7fffffffu) * first[i] * second[i]) | (u >> 31) << mantissa_bits;
    }
}
template <class Arch>
QK_APART void to_twos_complement_codes(int width, const float* y, const float* first, const float* second, std::uint32_t* code,
                                       std::size_t n) {
    const std::uint32_t mask = low_bits(width);
    for (std::size_t i = 0; i < n; ++i) code[i] = whole(y[i] * first[i] * second[i]) & mask;
}

}  // namespace QK_ISA
}  // namespace qk::detail
