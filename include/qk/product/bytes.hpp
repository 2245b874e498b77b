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

/// Adds R rows from row `first` of a piece on, for M vectors.
template <class Arch, std::size_t R, std::size_t M, bool Signed, bool Zero>
QK_INLINE void add_integer_bytes(const piece_of_rows& p, std::size_t first) noexcept {
    using V = kernels::vf<Arch>;
    constexpr std::size_t w = kernels::lanes<Arch>, vectors = vectors_of_sums<Arch>;
    const float* const x = p.x;
    const std::size_t next = p.next, step = p.step, second = p.factors - 1, x_stride = p.x_stride;
    float* sum = p.sum + first * p.sum_stride;
    V s[R][M][vectors];
    const std::byte* in[R];
    const float *factor[R], *zero[R];
    const auto each_sum = [&](const auto& call) QK_INLINE_CALL {
        kernels::unrolled<R * M * vectors>([&](auto i) QK_INLINE_CALL {
            constexpr std::size_t r = i / (M * vectors), m = i / vectors % M, v = i % vectors;
            call(s[r][m][v], sum + r * p.sum_stride + m * partial_sums + v * w);
        });
    };
    each_sum([](V& own, const float* at) QK_INLINE_CALL { own = kernels::load<Arch>(at); });
    kernels::unrolled<R>([&](auto r) QK_INLINE_CALL {
        in[r] = p.piece[first + r].codes, factor[r] = p.piece[first + r].factor, zero[r] = p.piece[first + r].zero;
    });
    for (std::size_t g = 0, groups = p.groups; g < groups; ++g) {
        V value_of_x[M][32 / w];
        kernels::unrolled<M * 32 / w>([&](auto i) QK_INLINE_CALL {
            constexpr std::size_t m = i / (32 / w), v = i % (32 / w);
            value_of_x[m][v] = kernels::load<Arch>(x + m * x_stride + g * 32 + v * w);
            if constexpr (has_many_registers) value_of_x[m][v] = in_register<Arch>(value_of_x[m][v]);
        });
        kernels::unrolled<R>([&](auto r) QK_INLINE_CALL {
            fetch(in[r] + g * 32 + next);
            kernels::unrolled<32 / w>([&](auto v) QK_INLINE_CALL {
                V value = numbers_of<Arch, Signed>(in[r] + g * 32 + v * w);
                const std::size_t entry = g * step + v * w / 16 * second;
                if constexpr (Zero) value = value - V(zero[r][entry]);
                value = value * V(factor[r][entry]);
                kernels::unrolled<M>(
                    [&](auto m) QK_INLINE_CALL { s[r][m][v % vectors] = fused<Arch>(value_of_x[m][v], value, s[r][m][v % vectors]); });
            });
        });
    }
    each_sum([](V own, float* at) QK_INLINE_CALL { kernels::store<Arch>(at, own); });
}
template <class Arch>
QK_APART void add_integer_bytes(const piece_of_rows& p, bool with_sign) noexcept {
    const auto all = [&]<bool Signed, bool Zero>() QK_INLINE_CALL {
        with_vectors<!Zero>(p, [&](auto m, const piece_of_rows& own, std::size_t) QK_INLINE_CALL {
            constexpr std::size_t R = rows_for_vectors<Arch, m>;
            for (std::size_t r = 0; r < p.rows; r += R) add_integer_bytes<Arch, R, m, Signed, Zero>(own, r);
        });
    };
    const auto with = [&]<bool Signed>()
                          QK_INLINE_CALL { p.zeros ? all.template operator()<Signed, true>() : all.template operator()<Signed, false>(); };
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
