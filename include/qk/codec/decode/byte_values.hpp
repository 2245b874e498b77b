// SPDX-License-Identifier: Apache-2.0
// Turns codes of 8, 6 and 4 bits of floating formats into values, 32 at a time, where bytes can be shuffled and vectors have 8 lanes. Such
// values have at most 3 mantissa bits, so the two upper bytes of a float32 hold them. Tables indexed by a code's halves give both bytes:
//   (1) upper byte = A[s hhh] + B_upper[llll],  lower byte = B_lower[llll]                 hhh > 0
//   (2) upper byte = A[s 000] + S_upper[llll],  lower byte = S_lower[llll]                 hhh = 0, where the subnormal ones are
//
// A 4-bit code is the index into one table; a 6-bit code, s h llll, is the index into two, between which h chooses. tests/core checks every
// code in every place of a vector.
#pragma once

#include <cstddef>

#include "qk/codec/decode/half_values.hpp"
#include "qk/formats/format.hpp"
#include "qk/inline.hpp"
#include "qk/isa.hpp"
#include "qk/lanes/code_lanes.hpp"

namespace qk::detail {
inline namespace QK_ISA {

/// Is true when this architecture has byte_values.
template <class Arch>
constexpr bool has_byte_values() noexcept {
    return QK_HAS(BYTE_SHUFFLES) && kernels::lanes<Arch> == 8;
}

/// Is true when byte_values supports the format. Subnormal magnitudes have hhh = 0, and the lower byte of (1) does not depend on hhh. (1)
/// gives the right lower byte for Inf and NaN where the bias is odd and a NaN has a mantissa bit.
QK_INLINE constexpr bool in_bytes(floating f) noexcept {
    const int width = bits(f);
    if (!is_classic(f) || min_exponent(f) - f.mantissa_bits < -126) return false;
    if ((f.specials == specials::ieee || f.specials == specials::fn) && f.bias % 2 == 0) return false;
    if (f.specials == specials::fn && f.mantissa_bits == 0) return false;
    if (width == 6) return f.specials == specials::none && is_signed(f) && f.mantissa_bits <= 3;
    return width == 4 ? f.specials == specials::none : width == 8 && is_signed(f) && f.mantissa_bits <= 3;
}

#if QK_HAS(BYTE_SHUFFLES)

template <class Arch>
class byte_values {
  public:
    static constexpr std::size_t count = 32;  ///< codes at a time

    /// Fills the tables. `values(code)` returns the float32 values of a vector of codes.
    template <class Values>
    QK_INLINE void fill(floating f, const Values& values) noexcept {
        using V = kernels::vi<Arch>;
        const V low = kernels::iota<Arch>(), high = low + V(8);
        const V s0 = kernels::as_int<Arch>(values(low)), s1 = kernels::as_int<Arch>(values(high));
        subnormal_upper = bytes_at(s0 >> 24, s1 >> 24), subnormal_lower = bytes_at(s0 >> 16, s1 >> 16);
        if (bits(f) == 4) return;
        if (bits(f) == 6) {
            const V s2 = kernels::as_int<Arch>(values(low + V(16))), s3 = kernels::as_int<Arch>(values(high + V(16)));
            upper_of_low = bytes_at(s2 >> 24, s3 >> 24), lower_of_low = bytes_at(s2 >> 16, s3 >> 16);
            return;
        }
        const int m = f.mantissa_bits, rebias = (127 - f.bias) << 7;
        const V odd(rebias & 0x80), b0 = (low << (7 - m)) + odd, b1 = (high << (7 - m)) + odd;
        upper_of_low = bytes_at(b0 >> 8, b1 >> 8), lower_of_low = bytes_at(b0, b1);
        // Magnitudes above `special` are Inf or NaN: the exponent is all ones.
        const V rest(rebias >> 8), a0 = (low << (11 - m) >> 8) + rest;
        const V none = select(low == V(0), V(0), a0);
        of_high = bytes_at(none, none | V(0x80));
        special = _mm256_set1_epi8(static_cast<char>(f.specials == specials::ieee ? (((1 << f.exponent_bits) - 1) << m) - 1
                                                     : f.specials == specials::fn ? 0x7e
                                                                                  : 0x7f));
        lone_nan = f.specials == specials::fnuz;
    }

    /// Decodes the 32 codes at `in` and calls put(k, eight values) for k = 0, 8, 16, 24. Reads nothing behind the codes. (Codes stand in
    /// the order of kernels::in_eights: neighbours stay neighbours when bytes are interleaved twice within both halves of a register.)
    template <int Width, bool LoneNan, class Put>
    QK_INLINE void each(const std::byte* in, const Put& put) const {
        __m256i upper, lower;
        if constexpr (Width == 4) {
            const __m256i c = codes_of_four(in);
            upper = _mm256_shuffle_epi8(subnormal_upper, c), lower = _mm256_shuffle_epi8(subnormal_lower, c);
        } else if constexpr (Width == 6) {
            // Shuffles take the index from a byte's lower half as long as its highest bit is not set.
            const __m256i c = kernels::in_eights(codes_of_six(in)), high = _mm256_slli_epi16(c, 3);
            upper = _mm256_blendv_epi8(_mm256_shuffle_epi8(subnormal_upper, c), _mm256_shuffle_epi8(upper_of_low, c), high);
            lower = _mm256_blendv_epi8(_mm256_shuffle_epi8(subnormal_lower, c), _mm256_shuffle_epi8(lower_of_low, c), high);
            upper = _mm256_or_si256(upper, _mm256_and_si256(_mm256_slli_epi16(c, 2), _mm256_set1_epi8(-128)));
        } else {
            const __m256i c = kernels::in_eights(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(in)));
            const __m256i high = _mm256_and_si256(_mm256_srli_epi16(c, 4), _mm256_set1_epi8(15));
            // Of a magnitude, shuffles take the lower half; its sum with 0x70 has the highest bit, which blends ask for, where hhh > 0.
            const __m256i magnitude = _mm256_and_si256(c, _mm256_set1_epi8(0x7f));
            const __m256i is_normal = _mm256_add_epi8(magnitude, _mm256_set1_epi8(0x70));
            const auto at_low = [&](__m256i subnormal, __m256i normal) QK_INLINE_CALL {
                return _mm256_blendv_epi8(_mm256_shuffle_epi8(subnormal, magnitude), _mm256_shuffle_epi8(normal, magnitude), is_normal);
            };
            const __m256i of_low = at_low(subnormal_upper, upper_of_low);
            lower = at_low(subnormal_lower, lower_of_low);
            upper = _mm256_add_epi8(_mm256_shuffle_epi8(of_high, high), of_low);
            if constexpr (LoneNan) {
                const __m256i is_nan = _mm256_cmpeq_epi8(c, _mm256_set1_epi8(-128));
                upper = _mm256_xor_si256(upper, is_nan), lower = _mm256_or_si256(lower, _mm256_and_si256(is_nan, _mm256_set1_epi8(-64)));
            } else {
                upper = _mm256_or_si256(upper, _mm256_and_si256(_mm256_cmpgt_epi8(magnitude, special), _mm256_set1_epi8(0x7f)));
            }
        }
        const __m256i zero = _mm256_setzero_si256(), first = _mm256_unpacklo_epi8(lower, upper),
                      second = _mm256_unpackhi_epi8(lower, upper);
        put(0, as_floats(_mm256_unpacklo_epi16(zero, first)));
        put(8, as_floats(_mm256_unpackhi_epi16(zero, first)));
        put(16, as_floats(_mm256_unpacklo_epi16(zero, second)));
        put(24, as_floats(_mm256_unpackhi_epi16(zero, second)));
    }

    /// Calls call(each_32), where each_32 is the each(in, put) for width 8, 6 or 4. `Known` is the width if known when compiling, else 0.
    template <int Known = 0, class Call>
    QK_INLINE void with_kind(int width, const Call& call) const {
        const auto as = [&](auto wide, auto nan) QK_INLINE_CALL {
            constexpr int w = decltype(wide)::value;
            if constexpr (Known == 0 || Known == w)
                call([this](const std::byte* in, const auto& put)
                         QK_INLINE_CALL { this->template each<w, decltype(nan)::value>(in, put); });
        };
        if (width == 4) as(std::integral_constant<int, 4>(), std::false_type());
        else if (width == 6) as(std::integral_constant<int, 6>(), std::false_type());
        else if (lone_nan) as(std::integral_constant<int, 8>(), std::true_type());
        else as(std::integral_constant<int, 8>(), std::false_type());
    }

  private:
    static QK_INLINE kernels::vf<Arch> as_floats(__m256i v) noexcept { return kernels::vf<Arch>(_mm256_castsi256_ps(v)); }
    /// Returns the lowest bytes of sixteen lanes, in both halves of a register.
    static QK_INLINE __m256i bytes_at(kernels::vi<Arch> a, kernels::vi<Arch> b) noexcept {
        return _mm256_broadcastsi128_si256(_mm_unpacklo_epi64(kernels::lowest_bytes(a.data), kernels::lowest_bytes(b.data)));
    }

    __m256i subnormal_upper, subnormal_lower, upper_of_low, lower_of_low, of_high, special;
    bool lone_nan = false;
};

#else

template <class Arch>
class byte_values {};

#endif

}  // namespace QK_ISA
}  // namespace qk::detail
