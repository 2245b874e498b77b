// SPDX-License-Identifier: Apache-2.0
// Products with codes of at most 6 bits, and of 8 bits with a sign, decoded in registers where any byte of one or two can be looked up
// (AVX-512 VBMI): tables have the two upper bytes of each value, whose lower bytes are 0. 64 weights at a time.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "qk/inline.hpp"
#include "qk/isa.hpp"
#include "qk/product/packed_piece.hpp"
#include "qk/product/rows.hpp"
#include "qk/product/sums.hpp"

namespace qk::detail {
inline namespace QK_ISA {

#if QK_HAS(BYTE_LOOKUPS) && defined(QK_MASK_REGISTERS)

inline constexpr bool has_permuted = true;

/// The upper two bytes of the value of each code; of 8 bits of each magnitude.
struct permuted_table {
    alignas(64) std::uint8_t upper[128], lower[128];
    bool usable = false;    ///< is false for values with more bits, or without a sign of their own
    bool lone_nan = false;  ///< the code of -0 is NaN

    template <class Arch>
    QK_APART void fill(const weight_rows<Arch>& w) noexcept {
        usable = (w.width >= 1 && w.width <= 6) || (w.width == 8 && w.bytes() == weight_rows<Arch>::integer_bytes::none);
        if (!usable) return;
        const std::size_t n = std::size_t{1} << w.width;
        std::uint32_t code[256];
        float value[256];
        for (std::uint32_t i = 0; i < n; ++i) code[i] = i;
        w.elements(code, value, n);
        for (std::size_t i = 0; i < 128; ++i) {  // narrow codes again and again: bits above a code are not looked at
            const std::uint32_t bits = std::bit_cast<std::uint32_t>(value[i % n]);
            upper[i] = static_cast<std::uint8_t>(bits >> 24), lower[i] = static_cast<std::uint8_t>(bits >> 16 & 255u);
            usable = usable && (bits & 0xffffu) == 0;
        }
        if (n != 256) return;
        lone_nan = value[128] != value[128];
        for (std::size_t i = lone_nan ? 1 : 0; i < 128; ++i) {
            const bool nan = value[i] != value[i] && value[i + 128] != value[i + 128];
            usable = usable && (nan || std::bit_cast<std::uint32_t>(value[i + 128]) == (std::bit_cast<std::uint32_t>(value[i]) ^ 1u << 31));
        }
    }
};

/// Where the byte of each code stands before lower and upper bytes are interleaved, which leaves numbers 0 to 15, 32 to 47 in the even
/// words of the lower and of the upper half of each 128 bits, and 16 to 31, 48 to 63 in the odd ones.
QK_INLINE constexpr int number_at(int byte) noexcept { return byte / 8 % 2 * 32 + byte % 2 * 16 + byte / 16 * 4 + byte % 8 / 2; }

/// Puts 64 codes into that order, a byte each. The upper bits of a byte are another code's.
template <bool Narrow>
class ordered_codes {
  public:
    QK_INLINE explicit ordered_codes(int width) noexcept {
        alignas(64) std::uint8_t from[64], by[64];
        for (int i = 0; i < 64; ++i) {
            // Four neighbours are in four bytes: of a run of eight bytes, its first and its second half have four each.
            const int first = number_at(i / 8 * 8 + i % 8 / 4) * width / 8;
            from[i] = static_cast<std::uint8_t>(Narrow ? std::min(first + i % 4, 63) : number_at(i));
            by[i] = static_cast<std::uint8_t>(i % 2 * 32 + number_at(i / 8 * 8) * width % 8 + i % 8 / 2 * width);
        }
        from_ = _mm512_load_si512(from), shift_ = _mm512_load_si512(by);
    }
    QK_INLINE __m512i operator()(__m512i codes) const noexcept {
        codes = _mm512_permutexvar_epi8(from_, codes);
        return Narrow ? _mm512_multishift_epi64_epi8(shift_, codes) : codes;
    }

  private:
    __m512i from_, shift_;
};

/// Adds the products of a piece of rows.
template <class Arch, bool Narrow, bool LoneNan, bool Zero>
QK_INLINE void add_permuted(const permuted_table& table, const piece_of_rows& p, int width) noexcept {
    constexpr std::size_t R = rows_at_once;
    const __m512i lower[2] = {_mm512_load_si512(table.lower), _mm512_load_si512(table.lower + 64)},
                  upper[2] = {_mm512_load_si512(table.upper), _mm512_load_si512(table.upper + 64)};
    const __m512i sign = _mm512_set1_epi8(-128), high = _mm512_set1_epi32(static_cast<int>(0xffff0000u));
    const ordered_codes<Narrow> ordered(width);
    const std::size_t bytes = static_cast<std::size_t>(width) * 4, next = p.next, second = p.factors - 1;
    const auto looked_up = [](const __m512i* of, __m512i c) QK_INLINE_CALL {
        return Narrow ? _mm512_permutexvar_epi8(c, of[0]) : _mm512_permutex2var_epi8(of[0], c, of[1]);
    };
    const float* x = p.x;
    const std::byte* at[R];
    __m512 s[R];
    kernels::unrolled<R>([&](auto r) QK_INLINE_CALL { at[r] = p.piece[r].codes, s[r] = _mm512_loadu_ps(p.sum + r * p.sum_stride); });
    const auto add = [&](auto vectors, std::size_t g) QK_INLINE_CALL {
        const std::size_t codes = bytes * (vectors / 2);
        const __mmask64 own = codes == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << codes) - 1;
        __m512 value_of_x[4];
        kernels::unrolled<vectors>([&](auto v) QK_INLINE_CALL { value_of_x[v] = in_register(_mm512_loadu_ps(x + g * 32 + v * 16)); });
        kernels::unrolled<R>([&](auto r) QK_INLINE_CALL {
            const std::byte* const in = at[r] + g * bytes;
            fetch(in + next);
            const bool whole = !Narrow && vectors == 4;
            const __m512i c = ordered(whole ? _mm512_loadu_si512(in) : _mm512_maskz_loadu_epi8(own, in));
            __m512i a = looked_up(lower, c), b = looked_up(upper, c);
            if constexpr (LoneNan) {
                const __mmask64 nan = _mm512_cmpeq_epi8_mask(c, sign);
                a = _mm512_mask_mov_epi8(a, nan, _mm512_set1_epi8(-64)), b = _mm512_mask_mov_epi8(b, nan, _mm512_set1_epi8(127));
            }
            if constexpr (!Narrow) b = _mm512_ternarylogic_epi32(b, c, sign, 0xf8);  // b | (c & sign)
            const __m512i words[2] = {_mm512_unpacklo_epi8(a, b), _mm512_unpackhi_epi8(a, b)};
            kernels::unrolled<vectors>([&](auto v) QK_INLINE_CALL {
                const __m512i bits = v % 2 == 0 ? _mm512_slli_epi32(words[v / 2], 16) : _mm512_and_si512(words[v / 2], high);
                const std::size_t entry = (g + v / 2) * p.step + (v % 2 == 0 ? 0 : second);
                __m512 value = _mm512_castsi512_ps(bits);
                if constexpr (Zero) value = _mm512_sub_ps(value, _mm512_set1_ps(p.piece[r].zero[entry]));
                const __m512 weight = _mm512_mul_ps(value, _mm512_set1_ps(p.piece[r].factor[entry]));
                s[r] = _mm512_fmadd_ps(value_of_x[v], weight, s[r]);
            });
        });
    };
    std::size_t g = 0;
    for (; g + 2 <= p.groups; g += 2) add(std::integral_constant<std::size_t, 4>(), g);
    if (g < p.groups) add(std::integral_constant<std::size_t, 2>(), g);
    kernels::unrolled<R>([&](auto r) QK_INLINE_CALL { _mm512_storeu_ps(p.sum + r * p.sum_stride, s[r]); });
}
template <class Arch>
QK_APART void add_permuted(const permuted_table& table, const piece_of_rows& p, int width) noexcept {
    if (width == 8)
        table.lone_nan ? add_permuted<Arch, false, true, false>(table, p, width) : add_permuted<Arch, false, false, false>(table, p, width);
    else p.zeros ? add_permuted<Arch, true, false, true>(table, p, width) : add_permuted<Arch, true, false, false>(table, p, width);
}

#else

inline constexpr bool has_permuted = false;

struct permuted_table {
    static constexpr bool usable = false;
    template <class Arch>
    QK_INLINE void fill(const weight_rows<Arch>&) noexcept {}
};

#endif

}  // namespace QK_ISA
}  // namespace qk::detail
