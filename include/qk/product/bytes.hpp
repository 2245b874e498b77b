// SPDX-License-Identifier: Apache-2.0
// Products with integers of eight bits, decoded in registers (AVX2, AVX-512).
#pragma once

#include <cstddef>
#include <cstdint>

#include "qk/inline.hpp"
#include "qk/isa.hpp"
#include "qk/lanes/code_lanes.hpp"
#include "qk/product/packed_piece.hpp"
#include "qk/product/sums.hpp"

namespace qk::detail {
inline namespace QK_ISA {

#if QK_HAS(BYTE_SHUFFLES) && QK_HAS(FUSED_SUMS)

inline constexpr bool has_integer_bytes = true;

/// Returns the numbers of as many bytes as a vector has lanes.
template <class Arch, bool Signed>
QK_INLINE kernels::vf<Arch> numbers_of(const std::byte* in) noexcept {
#if defined(QK_MASK_REGISTERS)
    if constexpr (Signed && kernels::lanes<Arch> == 16)
        return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(in))));
#endif
    if constexpr (Signed && kernels::lanes<Arch> == 8)
        return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(in))));
    const kernels::vi<Arch> code = kernels::load_codes<Arch>(reinterpret_cast<const std::uint8_t*>(in));
    return to_float(Signed ? (code << 24) >> 24 : code);
}

/// Adds R rows from row `first` of a piece on.
template <class Arch, std::size_t R, bool Signed, std::size_t Factors, bool Zero>
QK_INLINE void add_integer_bytes(const piece_of_rows& p, std::size_t first) noexcept {
    using V = kernels::vf<Arch>;
    constexpr std::size_t w = kernels::lanes<Arch>, vectors = vectors_of_sums<Arch>;
    const float* const x = p.x;
    const std::size_t next = p.next;
    float* sum = p.sum + first * p.sum_stride;
    V s[R][vectors];
    const std::byte* in[R];
    const float *factor[R], *zero[R];
    kernels::unrolled<R>([&](auto r) QK_INLINE_CALL {
        kernels::unrolled<vectors>([&](auto v) QK_INLINE_CALL { s[r][v] = kernels::load<Arch>(sum + r * p.sum_stride + v * w); });
        in[r] = p.piece[first + r].codes, factor[r] = p.piece[first + r].factor, zero[r] = p.piece[first + r].zero;
    });
    for (std::size_t g = 0, groups = p.groups; g < groups; ++g) {
        V value_of_x[32 / w];
        kernels::unrolled<32 / w>([&](auto v) QK_INLINE_CALL {
            value_of_x[v] = kernels::load<Arch>(x + g * 32 + v * w);
            if constexpr (has_many_registers) value_of_x[v] = in_register<Arch>(value_of_x[v]);
        });
        kernels::unrolled<R>([&](auto r) QK_INLINE_CALL {
            fetch(in[r] + g * 32 + next);
            kernels::unrolled<32 / w>([&](auto v) QK_INLINE_CALL {
                V value = numbers_of<Arch, Signed>(in[r] + g * 32 + v * w);
                const std::size_t entry = g * p.step + (Factors == 2 ? v * w / 16 : 0);
                if constexpr (Zero) value = value - V(zero[r][entry]);
                s[r][v % vectors] = fused<Arch>(value_of_x[v], value * V(factor[r][entry]), s[r][v % vectors]);
            });
        });
    }
    kernels::unrolled<R>([&](auto r) QK_INLINE_CALL {
        kernels::unrolled<vectors>([&](auto v) QK_INLINE_CALL { kernels::store<Arch>(sum + r * p.sum_stride + v * w, s[r][v]); });
    });
}
template <class Arch>
QK_APART void add_integer_bytes(const piece_of_rows& p, bool with_sign) noexcept {
    constexpr std::size_t R = rows_in_registers<Arch>;
    const auto all = [&]<bool Signed, std::size_t Factors, bool Zero>() QK_INLINE_CALL {
        for (std::size_t r = 0; r < p.rows; r += R) add_integer_bytes<Arch, R, Signed, Factors, Zero>(p, r);
    };
    const auto with = [&]<bool Signed>() QK_INLINE_CALL {
        if (p.factors == 2) p.zeros ? all.template operator()<Signed, 2, true>() : all.template operator()<Signed, 2, false>();
        else p.zeros ? all.template operator()<Signed, 1, true>() : all.template operator()<Signed, 1, false>();
    };
    with_sign ? with.template operator()<true>() : with.template operator()<false>();
}

/// Writes the weights of a piece of rows, those of row r from to + r * stride on.
template <class Arch, bool Signed, bool Zero>
QK_INLINE void decode_integer_bytes(const piece_of_rows& p, float* to, std::size_t stride) noexcept {
    using V = kernels::vf<Arch>;
    constexpr std::size_t w = kernels::lanes<Arch>;
    const std::size_t second = p.factors - 1, step = p.step, next = p.next;
    for (std::size_t r = 0; r < p.rows; ++r) {
        const std::byte* in = p.piece[r].codes;
        const float *by = p.piece[r].factor, *zero = p.piece[r].zero;
        float* out = to + r * stride;
        for (std::size_t g = 0, groups = p.groups; g < groups; ++g, in += 32, by += step, out += 32) {
            fetch(in + next);
            const V factor[2] = {V(by[0]), V(by[second])};
            V value[32 / w];
            kernels::unrolled<32 / w>([&](auto v) QK_INLINE_CALL {
                value[v] = numbers_of<Arch, Signed>(in + v * w);
                if constexpr (Zero) value[v] = value[v] - V(zero[g * step + v * w / 16 * second]);
                value[v] = value[v] * factor[v * w / 16];
            });
            kernels::unrolled<32 / w>([&](auto v) QK_INLINE_CALL { kernels::store<Arch>(out + v * w, value[v]); });
        }
    }
}
template <class Arch>
QK_APART void decode_integer_bytes(const piece_of_rows& p, bool with_sign, float* to, std::size_t stride) noexcept {
    const auto all = [&]<bool Signed>() QK_INLINE_CALL {
        p.zeros ? decode_integer_bytes<Arch, Signed, true>(p, to, stride) : decode_integer_bytes<Arch, Signed, false>(p, to, stride);
    };
    with_sign ? all.template operator()<true>() : all.template operator()<false>();
}

#else

inline constexpr bool has_integer_bytes = false;

#endif

}  // namespace QK_ISA
}  // namespace qk::detail
