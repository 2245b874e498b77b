// SPDX-License-Identifier: Apache-2.0
// Turns codes of 16, 8 and 6 bits of floating formats into values by the processor's conversion of float16, 32 at a time, where vectors
// have 8 or 16 lanes. A format of at most 5 exponent bits is a part of float16: its code, shifted to the places that float16 has for
// exponent and mantissa, is the code of a value that is too small by a power of two, subnormal ones too. Only Inf and NaN need more: all
// exponent bits. With 8 lanes the shifts are done in bytes, 32 codes in a register, one for the upper and one for the lower byte of each
// float16. With 16 lanes, and for codes of 6 bits, which lie across bytes, they are done in words of 16 bits, one for each.
#pragma once

#include <cstddef>
#include <type_traits>

#include "qk/formats/codes/unpack.hpp"
#include "qk/formats/format.hpp"
#include "qk/inline.hpp"
#include "qk/isa.hpp"
#include "qk/lanes/code_lanes.hpp"

namespace qk::detail {
inline namespace QK_ISA {

/// Is true when this architecture has half_values.
template <class Arch>
constexpr bool has_half_values() noexcept {
    return (QK_HAS(MASKED_BYTES) && kernels::lanes<Arch> == 16) ||
           (QK_HAS(BYTE_SHUFFLES) && QK_HAS(HALF_CONVERSIONS) && kernels::lanes<Arch> == 8);
}

/// How codes become codes of float16.
enum class half_form : std::uint8_t {
    none,     ///< not by this
    as_is,    ///< they are: 16 bits, 5 of them exponent
    words,    ///< 6 bits: no Inf, no NaN
    upper,    ///< 8 bits, 2 of them mantissa: the upper byte has all of them; Inf and NaN, if any, are float16's
    shifted,  ///< 8 bits: Inf and NaN, if any, have fewer exponent bits
    lone_nan  ///< 8 bits: the code of -0 is NaN
};

/// Returns how half_values decodes a format that floating_values supports. The missing power of two must not be below 1.
QK_INLINE constexpr half_form half_form_of(floating f) {
    const int width = bits(f), m = f.mantissa_bits;
    const bool ieee = f.specials == specials::ieee, none = f.specials == specials::none;
    if (!is_classic(f) || !is_signed(f) || f.bias > 15 || f.bias < -60 || f.exponent_bits > 5) return half_form::none;
    if (f.exponent_bits == 5 && !ieee) return half_form::none;  // float16 has no numbers of the highest exponent
    if (width == 16) return ieee && m == 10 ? half_form::as_is : half_form::none;
    if (width == 6) return none ? half_form::words : half_form::none;
    if (width != 8) return half_form::none;
    if (m == 2) return half_form::upper;
    return f.specials == specials::fnuz ? half_form::lone_nan : half_form::shifted;
}

/// Returns the power of two by which half_values' results must still be multiplied.
QK_INLINE constexpr float half_unit(floating f) { return exact_power(15 - f.bias); }

#if QK_HAS(BYTE_SHUFFLES)

/// Returns the 32 codes of 6 bits at `in`, a byte each: three bytes hold four of them. Reads nothing behind the codes.
QK_INLINE __m256i codes_of_six(const std::byte* in) noexcept {
    const __m128i first = _mm_loadu_si128(reinterpret_cast<const __m128i*>(in)),
                  second = _mm_loadu_si128(reinterpret_cast<const __m128i*>(in + 8));  // 24 bytes in all
    const __m256i three_of_four =
        _mm256_setr_epi8(0, 1, 2, -1, 3, 4, 5, -1, 6, 7, 8, -1, 9, 10, 11, -1, 4, 5, 6, -1, 7, 8, 9, -1, 10, 11, 12, -1, 13, 14, 15, -1);
    const __m256i v = _mm256_shuffle_epi8(_mm256_inserti128_si256(_mm256_castsi128_si256(first), second, 1), three_of_four);
    const auto code = [&](__m256i shifted, int k) QK_INLINE_CALL { return _mm256_and_si256(shifted, _mm256_set1_epi32(63 << (8 * k))); };
    return _mm256_or_si256(_mm256_or_si256(code(v, 0), code(_mm256_slli_epi32(v, 2), 1)),
                           _mm256_or_si256(code(_mm256_slli_epi32(v, 4), 2), code(_mm256_slli_epi32(v, 6), 3)));
}

/// Returns the 32 codes of 4 bits at `in`, a byte each, in the order of kernels::in_eights. Reads nothing behind the codes.
QK_INLINE __m256i codes_of_four(const std::byte* in) noexcept {
    constexpr char no = -1;
    const __m256i order = _mm256_setr_epi8(0, no, 1, no, 4, no, 5, no, 8, no, 9, no, 12, no, 13, no, 2, no, 3, no, 6, no, 7, no, 10, no, 11,
                                           no, 14, no, 15, no);
    const __m256i twice = _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(in)));
    const __m256i two = _mm256_shuffle_epi8(twice, order);
    return _mm256_and_si256(_mm256_or_si256(two, _mm256_slli_epi16(two, 4)), _mm256_set1_epi8(15));
}

#endif

#if QK_HAS(BYTE_SHUFFLES) && (QK_HAS(HALF_CONVERSIONS) || QK_HAS(MASKED_BYTES))

template <class Arch>
class half_values {
  public:
    static constexpr std::size_t count = 32;  ///< codes at a time

    QK_INLINE explicit half_values(floating f) noexcept : width(bits(f)), form(half_form_of(f)) {
        const int m = f.mantissa_bits, magnitude = (1 << (f.exponent_bits + m)) - 1;
        if (form == half_form::words) {
            down = _mm_cvtsi32_si128(m);
            word_bits = words(magnitude << (10 - m) | 0x8000);
        } else if (form != half_form::as_is && form != half_form::none) {
            down = _mm_cvtsi32_si128(m - 2), up = _mm_cvtsi32_si128(10 - m);
            upper_bits = bytes(magnitude >> (m - 2));
            lower_bits = bytes(magnitude << (10 - m));
            largest = bytes(f.specials == specials::none ? magnitude
                            : f.specials == specials::fn ? magnitude - 1
                                                         : (magnitude >> m << m) - 1);
            word_bits = words(magnitude << (10 - m) | 0x8000), word_up = words(10 - m);
            twice_largest = _mm_add_epi8(_mm256_castsi256_si128(largest), _mm256_castsi256_si128(largest));
            to_special = words((31 - (magnitude >> m)) << 10);
        }
    }

    /// Calls call(each_32) with the each(in, put) of the format: it decodes the 32 codes at `in` and calls put(k, values from number k on,
    /// over half_unit) for each vector. It reads nothing behind the codes. `Known` is the width if known when compiling, else 0.
    template <int Known, class Call>
    QK_INLINE void with_form(const Call& call) const {
        const auto as = [&](auto known, auto wide) QK_INLINE_CALL {
            constexpr int w = decltype(wide)::value;
            if constexpr (Known == 0 || Known == w)
                call([this](const std::byte* in, const auto& put)
                         QK_INLINE_CALL { this->template each<decltype(known)::value, w>(in, put); });
        };
        using eight = std::integral_constant<int, 8>;
        switch (form) {
            case half_form::none: return;
            case half_form::as_is: return as(form_of<half_form::as_is>(), std::integral_constant<int, 16>());
            case half_form::words: return as(form_of<half_form::words>(), std::integral_constant<int, 6>());
            case half_form::upper: return as(form_of<half_form::upper>(), eight());
            case half_form::shifted: return as(form_of<half_form::shifted>(), eight());
            case half_form::lone_nan: return as(form_of<half_form::lone_nan>(), eight());
        }
    }

  private:
    template <half_form Form>
    using form_of = std::integral_constant<half_form, Form>;

    template <half_form Form, int Width, class Put>
    QK_INLINE void each(const std::byte* in, const Put& put) const {
#if QK_HAS(MASKED_BYTES)
        if constexpr (kernels::lanes<Arch> == 16)
            return kernels::unrolled<2>([&](auto k)
                                            QK_INLINE_CALL { put(16 * k, kernels::vf<Arch>(_mm512_cvtph_ps(sixteen<Form, k>(in)))); });
#endif
#if QK_HAS(HALF_CONVERSIONS)
        if constexpr (kernels::lanes<Arch> == 8) each_by_bytes<Form>(in, put);
#endif
    }

#if QK_HAS(MASKED_BYTES)
    /// Makes float16 from the first (0) or the last (1) sixteen of the 32 codes at `in`.
    template <half_form Form, std::size_t Half>
    QK_INLINE __m256i sixteen(const std::byte* in) const noexcept {
        if constexpr (Form == half_form::as_is) return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(in + 32 * Half));
        else if constexpr (Form == half_form::words) return sixteen_of_six<Half>(in);
        else return sixteen_of_eight<Form>(_mm_loadu_si128(reinterpret_cast<const __m128i*>(in + 16 * Half)));
    }
    /// A word gets its code and copies of the sign above, is shifted to where float16 has the magnitude, and keeps the highest sign.
    template <half_form Form>
    QK_INLINE __m256i sixteen_of_eight(__m128i code) const noexcept {
        if constexpr (Form == half_form::upper) return _mm256_slli_epi16(_mm256_cvtepu8_epi16(code), 8);
        const __m256i word = _mm256_and_si256(_mm256_sllv_epi16(_mm256_cvtepi8_epi16(code), word_up), word_bits);
        if constexpr (Form == half_form::lone_nan)
            return _mm256_mask_mov_epi16(word, _mm_cmpeq_epi8_mask(code, _mm_set1_epi8(-128)), words(0x7e00));
        // The exponent bits of Inf and NaN are all set: what float16 has above them is added.
        const __mmask16 beyond = _mm_cmpgt_epu8_mask(_mm_add_epi8(code, code), twice_largest);
        return _mm256_mask_add_epi16(word, beyond, word, to_special);
    }
#endif

#if QK_HAS(HALF_CONVERSIONS)
    template <half_form Form, class Put>
    QK_INLINE void each_by_bytes(const std::byte* in, const Put& put) const {
        if constexpr (Form == half_form::as_is) {
            kernels::unrolled<4>(
                [&](auto k) QK_INLINE_CALL { put(8 * k, widened(_mm_loadu_si128(reinterpret_cast<const __m128i*>(in + 16 * k)))); });
        } else if constexpr (Form == half_form::words) {
            kernels::unrolled<2>([&](auto k) QK_INLINE_CALL {
                const __m256i half = sixteen_of_six<k>(in);
                put(16 * k, widened(_mm256_castsi256_si128(half)));
                put(16 * k + 8, widened(_mm256_extracti128_si256(half, 1)));
            });
        } else {
            __m256i upper, lower = _mm256_setzero_si256();
            split<Form>(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(in)), upper, lower);
            const __m256i first = _mm256_unpacklo_epi8(lower, upper), second = _mm256_unpackhi_epi8(lower, upper);
            put(0, widened(_mm256_castsi256_si128(first)));
            put(8, widened(_mm256_castsi256_si128(second)));
            put(16, widened(_mm256_extracti128_si256(first, 1)));
            put(24, widened(_mm256_extracti128_si256(second, 1)));
        }
    }
    static QK_INLINE kernels::vf<Arch> widened(__m128i v) noexcept { return kernels::vf<Arch>(_mm256_cvtph_ps(v)); }
#endif

    /// Makes float16 from the first (0) or the last (1) sixteen of 32 codes of 6 bits at `in`. A word gets the two bytes that a code
    /// touches, a product moves the code to the word's top, a shift its magnitude down to where float16 has it, and the sign stays.
    template <std::size_t Half>
    QK_INLINE __m256i sixteen_of_six(const std::byte* in) const noexcept {
        constexpr char a = Half == 0 ? 0 : 4;  // of the twelve bytes
        constexpr char b = a + 6, end = Half == 0 ? 12 : -1;
        const __m256i touched =
            _mm256_setr_epi8(a, a + 1, a, a + 1, a + 1, a + 2, a + 2, a + 3, a + 3, a + 4, a + 3, a + 4, a + 4, a + 5, a + 5, a + 6, b,
                             b + 1, b, b + 1, b + 1, b + 2, b + 2, b + 3, b + 3, b + 4, b + 3, b + 4, b + 4, b + 5, b + 5, end);
        const __m128i bytes16 = _mm_loadu_si128(reinterpret_cast<const __m128i*>(in + 8 * Half));  // 24 bytes in all
        const __m256i to_top = _mm256_set1_epi64x(0x0100004000100400);
        const __m256i word = _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(bytes16), touched);
        return _mm256_and_si256(_mm256_sra_epi16(_mm256_mullo_epi16(word, to_top), down), word_bits);
    }

    /// Makes the upper and the lower bytes of float16 from codes.
    template <half_form Form>
    QK_INLINE void split(__m256i code, __m256i& upper, __m256i& lower) const noexcept {
        const __m256i sign = bytes(0x80);
        if constexpr (Form == half_form::upper) {
            upper = code;
            return;
        }
        const __m256i signs = _mm256_and_si256(code, sign);
        upper = _mm256_or_si256(_mm256_and_si256(_mm256_srl_epi16(code, down), upper_bits), signs);
        lower = _mm256_and_si256(_mm256_sll_epi16(code, up), lower_bits);
        if constexpr (Form == half_form::shifted) {
            const __m256i beyond = _mm256_cmpgt_epi8(_mm256_andnot_si256(sign, code), largest);
            upper = _mm256_or_si256(upper, _mm256_and_si256(beyond, bytes(0x7c)));
        }
        if constexpr (Form == half_form::lone_nan)
            upper = _mm256_xor_si256(upper, _mm256_and_si256(_mm256_cmpeq_epi8(code, sign), bytes(0xfe)));
    }

    static QK_INLINE __m256i bytes(int v) noexcept { return _mm256_set1_epi8(static_cast<char>(v)); }
    static QK_INLINE __m256i words(int v) noexcept { return _mm256_set1_epi16(static_cast<short>(v)); }

    int width;
    half_form form;
    __m128i down = _mm_setzero_si128(), up = _mm_setzero_si128();
    __m256i upper_bits = bytes(0), lower_bits = bytes(0), largest = bytes(0), word_bits = bytes(0);
    __m256i word_up = bytes(0), to_special = bytes(0);
    __m128i twice_largest = _mm_setzero_si128();
};

#else

template <class Arch>
class half_values {};

#endif

}  // namespace QK_ISA
}  // namespace qk::detail
