// SPDX-License-Identifier: Apache-2.0
// Element formats with sign, exponent and mantissa: fp16, bf16, fp8, fp6, fp4, e8m0 and every other split.
#pragma once

#include "qk/exact/begin.hpp"

#include <bit>
#include <cstdint>
#include <string_view>

#include "qk/formats/family.hpp"
#include "qk/inline.hpp"
#include "qk/isa.hpp"

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
    friend QK_INLINE constexpr bool operator==(const specials&, const specials&) = default;

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

/// A format as independent facts. Everything else (largest number, widths, what has a code) is derived.
struct floating {
    int exponent_bits = 8;
    int mantissa_bits = 23;
    int bias = 127;  ///< a normal code means 1.m * 2^(exponent field - bias)
    qk::specials specials = qk::specials::ieee;
    bool is_signed = true;
    bool subnormals = true;  ///< the exponent field 0 means 0.m * 2^(1 - bias). No: 1.m * 2^-bias, but for 0 itself, which is code 0; where
                             ///< there is no mantissa either, code 0 is 2^-bias and there is no zero
    friend QK_INLINE constexpr bool operator==(const floating&, const floating&) = default;
};

inline constexpr floating fp32{8, 23, 127, specials::ieee};
inline constexpr floating fp24{8, 15, 127, specials::ieee};
inline constexpr floating tf32{8, 10, 127, specials::ieee};
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
inline namespace QK_ISA {
/// Is true for neither Inf nor NaN. (std::isfinite comes with a header that takes longer to compile than the rest of this folder.)
constexpr bool is_finite(float v) noexcept { return (std::bit_cast<std::uint32_t>(v) & 0x7fffffffu) < 0x7f800000u; }
}  // namespace QK_ISA
}  // namespace detail

inline namespace QK_ISA {

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

}  // namespace QK_ISA

namespace detail {
inline namespace QK_ISA {
constexpr std::uint64_t largest_fraction(floating f) {
    const std::uint64_t ones = (std::uint64_t{1} << f.mantissa_bits) - 1;
    const bool is_cut = static_cast<int>(largest_magnitude(f) >> f.mantissa_bits) - f.bias > max_exponent(f);
    return is_cut ? ones : largest_magnitude(f) & ones;
}
}  // namespace QK_ISA
}  // namespace detail

inline namespace QK_ISA {

/// Mantissa field of the largest finite number of a storage format (registers of dot products may have more bits).
constexpr std::uint32_t max_mantissa(floating f) { return static_cast<std::uint32_t>(detail::largest_fraction(f)); }

/// 2^e as a double, exact for every exponent used here.
constexpr double power_of_two(int e) { return std::bit_cast<double>(static_cast<std::uint64_t>(e + 1023) << 52); }

/// Largest finite value.
QK_INLINE constexpr double max_value(floating f) {
    const double one = power_of_two(f.mantissa_bits);
    return (one + static_cast<double>(detail::largest_fraction(f))) * power_of_two(max_exponent(f) - f.mantissa_bits);
}
constexpr double min_normal(floating f) { return power_of_two(min_exponent(f)); }
/// The smallest number above 0 of a format with subnormals, and the step of these.
constexpr double min_subnormal(floating f) { return power_of_two(min_exponent(f) - f.mantissa_bits); }
/// The smallest number above 0.
constexpr double min_value(floating f) {
    if (!f.subnormals) return f.mantissa_bits == 0 ? min_normal(f) : min_normal(f) + min_subnormal(f);
    return f.mantissa_bits == 0 ? min_normal(f) : min_subnormal(f);
}

constexpr double bits_per_value(floating f) { return bits(f); }
constexpr int block_size(floating) { return 0; }

// The formats of IEEE P3109 (draft 3.2) follow a rule: p3109.hpp has their names.

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

}  // namespace QK_ISA

namespace detail {
inline namespace QK_ISA {

/// Checks the facts about special values, zero and sign; the widths are right already.
constexpr message check_facts(floating f) {
    if (!f.is_signed && f.specials.negative_zero) return "an unsigned format has no -0: negative_zero must be 0";
    if (f.specials.high_nans == high_nans::mantissas && f.exponent_bits < 2)
        return "special=ieee keeps the highest exponent for Inf and NaN, so exponent must be at least 2";
    if (f.specials.high_nans == high_nans::mantissas && f.mantissa_bits < 1)
        return "special=ieee tells NaN from Inf by the mantissa, so mantissa must be at least 1";
    if (f.specials == specials::fn && f.mantissa_bits == 0 && f.exponent_bits < 2)
        return "special=fn with exponent 1 and mantissa 0 leaves no number but 0";
    if (!has_zero(f) && (f.is_signed || f.specials != specials::unsigned_nan))
        return "subnormals=0 with mantissa 0 leaves no zero: that is for unsigned formats whose highest code is NaN (sign=0,special=nan)";
    if (largest_magnitude(f) >> f.mantissa_bits == 0 && f.subnormals)
        return "the special values leave no normal number: use more bits, or special=none";
    return {};
}

}  // namespace QK_ISA
}  // namespace detail

inline namespace QK_ISA {

/// A floating format has 2 bits and more, of them at most 8 of the exponent and 20 of the mantissa; every code is exact in float32, and at
/// least one finite number is above 0. fp32 passes, and the formats of IEEE P3109 do, some of which have more exponents than float32.
constexpr message check(floating f) {
    if (f == fp32 || is_p3109(f)) return {};
    if (f == no_format) return "this is no format: parse_format failed, and its error says why";
    const message widths = detail::first_of(
        {detail::in_range("exponent", f.exponent_bits, 1, 8), detail::in_range("mantissa", f.mantissa_bits, 0, 20),
         detail::in_range(f.is_signed ? "the width 1 + exponent + mantissa" : "the width exponent + mantissa", bits(f), 2, 29),
         detail::in_range("bias", f.bias, -127, 255)});
    if (!widths.empty()) return widths;
    const message facts = detail::check_facts(f);
    if (!facts.empty()) return facts;
    if (max_exponent(f) > 127 || min_exponent(f) - f.mantissa_bits < -149) {
        return message("the numbers run from 2^")
            .append(min_exponent(f) - f.mantissa_bits)
            .append(" to 2^")
            .append(max_exponent(f))
            .append("; they must lie in float32's 2^-149 to 2^127: change exponent or bias");
    }
    return {};
}

}  // namespace QK_ISA

namespace detail {
inline namespace QK_ISA {

/// Elements of block formats have 8 bits or fewer, so that element times scale is exact wherever float32 can hold it.
constexpr message check_element(floating f, std::string_view what) {
    if (f == fp32 || !has_zero(f)) return message(what).append(" must be a float of 2 to 8 bits with a zero, for instance fp6_e3m2");
    message m = check(f);
    if (m.empty()) m = in_range(fixed_text<64>(what).append(" bits"), bits(f), 2, 8);
    if (m.empty() && max_value(f) < 0x1p-16) m = message(what).append("'s largest value must be at least 2^-16: choose a smaller bias");
    return m;
}

}  // namespace QK_ISA
}  // namespace detail

inline namespace QK_ISA {

constexpr format_facts facts(floating f) {
    const double smallest = min_value(f), lowest = f.is_signed ? -max_value(f) : has_zero(f) ? 0 : smallest;
    return {max_value(f), lowest, smallest, f.subnormals ? min_normal(f) : smallest, has_infinity(f), has_nan(f), has_negative_zero(f)};
}

/// Is true when every result of fake_quantize under this semantics has a code.
constexpr bool encodable(floating f, const semantics& how) {
    return f != no_format && (has_nan(f) || how.nan_without_code != nan_rule::nan);
}

}  // namespace QK_ISA

namespace detail {
inline namespace QK_ISA {

constexpr packing packing_of(floating f) { return {.element_width = bits(f)}; }

}  // namespace QK_ISA
}  // namespace detail

}  // namespace qk

#include "qk/exact/end.hpp"
