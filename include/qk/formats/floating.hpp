// SPDX-License-Identifier: Apache-2.0
// Element formats with sign, exponent and mantissa: fp16, bf16, fp8, fp6, fp4, e8m0 and every other split.
#pragma once

#include "qk/exact/begin.hpp"

#include <bit>
#include <cstdint>

namespace qk {

/// Which codes of a floating format do not mean a finite number.
enum class specials : std::uint8_t {
    ieee,  ///< exponent all ones: Inf (mantissa 0) and NaN
    fn,    ///< no Inf; one magnitude, all ones, is NaN of either sign
    fnuz,  ///< no Inf, no -0; the code of -0 is the only NaN
    none,  ///< every code is finite
    e8m0,  ///< unsigned powers of two; code 0xff is NaN, there is no zero (OCP MX v1.0, section 5.4.1)
};

/// A value of this type names a format: width 1 + exponent_bits + mantissa_bits (e8m0: no sign), at most 16 bits, or fp32 itself.
struct floating {
    int exponent_bits = 8;
    int mantissa_bits = 23;
    int bias = 127;  ///< a normal code means 1.m * 2^(exponent field - bias)
    qk::specials specials = qk::specials::ieee;
    friend constexpr bool operator==(const floating&, const floating&) = default;
};

inline constexpr floating fp32{8, 23, 127, specials::ieee};
inline constexpr floating fp16{5, 10, 15, specials::ieee};
inline constexpr floating bf16{8, 7, 127, specials::ieee};
inline constexpr floating fp8_e4m3fn{4, 3, 7, specials::fn};
inline constexpr floating fp8_e5m2{5, 2, 15, specials::ieee};
inline constexpr floating fp8_e4m3fnuz{4, 3, 8, specials::fnuz};
inline constexpr floating fp8_e5m2fnuz{5, 2, 16, specials::fnuz};
inline constexpr floating fp8_e4m3{4, 3, 7, specials::ieee};
inline constexpr floating fp8_e3m4{3, 4, 3, specials::ieee};
inline constexpr floating fp8_e4m3b11fnuz{4, 3, 11, specials::fnuz};
inline constexpr floating fp6_e3m2{3, 2, 3, specials::none};
inline constexpr floating fp6_e2m3{2, 3, 1, specials::none};
inline constexpr floating fp4_e2m1{2, 1, 1, specials::none};
inline constexpr floating e8m0{8, 0, 127, specials::e8m0};

/// No format: the value of a parse_format that failed. `check` rejects it; fake_quantize and decode give NaN everywhere, encode gives
/// encode_status::no_code, and a tensor of it packs into no byte.
inline constexpr floating no_format{.exponent_bits = 0, .mantissa_bits = 0, .bias = 0, .specials = specials::e8m0};

namespace detail {
/// Is true for neither Inf nor NaN. (std::isfinite comes with a header that takes longer to compile than the rest of this folder.)
constexpr bool is_finite(float v) noexcept { return (std::bit_cast<std::uint32_t>(v) & 0x7fffffffu) < 0x7f800000u; }
}  // namespace detail

constexpr bool is_signed(floating f) { return f.specials != specials::e8m0; }
constexpr int bits(floating f) { return int{is_signed(f)} + f.exponent_bits + f.mantissa_bits; }
constexpr bool has_infinity(floating f) { return f.specials == specials::ieee; }
constexpr bool has_nan(floating f) { return f.specials != specials::none; }
constexpr bool has_negative_zero(floating f) { return f.specials != specials::fnuz && is_signed(f); }

/// Exponent of the smallest normal number; its subnormals have the step 2^(min_exponent - mantissa_bits).
constexpr int min_exponent(floating f) { return f.specials == specials::e8m0 ? -127 : 1 - f.bias; }

/// Exponent of the largest finite number.
constexpr int max_exponent(floating f) {
    const int top = (1 << f.exponent_bits) - 1 - f.bias;  // exponent field all ones
    if (f.specials == specials::ieee || f.specials == specials::e8m0) return top - 1;
    if (f.specials == specials::fn && f.mantissa_bits == 0) return top - 1;
    return top;
}

/// Mantissa field of the largest finite number.
constexpr std::uint32_t max_mantissa(floating f) {
    const std::uint32_t ones = (std::uint32_t{1} << f.mantissa_bits) - 1;
    return f.specials == specials::fn && f.mantissa_bits > 0 ? ones - 1 : ones;
}

/// 2^e as a double, exact for every exponent used here.
constexpr double power_of_two(int e) { return std::bit_cast<double>(static_cast<std::uint64_t>(e + 1023) << 52); }

/// Largest finite value.
constexpr double max_value(floating f) {
    const double one = power_of_two(f.mantissa_bits);
    return (one + max_mantissa(f)) * power_of_two(max_exponent(f) - f.mantissa_bits);
}
constexpr double min_normal(floating f) { return power_of_two(min_exponent(f)); }
constexpr double min_subnormal(floating f) { return power_of_two(min_exponent(f) - f.mantissa_bits); }

}  // namespace qk

#include "qk/exact/end.hpp"
