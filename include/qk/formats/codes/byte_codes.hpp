// SPDX-License-Identifier: Apache-2.0
// Makes codes of at most 8 bits, 32 at a time, where vectors have 8 lanes and bytes can be packed. Only work that needs a float's bits is
// done in lanes, on 8 elements; work that is the same for all elements of a block is done on 16 of them in words, or on 32 in bytes.
//   four vectors of sums  ->  two of words, held to 16 bits  ->  one of bytes, held to 8, in the order of kernels::packed_bytes
//
// tests/core/encode_codes_test.cpp compares every family, width and place in a vector with the codes of fake-quantized values.
#pragma once

#include "qk/formats/codes/code.hpp"
#include "qk/formats/integer/fast.hpp"
#include "qk/isa.hpp"
#include "qk/lanes/code_lanes.hpp"
#include "qk/memory/narrow_codes.hpp"

namespace qk::detail {
inline namespace QK_ISA {

template <class Arch>
class grid_bytes;
template <class Arch>
class step_bytes;
template <class Arch>
class integer_bytes;

#if QK_HAS(BYTE_SHUFFLES)

/// Returns a byte for each element of four vectors, all ones where the element is negative. No element is NaN.
template <class Arch>
QK_INLINE __m256i negative_bytes(const kernels::vf<Arch>* x) noexcept {
    const kernels::vi<Arch> u[4] = {kernels::as_int<Arch>(x[0]), kernels::as_int<Arch>(x[1]), kernels::as_int<Arch>(x[2]),
                                    kernels::as_int<Arch>(x[3])};
    return _mm256_cmpgt_epi8(_mm256_setzero_si256(), kernels::packed_bytes<Arch>(u));
}

/// Makes codes of small floats. In the bits of t = |x| + c * K (steps/fast.hpp) the upper word has c's exponent field from bit 7
/// on, and the lower word has the count of steps. So upper + count * 2^(7 - m), one `vpmaddwd`, is the code times 2^(7 - m), plus a
/// constant for all elements with the same lowest binade. magic_of() makes K smaller by as many steps as cancel that constant. Their number
/// is even, so ties go where they went; without mantissa bits it would be odd, and such formats are not supported.
template <class Arch>
class grid_bytes {
  public:
    QK_INLINE explicit grid_bytes(floating f) noexcept : usable(f.mantissa_bits != 0) {
        const int m = std::min(f.mantissa_bits, 6);  // not used for formats of more than 8 bits
        weights = _mm256_set1_epi32(1 << 16 | 1 << (7 - m));
        down = _mm256_set1_epi16(static_cast<short>(1 << (9 + m)));
        highest = _mm256_set1_epi8(static_cast<char>(code_of(f, static_cast<float>(max_value(f)))));
        sign = _mm256_set1_epi8(static_cast<char>(1 << (std::min(bits(f), 8) - 1)));
        shift = 23 - m;
        most = ((150 - m) << 23 | 0x10000) - ((23 - m) << m);
        lone_zero = !has_negative_zero(f);
    }
    QK_INLINE bool serves() const noexcept { return usable; }

    /// Returns K for elements whose lowest binade is that of `least`. Missing steps are borrowed from bit 16: the upper word is c's alone.
    QK_INLINE kernels::vf<Arch> magic_of(kernels::vi<Arch> least) const noexcept {
        return kernels::as_float<Arch>(kernels::vi<Arch>(most) - (least >> shift));
    }

    /// Returns the codes of four vectors; least(k) and magic(k) return the lowest binade and the K of vector k.
    template <class Least, class Magic>
    QK_INLINE __m256i operator()(const kernels::vf<Arch>* x, const Least& least, const Magic& magic) const noexcept {
        using V = kernels::vi<Arch>;
        __m256i part[4], word[2];
        kernels::unrolled<4>([&](auto k) QK_INLINE_CALL {
            const V u = kernels::as_int<Arch>(x[k]);
            const V c = max(u & V(kernels::exponent_mask), least(k));
            const V a = u & V(kernels::magnitude_bits);
            const V sum = kernels::as_int<Arch>(fma(kernels::as_float<Arch>(c), magic(k), kernels::as_float<Arch>(a)));
            part[k] = _mm256_madd_epi16(sum.data, weights);
        });
        kernels::unrolled<2>([&](auto j)
                                 QK_INLINE_CALL { word[j] = _mm256_mulhi_epu16(_mm256_packs_epi32(part[2 * j], part[2 * j + 1]), down); });
        const __m256i code = _mm256_min_epu8(_mm256_packus_epi16(word[0], word[1]), highest);
        __m256i signs = _mm256_and_si256(negative_bytes<Arch>(x), sign);
        if (lone_zero) signs = _mm256_andnot_si256(_mm256_cmpeq_epi8(code, _mm256_setzero_si256()), signs);
        return _mm256_or_si256(code, signs);
    }

  private:
    __m256i weights, down, highest, sign;
    int shift;
    std::int32_t most;
    bool lone_zero, usable;
};

/// Makes codes of elements that have the step of their block: sign and magnitude, or two's complement. Sums hold the signed count of steps.
template <class Arch>
class step_bytes {
  public:
    QK_INLINE explicit step_bytes(int given, bool twos_complement) noexcept : complement(twos_complement) {
        const int width = std::min(given, 8), largest = (1 << (width - 1)) - 1;
        most = _mm256_set1_epi8(static_cast<char>(largest));
        least = _mm256_set1_epi8(static_cast<char>(-largest));
        sign = _mm256_set1_epi8(static_cast<char>(largest + 1));
        mask = _mm256_set1_epi8(static_cast<char>((2 << (width - 1)) - 1));
    }

    /// Returns the codes of four vectors; base(k) returns the base of vector k.
    template <class Base>
    QK_INLINE __m256i operator()(const kernels::vf<Arch>* x, const Base& base) const noexcept {
        kernels::vi<Arch> steps[4];
        kernels::unrolled<4>([&](auto k)
                                 QK_INLINE_CALL { steps[k] = kernels::as_int<Arch>(x[k] + base(k)) - kernels::as_int<Arch>(base(k)); });
        const __m256i count = kernels::packed_bytes<Arch>(steps);
        if (complement) return _mm256_and_si256(_mm256_max_epi8(_mm256_min_epi8(count, most), least), mask);
        return _mm256_or_si256(_mm256_min_epu8(_mm256_abs_epi8(count), most), _mm256_and_si256(negative_bytes<Arch>(x), sign));
    }

  private:
    __m256i most, least, sign, mask;
    bool complement;
};

/// Makes codes of integers with one scale and zero point.
template <class Arch>
class integer_bytes {
  public:
    QK_INLINE explicit integer_bytes(integer f, std::int64_t zero_point) noexcept
        : is_signed(qmin(f) < 0), usable(f.bits <= 8 && zero_point >= -16000 && zero_point <= 16000) {
        const auto byte = [](std::int64_t v) { return _mm256_set1_epi8(static_cast<char>(v)); };
        zero = _mm256_set1_epi16(static_cast<short>(zero_point));
        lowest = byte(qmin(f));
        highest = byte(qmax(f));
        mask = byte((std::int64_t{2} << (std::min(f.bits, 8) - 1)) - 1);
    }
    /// Is true when a quotient that saturates at 16 bits stays beyond the codes after the zero point is added.
    QK_INLINE bool serves() const noexcept { return usable; }

    /// Returns the codes of four vectors of sums, quotient plus fast_integer's `middle`.
    QK_INLINE __m256i operator()(const kernels::vi<Arch>* sums) const noexcept {
        __m256i word[2];
        const kernels::vi<Arch> middle(std::bit_cast<std::int32_t>(kernels::fast_integer<Arch>::middle));
        kernels::unrolled<2>([&](auto j) QK_INLINE_CALL {
            word[j] = _mm256_adds_epi16(_mm256_packs_epi32((sums[2 * j] - middle).data, (sums[2 * j + 1] - middle).data), zero);
        });
        return of_words(word);
    }
    /// Returns the codes of four vectors of numbers that hold their zero points.
    QK_INLINE __m256i of_numbers(const kernels::vi<Arch>* q) const noexcept {
        const __m256i word[2] = {_mm256_packs_epi32(q[0].data, q[1].data), _mm256_packs_epi32(q[2].data, q[3].data)};
        return of_words(word);
    }

  private:
    QK_INLINE __m256i of_words(const __m256i* word) const noexcept {
        if (!is_signed) return _mm256_min_epu8(_mm256_packus_epi16(word[0], word[1]), highest);
        return _mm256_and_si256(_mm256_max_epi8(_mm256_min_epi8(_mm256_packs_epi16(word[0], word[1]), highest), lowest), mask);
    }

    __m256i zero, lowest, highest, mask;
    bool is_signed, usable;
};

#endif

/// Replaces the classes above where has_byte_codes() is false.
struct no_bytes {
    template <class... Any>
    explicit constexpr no_bytes(const Any&...) noexcept {}
};
template <class Arch, template <class> class Bytes>
using bytes_if_any = std::conditional_t<has_byte_codes<Arch>(), Bytes<Arch>, no_bytes>;

}  // namespace QK_ISA
}  // namespace qk::detail
