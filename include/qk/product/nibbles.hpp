// SPDX-License-Identifier: Apache-2.0
// Products with codes of four bits, decoded in registers. AVX-512 looks up 16 float32 values in one register; with AVX2 two byte shuffles
// look up the two upper bytes of 32 values, whose lower bytes are 0. The values come out in an order of their own, so that x is put into it
// once for all rows.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "qk/codec/decode/half_values.hpp"
#include "qk/inline.hpp"
#include "qk/isa.hpp"
#include "qk/product/rows.hpp"
#include "qk/product/sums.hpp"

namespace qk::detail {
inline namespace QK_ISA {

// nibble_order: numbers 0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15 of 16 values; with AVX-512 numbers 0, 8, 2, 10, 4, 12, 6, 14,
// 1, 9, 3, 11, 5, 13, 7, 15.

/// The value of each code, and its upper two bytes.
struct nibble_table {
    alignas(64) float value[16];
    alignas(16) std::uint8_t upper[16], lower[16];
    bool usable = true;  ///< is false for values with more bits

    template <class Arch>
    QK_INLINE void fill(const weight_rows<Arch>& w) noexcept {
        std::uint32_t code[16];
        for (std::uint32_t i = 0; i < 16; ++i) code[i] = i;
        w.elements(code, value, 16);
        for (std::size_t i = 0; i < 16; ++i) {
            const std::uint32_t bits = std::bit_cast<std::uint32_t>(value[i]);
            upper[i] = static_cast<std::uint8_t>(bits >> 24), lower[i] = static_cast<std::uint8_t>(bits >> 16 & 255u);
            usable = usable && (bits & 0xffffu) == 0;
        }
    }
};

#if QK_HAS(BYTE_SHUFFLES) && QK_HAS(FUSED_SUMS)

inline constexpr bool has_nibbles = true;

#if defined(QK_MASK_REGISTERS)

/// Tables of weights may be of scales of 16 weights, too.
inline constexpr std::size_t least_scaled_run = 16;

/// Puts 16 values into nibble_order, or back: bits 0 and 3 of a number trade places.
template <class Arch>
QK_INLINE void put_in_nibble_order(float* v) noexcept {
    const __m512i order = _mm512_setr_epi32(0, 8, 2, 10, 4, 12, 6, 14, 1, 9, 3, 11, 5, 13, 7, 15);
    _mm512_storeu_ps(v, _mm512_permutexvar_ps(order, _mm512_loadu_ps(v)));
}

/// A table of weights for each code of a scale.
struct scaled_nibble_tables {
    alignas(64) float of_scale[256][16];

    template <class Arch>
    QK_APART bool fill(const nibble_table& table, const float* factor) noexcept {
        const __m512 value = _mm512_load_ps(table.value);
        for (std::size_t i = 0; i < 256; ++i) _mm512_store_ps(of_scale[i], _mm512_mul_ps(value, _mm512_set1_ps(factor[i])));
        return true;
    }
};

/// Adds the products of R rows from row `first` of a piece on with M vectors, which are in nibble_order as their sums are. of_group(r, g)
/// gives what looks up the weights of half of a group, weights(half, codes): 16 lanes, of which the lowest four bits count. Eight bytes
/// have 16 codes: shifts put number n at the lowest bits of a lane, and number n + 8 at those of the next one.
template <class Arch, std::size_t R, std::size_t M, class Weights>
QK_INLINE void add_sixteens(const piece_of_rows& p, std::size_t first, const Weights& of_group) noexcept {
    const __m512i shift = _mm512_setr_epi64(0, 8, 16, 24, 4, 12, 20, 28);
    const float* x = p.x;
    const std::size_t next = p.next, x_stride = p.x_stride;
    float* const sum = p.sum + first * p.sum_stride;
    const std::byte* at[R];
    __m512 s[R][M];
    kernels::unrolled<R>([&](auto r) QK_INLINE_CALL {
        at[r] = p.piece[first + r].codes;
        kernels::unrolled<M>([&](auto m) QK_INLINE_CALL { s[r][m] = _mm512_loadu_ps(sum + r * p.sum_stride + m * partial_sums); });
    });
    for (std::size_t g = 0, groups = p.groups; g < groups; ++g) {
        __m512 in[M][2];
        kernels::unrolled<2 * M>(
            [&](auto i) QK_INLINE_CALL { in[i / 2][i % 2] = in_register(_mm512_loadu_ps(x + i / 2 * x_stride + g * 32 + i % 2 * 16)); });
        if (g % 4 == 0) kernels::unrolled<R>([&](auto r) QK_INLINE_CALL { fetch(at[r] + g * 16 + next); });
        kernels::unrolled<R>([&](auto r) QK_INLINE_CALL {
            const auto weights = of_group(r, g);
            kernels::unrolled<2>([&](auto half) QK_INLINE_CALL {
                const __m128i eight = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(at[r] + g * 16 + half * 8));
                const __m512 w = weights(half, _mm512_srlv_epi64(_mm512_broadcastq_epi64(eight), shift));
                kernels::unrolled<M>([&](auto m) QK_INLINE_CALL { s[r][m] = _mm512_fmadd_ps(in[m][half], w, s[r][m]); });
            });
        });
    }
    kernels::unrolled<R>([&](auto r) QK_INLINE_CALL {
        kernels::unrolled<M>([&](auto m) QK_INLINE_CALL { _mm512_storeu_ps(sum + r * p.sum_stride + m * partial_sums, s[r][m]); });
    });
}
/// Does so for all rows: call(p, R, M, row) with constants.
template <class Call>
QK_INLINE void each_of_sixteens(const piece_of_rows& p, const Call& call) noexcept {
    with_vectors<true>(p, [&](auto m, const piece_of_rows& own, std::size_t) QK_INLINE_CALL {
        constexpr std::size_t R = m == 4 ? 2 : rows_at_once;
        for (std::size_t r = 0; r < own.rows; r += R) call(own, std::integral_constant<std::size_t, R>(), m, r);
    });
}
/// The same where scales are codes.
template <class Arch>
QK_APART void add_scaled_nibbles(const scaled_nibble_tables& tables, const piece_of_rows& given) noexcept {
    const auto all = [&]<std::size_t Factors>(const piece_of_rows& p, auto rows, auto vectors, std::size_t from) QK_INLINE_CALL {
        add_sixteens<Arch, rows, vectors>(p, from, [&](auto r, std::size_t g) QK_INLINE_CALL {
            const std::byte* const scale = p.piece[from + r].scale + g * Factors;
            const auto table = [&](std::size_t i)
                                   QK_INLINE_CALL { return _mm512_load_ps(tables.of_scale[std::to_integer<std::size_t>(scale[i])]); };
            const __m512 first = table(0), second = Factors == 2 ? table(Factors - 1) : first;
            return [=](auto half, __m512i codes) QK_INLINE_CALL { return _mm512_permutexvar_ps(codes, half == 0 ? first : second); };
        });
    };
    each_of_sixteens(given, [&](const piece_of_rows& p, auto rows, auto vectors, std::size_t from) QK_INLINE_CALL {
        if (p.factors == 2) all.template operator()<2>(p, rows, vectors, from);
        else all.template operator()<1>(p, rows, vectors, from);
    });
}
/// The same where they are floats: the table is multiplied, which is one multiplication for 16 or 32 weights.
template <class Arch>
QK_APART void add_nibbles(const nibble_table& table, const piece_of_rows& given) noexcept {
    const __m512 values = _mm512_load_ps(table.value);
    const auto all = [&]<std::size_t Factors, bool Zero>(const piece_of_rows& p, auto rows, auto vectors, std::size_t from) QK_INLINE_CALL {
        const std::size_t step = p.step;
        const float *factor[rows], *zero[rows];
        kernels::unrolled<rows>([&](auto r) QK_INLINE_CALL { factor[r] = p.piece[from + r].factor, zero[r] = p.piece[from + r].zero; });
        add_sixteens<Arch, rows, vectors>(p, from, [&](auto r, std::size_t g) QK_INLINE_CALL {
            const auto of_entry = [&](std::size_t entry) QK_INLINE_CALL {
                __m512 weights = values;
                if constexpr (Zero) weights = _mm512_sub_ps(weights, _mm512_set1_ps(zero[r][entry]));
                return _mm512_mul_ps(weights, _mm512_set1_ps(factor[r][entry]));
            };
            const __m512 first = of_entry(g * step), second = Factors == 2 ? of_entry(g * step + 1) : first;
            return [=](auto half, __m512i codes) QK_INLINE_CALL { return _mm512_permutexvar_ps(codes, half == 0 ? first : second); };
        });
    };
    each_of_sixteens(given, [&](const piece_of_rows& p, auto rows, auto vectors, std::size_t from) QK_INLINE_CALL {
        if (p.factors == 2) {
            if (p.zeros) all.template operator()<2, true>(p, rows, vectors, from);
            else all.template operator()<2, false>(p, rows, vectors, from);
        } else if (p.zeros) all.template operator()<1, true>(p, rows, vectors, from);
        else all.template operator()<1, false>(p, rows, vectors, from);
    });
}

#else

inline constexpr std::size_t least_scaled_run = 32;

/// Puts 16 values into nibble_order, or back: each fourth one comes first.
template <class Arch>
QK_INLINE void put_in_nibble_order(float* v) noexcept {
    const __m128 a = _mm_loadu_ps(v), b = _mm_loadu_ps(v + 4), c = _mm_loadu_ps(v + 8), d = _mm_loadu_ps(v + 12);
    const __m128 ab = _mm_unpacklo_ps(a, b), cd = _mm_unpacklo_ps(c, d), high_ab = _mm_unpackhi_ps(a, b), high_cd = _mm_unpackhi_ps(c, d);
    _mm_storeu_ps(v, _mm_movelh_ps(ab, cd)), _mm_storeu_ps(v + 4, _mm_movehl_ps(cd, ab));
    _mm_storeu_ps(v + 8, _mm_movelh_ps(high_ab, high_cd)), _mm_storeu_ps(v + 12, _mm_movehl_ps(high_cd, high_ab));
}

/// A table of weights for each code of a scale: `lower` and `upper` of nibble_table, times the factor.
struct scaled_nibble_tables {
    alignas(64) std::uint8_t of_scale[256][32];

    /// Returns false where a weight has more bits than the upper two bytes.
    template <class Arch>
    QK_APART bool fill(const nibble_table& table, const float* factor) noexcept {
        const __m256 first = _mm256_load_ps(table.value), second = _mm256_load_ps(table.value + 8);
        const __m256i byte = _mm256_set1_epi16(255);
        __m256i rest = _mm256_setzero_si256();
        for (std::size_t i = 0; i < 256; ++i) {
            const __m256 by = _mm256_broadcast_ss(factor + i);
            const __m256i a = _mm256_castps_si256(_mm256_mul_ps(first, by)), b = _mm256_castps_si256(_mm256_mul_ps(second, by));
            rest = _mm256_or_si256(rest, _mm256_or_si256(a, b));
            const __m256i words = _mm256_packus_epi32(_mm256_srli_epi32(a, 16), _mm256_srli_epi32(b, 16)),
                          bytes = _mm256_packus_epi16(_mm256_and_si256(words, byte), _mm256_srli_epi16(words, 8));
            // Each half has the lower bytes of four and four elements, then their upper ones.
            const __m256i in_order = _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
            _mm256_store_si256(reinterpret_cast<__m256i*>(of_scale[i]), in_order);
        }
        return _mm256_testz_si256(rest, _mm256_set1_epi32(0xffff)) != 0;
    }
};

/// Loads or stores the sums of R rows from row `first` of a piece on, for M vectors: call(sum, its place) for each register.
template <std::size_t R, std::size_t M, class Call>
QK_INLINE void each_nibble_sum(const piece_of_rows& p, std::size_t first, __m256 (&s)[R][M][2], const Call& call) noexcept {
    kernels::unrolled<R * M * 2>([&](auto i) QK_INLINE_CALL {
        constexpr std::size_t r = i / (2 * M), m = i / 2 % M, v = i % 2;
        call(s[r][m][v], p.sum + (first + r) * p.sum_stride + m * partial_sums + v * 8);
    });
}

/// Adds the products of R rows from row `first` of a piece on with M vectors, which are in nibble_order as their sums are, and whose scales
/// are codes.
template <class Arch, std::size_t R, std::size_t M>
QK_INLINE void add_scaled_nibbles(const scaled_nibble_tables& tables, const piece_of_rows& p, std::size_t first) noexcept {
    const __m256i shift = _mm256_setr_epi32(0, 0, 0, 0, 4, 4, 4, 4), nibble = _mm256_set1_epi8(15),
                  high = _mm256_set1_epi32(static_cast<int>(0xffff0000u));
    const float* x = p.x;
    const std::size_t next = p.next, x_stride = p.x_stride;
    __m256 s[R][M][2];
    const std::byte *at[R], *scale[R];
    each_nibble_sum(p, first, s, [](__m256& sum, const float* from) QK_INLINE_CALL { sum = _mm256_loadu_ps(from); });
    kernels::unrolled<R>([&](auto r) QK_INLINE_CALL { at[r] = p.piece[first + r].codes, scale[r] = p.piece[first + r].scale; });
    const auto twice = [](const void* from)
                           QK_INLINE_CALL { return _mm256_broadcastsi128_si256(_mm_loadu_si128(static_cast<const __m128i*>(from))); };
    for (std::size_t g = 0, groups = p.groups; g < groups; ++g) {
        kernels::unrolled<R>([&](auto r) QK_INLINE_CALL {
            fetch(at[r] + g * 16 + next);
            const std::uint8_t* const table = tables.of_scale[std::to_integer<std::size_t>(scale[r][g])];
            const __m256i code = _mm256_and_si256(_mm256_srlv_epi32(twice(at[r] + g * 16), shift), nibble);
            const __m256i a = _mm256_shuffle_epi8(twice(table), code), b = _mm256_shuffle_epi8(twice(table + 16), code);
            kernels::unrolled<2>([&](auto half) QK_INLINE_CALL {
                const __m256i words = half == 0 ? _mm256_unpacklo_epi8(a, b) : _mm256_unpackhi_epi8(a, b);
                const __m256 even = _mm256_castsi256_ps(_mm256_slli_epi32(words, 16)),
                             odd = _mm256_castsi256_ps(_mm256_and_si256(words, high));
                kernels::unrolled<M>([&](auto m) QK_INLINE_CALL {
                    const float* const of = x + m * x_stride + g * 32 + half * 16;
                    s[r][m][0] = _mm256_fmadd_ps(_mm256_loadu_ps(of), even, s[r][m][0]);
                    s[r][m][1] = _mm256_fmadd_ps(_mm256_loadu_ps(of + 8), odd, s[r][m][1]);
                });
            });
        });
    }
    each_nibble_sum(p, first, s, [](__m256 sum, float* to) QK_INLINE_CALL { _mm256_storeu_ps(to, sum); });
}
template <class Arch>
QK_APART void add_scaled_nibbles(const scaled_nibble_tables& tables, const piece_of_rows& p) noexcept {
    with_vectors<true>(p, [&](auto m, const piece_of_rows& own, std::size_t) QK_INLINE_CALL {
        constexpr std::size_t R = rows_for_vectors<Arch, m>;
        for (std::size_t r = 0; r < p.rows; r += R) add_scaled_nibbles<Arch, R, m>(tables, own, r);
    });
}

/// The same where scales are floats.
template <class Arch, std::size_t R, std::size_t M, bool Zero>
QK_INLINE void add_nibbles(const nibble_table& table, const piece_of_rows& p, std::size_t first) noexcept {
    const __m256i upper = _mm256_broadcastsi128_si256(_mm_load_si128(reinterpret_cast<const __m128i*>(table.upper))),
                  lower = _mm256_broadcastsi128_si256(_mm_load_si128(reinterpret_cast<const __m128i*>(table.lower)));
    const __m256i shift = _mm256_setr_epi32(0, 0, 0, 0, 4, 4, 4, 4), nibble = _mm256_set1_epi8(15),
                  high = _mm256_set1_epi32(static_cast<int>(0xffff0000u));
    const float* x = p.x;
    const std::size_t next = p.next, step = p.step, second = p.factors - 1, x_stride = p.x_stride;
    __m256 s[R][M][2];
    each_nibble_sum(p, first, s, [](__m256& sum, const float* from) QK_INLINE_CALL { sum = _mm256_loadu_ps(from); });
    const std::byte* at[R];
    const float *factor[R], *zero[R];
    kernels::unrolled<R>([&](auto r) QK_INLINE_CALL {
        at[r] = p.piece[first + r].codes, factor[r] = p.piece[first + r].factor, zero[r] = p.piece[first + r].zero;
    });
    for (std::size_t g = 0; g < p.groups; ++g) {
        __m256i a[R], b[R];
        kernels::unrolled<R>([&](auto r) QK_INLINE_CALL {
            fetch(at[r] + g * 16 + next);
            const __m256i two = _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at[r] + g * 16)));
            const __m256i code = _mm256_and_si256(_mm256_srlv_epi32(two, shift), nibble);
            a[r] = _mm256_shuffle_epi8(lower, code), b[r] = _mm256_shuffle_epi8(upper, code);
        });
        kernels::unrolled<2>([&](auto half) QK_INLINE_CALL {
            __m256 of_x[M][2];
            kernels::unrolled<M * 2>([&](auto i) QK_INLINE_CALL {
                constexpr std::size_t m = i / 2, v = i % 2;
                of_x[m][v] = _mm256_loadu_ps(x + m * x_stride + g * 32 + half * 16 + v * 8);
                if constexpr (M == 1) of_x[m][v] = in_register(of_x[m][v]);
            });
            kernels::unrolled<R>([&](auto r) QK_INLINE_CALL {
                const __m256i words = half == 0 ? _mm256_unpacklo_epi8(a[r], b[r]) : _mm256_unpackhi_epi8(a[r], b[r]);
                const __m256 by = _mm256_broadcast_ss(factor[r] + g * step + half * second);
                __m256 even = _mm256_castsi256_ps(_mm256_slli_epi32(words, 16)), odd = _mm256_castsi256_ps(_mm256_and_si256(words, high));
                if constexpr (Zero) {
                    const __m256 less = _mm256_broadcast_ss(zero[r] + g * step + half * second);
                    even = _mm256_sub_ps(even, less), odd = _mm256_sub_ps(odd, less);
                }
                even = _mm256_mul_ps(even, by), odd = _mm256_mul_ps(odd, by);
                kernels::unrolled<M>([&](auto m) QK_INLINE_CALL {
                    s[r][m][0] = _mm256_fmadd_ps(of_x[m][0], even, s[r][m][0]);
                    s[r][m][1] = _mm256_fmadd_ps(of_x[m][1], odd, s[r][m][1]);
                });
            });
        });
    }
    each_nibble_sum(p, first, s, [](__m256 sum, float* to) QK_INLINE_CALL { _mm256_storeu_ps(to, sum); });
}

template <class Arch>
QK_APART void add_nibbles(const nibble_table& table, const piece_of_rows& p) noexcept {
    const auto all = [&]<bool Zero>() QK_INLINE_CALL {
        with_vectors<!Zero>(p, [&](auto m, const piece_of_rows& own, std::size_t) QK_INLINE_CALL {
            constexpr std::size_t R = rows_for_vectors<Arch, m>;
            for (std::size_t r = 0; r < p.rows; r += R) add_nibbles<Arch, R, m, Zero>(table, own, r);
        });
    };
    p.zeros ? all.template operator()<true>() : all.template operator()<false>();
}

#endif

/// Writes the weights of a piece of rows, those of row r from to + r * stride on.
template <class Arch, bool Zero>
QK_INLINE void decode_nibbles(const nibble_table& table, const piece_of_rows& p, float* to, std::size_t stride) noexcept {
    const __m256i upper = _mm256_broadcastsi128_si256(_mm_load_si128(reinterpret_cast<const __m128i*>(table.upper))),
                  lower = _mm256_broadcastsi128_si256(_mm_load_si128(reinterpret_cast<const __m128i*>(table.lower))),
                  none = _mm256_setzero_si256();
    const std::size_t second = p.factors - 1, step = p.step, next = p.next;
    for (std::size_t r = 0; r < p.rows; ++r) {
        const std::byte* in = p.piece[r].codes;
        const float *by = p.piece[r].factor, *zero = p.piece[r].zero;
        float* out = to + r * stride;
        for (std::size_t g = 0, groups = p.groups; g < groups; ++g, in += 16, by += step, out += 32) {
            fetch(in + next);
            const __m256i code = codes_of_four(in);  // in an order that halves join to eight neighbours below
            const __m256i a = _mm256_shuffle_epi8(lower, code), b = _mm256_shuffle_epi8(upper, code);
            __m256 value[4];
            kernels::unrolled<2>([&](auto half) QK_INLINE_CALL {
                const __m256i words = half == 0 ? _mm256_unpacklo_epi8(a, b) : _mm256_unpackhi_epi8(a, b);
                value[2 * half] = _mm256_castsi256_ps(_mm256_unpacklo_epi16(none, words));
                value[2 * half + 1] = _mm256_castsi256_ps(_mm256_unpackhi_epi16(none, words));
            });
            const __m256 factor[2] = {_mm256_broadcast_ss(by), _mm256_broadcast_ss(by + second)};
            kernels::unrolled<4>([&](auto v) QK_INLINE_CALL {
                if constexpr (Zero) value[v] = _mm256_sub_ps(value[v], _mm256_broadcast_ss(zero + g * step + v / 2 * second));
                value[v] = _mm256_mul_ps(value[v], factor[v / 2]);
            });
            kernels::unrolled<4>([&](auto v) QK_INLINE_CALL { _mm256_storeu_ps(out + 8 * v, value[v]); });
        }
    }
}
template <class Arch>
QK_APART void decode_nibbles(const nibble_table& table, const piece_of_rows& p, float* to, std::size_t stride) noexcept {
    p.zeros ? decode_nibbles<Arch, true>(table, p, to, stride) : decode_nibbles<Arch, false>(table, p, to, stride);
}

#else

inline constexpr bool has_nibbles = false;
inline constexpr std::size_t least_scaled_run = 32;

struct scaled_nibble_tables {
    template <class Arch>
    bool fill(const nibble_table&, const float*) noexcept {
        return false;
    }
};

#endif

}  // namespace QK_ISA
}  // namespace qk::detail
