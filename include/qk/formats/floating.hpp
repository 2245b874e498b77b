// SPDX-License-Identifier: Apache-2.0
// Element formats with sign, exponent and mantissa: fp16, bf16, fp8, fp6, fp4, e8m0 and every other split.
#pragma once

#include "qk/exact/begin.hpp"

#include <bit>
#include <cstdint>

namespace qk {

/// How many magnitudes at the top of the codes, above the largest number and Inf, are NaN.
enum class high_nans : std::uint8_t {
    none,      ///< no magnitude is NaN
    one,       ///< the one whose bits are all set
    mantissas  ///< those with the highest exponent and a mantissa other than 0 (IEEE 754)
};

/// Which codes of a floating format do not mean a finite number: three independent facts, and names for usual combinations. From the
/// highest magnitude down there are NaNs, Inf and numbers.
struct specials {
    bool infinity = true;                                ///< the magnitude below the NaNs is Inf
    qk::high_nans high_nans = qk::high_nans::mantissas;  ///< of either sign
    bool negative_zero = true;                           ///< no: the code of -0 is NaN. Unsigned formats have no -0 and no such code
    friend constexpr bool operator==(const specials&, const specials&) = default;

    static const specials ieee;               ///< exponent all ones: Inf (mantissa 0) and NaN
    static const specials fn;                 ///< no Inf; one magnitude, all ones, is NaN of either sign
    static const specials fnuz;               ///< no Inf, no -0; the code of -0 is the only NaN
    static const specials none;               ///< every code is finite
    static const specials extended;           ///< Inf, and the code of -0 is the only NaN (IEEE P3109, signed)
    static const specials unsigned_ieee;      ///< as `ieee`, without a sign
    static const specials unsigned_none;      ///< as `none`, without a sign
    static const specials unsigned_nan;       ///< no sign; the highest code is the only NaN (IEEE P3109, finite; UE5M3)
    static const specials unsigned_extended;  ///< no sign; the highest code is the only NaN, and Inf lies below it (IEEE P3109)
};
inline constexpr specials specials::ieee{};
inline constexpr specials specials::fn{false, qk::high_nans::one, true};
inline constexpr specials specials::fnuz{false, qk::high_nans::none, false};
inline constexpr specials specials::none{false, qk::high_nans::none, true};
inline constexpr specials specials::extended{true, qk::high_nans::none, false};
inline constexpr specials specials::unsigned_ieee{true, qk::high_nans::mantissas, false};
inline constexpr specials specials::unsigned_none{false, qk::high_nans::none, false};
inline constexpr specials specials::unsigned_nan{false, qk::high_nans::one, false};
inline constexpr specials specials::unsigned_extended{true, qk::high_nans::one, false};

/// A value of this type names a format by independent facts: a sign or none, exponent_bits, mantissa_bits, at most 16 bits in all, or fp32
/// itself. Everything else (largest number, widths, what has a code) is derived.
struct floating {
    int exponent_bits = 8;
    int mantissa_bits = 23;
    int bias = 127;  ///< a normal code means 1.m * 2^(exponent field - bias)
    qk::specials specials = qk::specials::ieee;
    bool is_signed = true;
    bool subnormals = true;  ///< the exponent field 0 means 0.m * 2^(1 - bias). No: 1.m * 2^-bias, but for 0 itself, which is code 0; where
                             ///< there is no mantissa either, code 0 is 2^-bias and there is no zero
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
inline constexpr floating fp4_e3m0{3, 0, 3, specials::none};
inline constexpr floating fp4_e1m2{1, 2, 0, specials::none};
/// Unsigned powers of two; code 0xff is NaN, there is no zero (OCP MX v1.0, section 5.4.1).
inline constexpr floating e8m0{8, 0, 127, specials::unsigned_nan, false, false};
/// Unsigned scales; the highest code is NaN.
inline constexpr floating ue5m3{5, 3, 15, specials::unsigned_nan, false};
inline constexpr floating ue4m3{4, 3, 7, specials::unsigned_nan, false};

/// No format: the value of a parse_format that failed. `check` rejects it; fake_quantize and decode give NaN everywhere, encode gives
/// encode_status::no_code, and a tensor of it packs into no byte.
inline constexpr floating no_format{0, 0, 0, specials::unsigned_nan, false, false};

namespace detail {
/// Is true for neither Inf nor NaN. (std::isfinite comes with a header that takes longer to compile than the rest of this folder.)
constexpr bool is_finite(float v) noexcept { return (std::bit_cast<std::uint32_t>(v) & 0x7fffffffu) < 0x7f800000u; }
}  // namespace detail

constexpr bool is_signed(floating f) { return f.is_signed; }
constexpr int bits(floating f) { return int{f.is_signed} + f.exponent_bits + f.mantissa_bits; }
constexpr bool has_infinity(floating f) { return f.specials.infinity; }
constexpr bool has_negative_zero(floating f) { return f.is_signed && f.specials.negative_zero; }
constexpr bool has_nan(floating f) { return f.specials.high_nans != high_nans::none || (f.is_signed && !f.specials.negative_zero); }
/// Formats without subnormals and without a mantissa are powers of two alone.
constexpr bool has_zero(floating f) { return f.subnormals || f.mantissa_bits > 0; }

/// Is true for the shapes that most systems have: a sign, subnormals, and special values as one of specials' first four names says. The
/// fast forms of the codec are made for these.
constexpr bool is_classic(floating f) {
    const bool known =
        f.specials == specials::ieee || f.specials == specials::fn || f.specials == specials::fnuz || f.specials == specials::none;
    return f.is_signed && f.subnormals && known;
}

/// The codes, without a sign, of the highest magnitude, of Inf (if there is one) and of the largest number.
constexpr std::uint64_t top_magnitude(floating f) { return (std::uint64_t{1} << (f.exponent_bits + f.mantissa_bits)) - 1; }
constexpr std::uint64_t infinity_magnitude(floating f) {
    switch (f.specials.high_nans) {
        case high_nans::none: break;
        case high_nans::one: return top_magnitude(f) - 1;
        case high_nans::mantissas: return top_magnitude(f) - ((std::uint64_t{1} << f.mantissa_bits) - 1);
    }
    return top_magnitude(f);
}
constexpr std::uint64_t largest_magnitude(floating f) { return infinity_magnitude(f) - std::uint64_t{f.specials.infinity}; }

/// Is true for storage formats with more exponents than float32 has (some of IEEE P3109's). In arrays of float32 they are cut to its range:
/// numbers beyond do not occur, and min_exponent, max_exponent and max_value below say so. number_of (number.hpp) knows the whole format.
constexpr bool exceeds_float32(floating f) { return f.exponent_bits > 8 && bits(f) <= 16; }

/// Exponent of the smallest normal number; subnormals have the step 2^(min_exponent - mantissa_bits).
constexpr int min_exponent(floating f) {
    const int e = f.subnormals ? 1 - f.bias : -f.bias;
    return exceeds_float32(f) && e < -160 ? -160 : e;
}

/// Exponent of the largest finite number.
constexpr int max_exponent(floating f) {
    const int e = static_cast<int>(largest_magnitude(f) >> f.mantissa_bits) - f.bias;
    return exceeds_float32(f) && e > 127 ? 127 : e;
}

/// Mantissa field of the largest finite number.
constexpr std::uint32_t max_mantissa(floating f) {
    const std::uint64_t ones = (std::uint64_t{1} << f.mantissa_bits) - 1;
    const bool is_cut = static_cast<int>(largest_magnitude(f) >> f.mantissa_bits) - f.bias > max_exponent(f);
    return static_cast<std::uint32_t>(is_cut ? ones : largest_magnitude(f) & ones);
}

/// 2^e as a double, exact for every exponent used here.
constexpr double power_of_two(int e) { return std::bit_cast<double>(static_cast<std::uint64_t>(e + 1023) << 52); }

/// Largest finite value.
constexpr double max_value(floating f) {
    const double one = power_of_two(f.mantissa_bits);
    return (one + max_mantissa(f)) * power_of_two(max_exponent(f) - f.mantissa_bits);
}
constexpr double min_normal(floating f) { return power_of_two(min_exponent(f)); }
/// The smallest number above 0 of a format with subnormals, and the step of these.
constexpr double min_subnormal(floating f) { return power_of_two(min_exponent(f) - f.mantissa_bits); }
/// The smallest number above 0.
constexpr double min_value(floating f) {
    if (!f.subnormals) return f.mantissa_bits == 0 ? min_normal(f) : min_normal(f) + min_subnormal(f);
    return f.mantissa_bits == 0 ? min_normal(f) : min_subnormal(f);
}

}  // namespace qk

#include "qk/exact/end.hpp"
