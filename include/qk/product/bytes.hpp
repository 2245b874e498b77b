// SPDX-License-Identifier: Apache-2.0
// Products with integers of eight bits, decoded in registers (AVX2).
#pragma once

#include <cstddef>

#include "qk/inline.hpp"
#include "qk/product/packed_piece.hpp"
#include "qk/product/sums.hpp"

namespace qk::detail {

#if defined(__AVX2__) && (defined(__FMA__) || defined(__AVX512F__))

inline constexpr bool has_integer_bytes = true;

/// Adds R rows from row `first` of a piece on.
template <class Arch, std::size_t R, bool Signed, std::size_t Factors, bool Zero>
QK_INLINE void add_integer_bytes(const piece_of_rows& p, std::size_t first) noexcept {
    const float* const x = p.x;
    const std::size_t next = p.next;
    float* sum = p.sum + first * p.sum_stride;
    __m256 s[R][2];
    const std::byte* in[R];
    const float *factor[R], *zero[R];
    kernels::unrolled<R>([&](auto r) QK_INLINE_CALL {
        s[r][0] = _mm256_loadu_ps(sum + r * p.sum_stride), s[r][1] = _mm256_loadu_ps(sum + r * p.sum_stride + 8);
        in[r] = p.piece[first + r].codes, factor[r] = p.piece[first + r].factor, zero[r] = p.piece[first + r].zero;
    });
    for (std::size_t g = 0, groups = p.groups; g < groups; ++g) {
        kernels::unrolled<R>([&](auto r) QK_INLINE_CALL {
            fetch(in[r] + g * 32 + next);
            kernels::unrolled<4>([&](auto v) QK_INLINE_CALL {
                const __m128i codes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(in[r] + g * 32 + v * 8));
                __m256 value = _mm256_cvtepi32_ps(Signed ? _mm256_cvtepi8_epi32(codes) : _mm256_cvtepu8_epi32(codes));
                const std::size_t entry = g * Factors + (Factors == 2 ? v / 2 : 0);
                if constexpr (Zero) value = _mm256_sub_ps(value, _mm256_broadcast_ss(zero[r] + entry));
                const __m256 weight = _mm256_mul_ps(value, _mm256_broadcast_ss(factor[r] + entry));
                s[r][v % 2] = _mm256_fmadd_ps(_mm256_loadu_ps(x + g * 32 + v * 8), weight, s[r][v % 2]);
            });
        });
    }
    kernels::unrolled<R>([&](auto r) QK_INLINE_CALL {
        _mm256_storeu_ps(sum + r * p.sum_stride, s[r][0]), _mm256_storeu_ps(sum + r * p.sum_stride + 8, s[r][1]);
    });
}
template <class Arch>
QK_APART void add_integer_bytes(const piece_of_rows& p, bool with_sign) noexcept {
    const auto all = [&]<bool Signed, std::size_t Factors, bool Zero>() QK_INLINE_CALL {
        for (std::size_t r = 0; r < p.rows; r += 2) add_integer_bytes<Arch, 2, Signed, Factors, Zero>(p, r);
    };
    const auto with = [&]<bool Signed>() QK_INLINE_CALL {
        if (p.factors == 2) p.zeros ? all.template operator()<Signed, 2, true>() : all.template operator()<Signed, 2, false>();
        else p.zeros ? all.template operator()<Signed, 1, true>() : all.template operator()<Signed, 1, false>();
    };
    with_sign ? with.template operator()<true>() : with.template operator()<false>();
}

/// Writes the weights of so many groups of 32 of a row.
template <class Arch, bool Signed>
QK_INLINE void decode_integer_bytes(const packed_piece& p, std::size_t groups, std::size_t factors, float* to) noexcept {
    for (std::size_t g = 0; g < groups; ++g) {
        kernels::unrolled<4>([&](auto v) QK_INLINE_CALL {
            const __m128i codes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p.codes + g * 32 + v * 8));
            __m256 value = _mm256_cvtepi32_ps(Signed ? _mm256_cvtepi8_epi32(codes) : _mm256_cvtepu8_epi32(codes));
            const std::size_t entry = g * factors + (v < 2 ? 0 : factors - 1);
            if (p.zero != nullptr) value = _mm256_sub_ps(value, _mm256_broadcast_ss(p.zero + entry));
            _mm256_storeu_ps(to + g * 32 + v * 8, _mm256_mul_ps(value, _mm256_broadcast_ss(p.factor + entry)));
        });
    }
}
template <class Arch>
QK_APART void decode_integer_bytes(bool with_sign, const packed_piece& p, std::size_t groups, std::size_t factors, float* to) noexcept {
    with_sign ? decode_integer_bytes<Arch, true>(p, groups, factors, to) : decode_integer_bytes<Arch, false>(p, groups, factors, to);
}

#else

inline constexpr bool has_integer_bytes = false;

#endif

}  // namespace qk::detail
