// SPDX-License-Identifier: Apache-2.0
// The order of every sum of a product (qk/product.hpp, "The order"): sixteen partial sums, products and sums rounded once, one tree.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "qk/inline.hpp"
#include "qk/isa.hpp"
#include "qk/lanes/simd.hpp"

namespace qk::detail {
inline namespace QK_ISA {

/// Partial sums of a row: weight k is added to number k % 16, whatever the width of a vector.
inline constexpr std::size_t partial_sums = 16;

inline constexpr bool has_many_registers = QK_HAS(MANY_REGISTERS);

template <class Arch>
inline constexpr std::size_t vectors_of_sums = partial_sums / kernels::lanes<Arch>;

/// So many rows are decoded in registers side by side: where the sums of one are a single vector, two rows would wait for their sums.
template <class Arch>
inline constexpr std::size_t rows_in_registers = vectors_of_sums<Arch> == 1 ? 4 : 2;
/// The same for M vectors of x, whose sums are in registers, too.
template <class Arch, std::size_t M>
inline constexpr std::size_t rows_for_vectors = M == 4 && vectors_of_sums<Arch> > 1 ? 1 : rows_in_registers<Arch>;

/// Returns a * b + c, rounded once, on every processor.
///
/// Without the instruction: the product of two floats is exact in a double, and the sum's error is another double. If there is an error,
/// the sum is made odd (the last bit of its significand is set, toward the exact sum), which tells the exact sum from a tie of the second
/// rounding, that to float.
template <class Arch>
QK_INLINE kernels::vf<Arch> fused(kernels::vf<Arch> a, kernels::vf<Arch> b, kernels::vf<Arch> c) noexcept {
    if constexpr (kernels::has_fused<Arch>()) {
        return kernels::fma(a, b, c);
    } else {
        constexpr std::size_t w = kernels::lanes<Arch>;
        alignas(64) float x[w], y[w], z[w];
        kernels::store<Arch>(x, a), kernels::store<Arch>(y, b), kernels::store<Arch>(z, c);
        for (std::size_t i = 0; i < w; ++i) {
            const double p = static_cast<double>(x[i]) * static_cast<double>(y[i]), q = static_cast<double>(z[i]);
            const double s = p + q, other = s - p, error = (p - (s - other)) + (q - other);
            std::int64_t bits = std::bit_cast<std::int64_t>(s);
            const bool inexact = error > 0 || error < 0;  // not for NaN, which Inf leaves
            if (inexact && bits % 2 == 0) bits += (error > 0) == (s > 0) ? 1 : -1;
            z[i] = static_cast<float>(std::bit_cast<double>(bits));
        }
        return kernels::load<Arch>(z);
    }
}

/// Joins the partial sums: those eight apart, then four, two and one.
QK_INLINE float joined(const float* sum) noexcept {
    float s[partial_sums / 2];
    for (std::size_t i = 0; i < 8; ++i) s[i] = sum[i] + sum[i + 8];
    for (std::size_t i = 0; i < 4; ++i) s[i] += s[i + 4];
    return (s[0] + s[2]) + (s[1] + s[3]);
}

/// Returns v. Keeps a compiler from loading it again for each product, which takes more loads than a processor has room for.
template <class Arch>
QK_INLINE kernels::vf<Arch> in_register(kernels::vf<Arch> v) noexcept {
#if QK_HAS(SIXTEEN_LANES)
    if constexpr (sizeof v == 64) asm("" : "+v"(v.data));
#elif QK_HAS(BYTE_SHUFFLES)
    if constexpr (sizeof v == 32) asm("" : "+x"(v.data));
#endif
    return v;
}

#if QK_HAS(BYTE_SHUFFLES)
QK_INLINE __m256i in_register(__m256i v) noexcept {
#if QK_HAS(SIXTEEN_LANES)
    asm("" : "+v"(v));
#else
    asm("" : "+x"(v));
#endif
    return v;
}
QK_INLINE __m256 in_register(__m256 v) noexcept { return _mm256_castsi256_ps(in_register(_mm256_castps_si256(v))); }
#endif
#if QK_HAS(SIXTEEN_LANES)
QK_INLINE __m512 in_register(__m512 v) noexcept {
    asm("" : "+v"(v));
    return v;
}
#endif

/// So many vectors of x are multiplied at once: with four rows, their sums stay in registers.
template <class Arch>
inline constexpr std::size_t vectors_at_once = has_many_registers ? 6 : 3;
/// Returns how many of `left` vectors come next: two and two are faster than three and one.
template <class Arch>
constexpr std::size_t next_vectors(std::size_t left) noexcept {
    return vectors_at_once<Arch> == 3 && left == 4 ? 2 : left < vectors_at_once<Arch> ? left : vectors_at_once<Arch>;
}

/// sum[r][m] += w[r] * x[m] for R rows of weights and M vectors of n values each, where sum[r][m] has all partial sums. The partial sums of
/// one vector of lanes are independent of the others', so they are computed one vector after the other where registers are few.
template <class Arch, std::size_t R, std::size_t M>
QK_APART void add_products(const float* w, std::size_t w_stride, const float* const* x, std::size_t n, float* sum,
                           std::size_t sum_stride) noexcept {
    constexpr std::size_t width = kernels::lanes<Arch>, most = 4 * vectors_at_once<Arch>,
                          V = R * M * vectors_of_sums<Arch> <= most ? vectors_of_sums<Arch> : 1;
    const float* in[M];
    for (std::size_t m = 0; m < M; ++m) in[m] = x[m];
    for (std::size_t first = 0; first < partial_sums; first += V * width) {
        kernels::vf<Arch> s[R][M][V];
        float* const at = sum + first;
        kernels::unrolled<R>([&](auto r) QK_INLINE_CALL {
            kernels::unrolled<M>([&](auto m) QK_INLINE_CALL {
                kernels::unrolled<V>(
                    [&](auto v) QK_INLINE_CALL { s[r][m][v] = kernels::load<Arch>(at + r * sum_stride + m * partial_sums + v * width); });
            });
        });
        std::size_t i = first;
        for (; i + V * width <= n; i += partial_sums) {
            kernels::unrolled<V>([&](auto v) QK_INLINE_CALL {
                kernels::vf<Arch> value[M];
                kernels::unrolled<M>([&](auto m) QK_INLINE_CALL { value[m] = kernels::load<Arch>(in[m] + i + v * width); });
                kernels::unrolled<R>([&](auto r) QK_INLINE_CALL {
                    const kernels::vf<Arch> weight = in_register<Arch>(kernels::load<Arch>(w + r * w_stride + i + v * width));
                    kernels::unrolled<M>([&](auto m) QK_INLINE_CALL { s[r][m][v] = fused<Arch>(value[m], weight, s[r][m][v]); });
                });
            });
        }
        for (std::size_t v = 0; v < V && i + v * width < n; ++v) {  // sums without a product stay as they are
            const std::size_t k = i + v * width, count = n - k < width ? n - k : width;
            const kernels::mask<Arch> own = kernels::iota<Arch>() < kernels::vi<Arch>(static_cast<std::int32_t>(count));
            for (std::size_t r = 0; r < R; ++r) {
                const kernels::vf<Arch> weight = kernels::load_first<Arch>(w + r * w_stride + k, count);
                for (std::size_t m = 0; m < M; ++m) {
                    const kernels::vf<Arch> value = kernels::load_first<Arch>(in[m] + k, count);
                    s[r][m][v] = select(own, fused<Arch>(value, weight, s[r][m][v]), s[r][m][v]);
                }
            }
        }
        kernels::unrolled<R>([&](auto r) QK_INLINE_CALL {
            kernels::unrolled<M>([&](auto m) QK_INLINE_CALL {
                kernels::unrolled<V>(
                    [&](auto v) QK_INLINE_CALL { kernels::store<Arch>(at + r * sum_stride + m * partial_sums + v * width, s[r][m][v]); });
            });
        });
    }
}

/// The same for any number of rows and at most 6 vectors.
template <class Arch, std::size_t R>
QK_INLINE void add_products_of_rows(std::size_t vectors, const float* w, std::size_t w_stride, const float* const* x, std::size_t n,
                                    float* sum, std::size_t sum_stride) noexcept {
    if constexpr (vectors_at_once<Arch> == 6) {
        if (vectors == 6) return add_products<Arch, R, 6>(w, w_stride, x, n, sum, sum_stride);
        if (vectors > 3) {
            add_products<Arch, R, 3>(w, w_stride, x, n, sum, sum_stride);
            vectors -= 3, x += 3, sum += 3 * partial_sums;
        }
    }
    if (vectors == 3) add_products<Arch, R, 3>(w, w_stride, x, n, sum, sum_stride);
    else if (vectors == 2) add_products<Arch, R, 2>(w, w_stride, x, n, sum, sum_stride);
    else add_products<Arch, R, 1>(w, w_stride, x, n, sum, sum_stride);
}
template <class Arch>
QK_INLINE void add_products(std::size_t rows, std::size_t vectors, const float* w, std::size_t w_stride, const float* const* x,
                            std::size_t n, float* sum, std::size_t sum_stride) noexcept {
    std::size_t r = 0;
    for (; r + 4 <= rows; r += 4)
        add_products_of_rows<Arch, 4>(vectors, w + r * w_stride, w_stride, x, n, sum + r * sum_stride, sum_stride);
    for (; r < rows; ++r) add_products_of_rows<Arch, 1>(vectors, w + r * w_stride, w_stride, x, n, sum + r * sum_stride, sum_stride);
}

}  // namespace QK_ISA
}  // namespace qk::detail
