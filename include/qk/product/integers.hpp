// SPDX-License-Identifier: Apache-2.0
// Products with x rounded to int8 by block (product_sums::integers): the sums of four products are whole numbers, which every instruction
// set adds alike.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "qk/inline.hpp"
#include "qk/product/rows.hpp"
#include "qk/product/sums.hpp"

namespace qk::detail {

inline constexpr std::size_t block_of_input = 32;  ///< values of x that share a scale

/// The elements of a format as whole numbers of a unit, by code.
struct whole_elements {
    alignas(64) std::int16_t value[256];
    float unit = 0;
    bool usable = false;                                               ///< is false where an element is no such number, or a large one
    bool in_bytes = false, two_s_complement = false, natural = false;  ///< -128 to 127; a byte's own number, with or without a sign

    template <class Arch>
    QK_APART void fill(const weight_rows<Arch>& w) noexcept {
        usable = false, in_bytes = true, two_s_complement = natural = w.width == 8;
        if (w.width > 8 || w.run == 0) return;
        std::uint32_t code[256];
        float number[256];
        const std::size_t n = std::size_t{1} << w.width;
        for (std::uint32_t i = 0; i < n; ++i) code[i] = i;
        w.elements(code, number, n);
        unit = 0;
        for (std::size_t i = 0; i < n; ++i) {  // the smallest magnitude; of NaN none
            const float a = number[i] < 0 ? -number[i] : number[i];
            if (a > 0 && (unit == 0 || a < unit)) unit = a;
        }
        if (!(unit > 0) || (std::bit_cast<std::uint32_t>(unit) & 0x7fffffu) != 0) return;
        for (std::size_t i = 0; i < n; ++i) {
            const float whole = number[i] / unit;
            if (!(whole >= -512 && whole <= 512) || whole != static_cast<float>(static_cast<std::int16_t>(whole))) return;
            value[i] = static_cast<std::int16_t>(whole);
            in_bytes = in_bytes && value[i] >= -128 && value[i] <= 127;
            two_s_complement = two_s_complement && value[i] == static_cast<std::int8_t>(i);
            natural = natural && value[i] == static_cast<std::int16_t>(i);
        }
        usable = true;
    }
};

/// x in int8, with the scale of each block of 32 and the sums of four neighbours.
struct integer_input {
    std::int8_t* q;
    float* scale;
    std::int32_t* four;
};

/// Rounds n values of x to int8 by block: scale = (largest magnitude / 127) * unit, 0 for a block of zeros, NaN for one with NaN or Inf.
/// Fills the last block up with zeros.
template <class Arch>
QK_APART void round_input(const float* x, std::size_t n, float unit, const integer_input& to) noexcept {
    using V = kernels::vi<Arch>;
    constexpr std::size_t w = kernels::lanes<Arch>;
    alignas(64) float value[block_of_input];
    alignas(64) std::int32_t whole[block_of_input];
    for (std::size_t k = 0; k < n; k += block_of_input) {
        const std::size_t some = std::min(block_of_input, n - k);
        for (std::size_t i = 0; i < block_of_input; ++i) value[i] = i < some ? x[k + i] : 0.0f;
        V most(0);
        for (std::size_t i = 0; i < block_of_input; i += w)
            most = max(most, kernels::as_int<Arch>(kernels::load<Arch>(value + i)) & V(0x7fffffff));
        kernels::store<Arch>(whole, most);
        const std::int32_t largest = *std::max_element(whole, whole + w);
        const float s = std::bit_cast<float>(largest) / 127.0f;
        std::int8_t* q = to.q + k;
        std::fill(q, q + block_of_input, std::int8_t{0});
        std::fill(to.four + k / 4, to.four + k / 4 + block_of_input / 4, 0);
        to.scale[k / block_of_input] = largest >= 0x7f800000 ? std::numeric_limits<float>::quiet_NaN() : s * unit;
        if (largest >= 0x7f800000 || s == 0) continue;
        constexpr float to_whole = 0x1.8p23f;
        for (std::size_t i = 0; i < block_of_input; i += w) {
            const kernels::vf<Arch> shifted = kernels::load<Arch>(value + i) / kernels::vf<Arch>(s) + kernels::vf<Arch>(to_whole);
            const V number = kernels::as_int<Arch>(shifted) - V(std::bit_cast<std::int32_t>(to_whole));
            kernels::store<Arch>(whole + i, min(max(number, V(-127)), V(127)));
        }
        for (std::size_t i = 0; i < block_of_input; ++i) {
            q[i] = static_cast<std::int8_t>(whole[i]);
            to.four[(k + i) / 4] += whole[i];
        }
    }
}

/// Adds one block of a row, up to 32 weights, whose whole numbers are `element`.
template <class Arch>
QK_APART void add_whole(const std::int32_t* element, const std::int8_t* q, std::size_t n, const float* factor, std::size_t factors,
                        const float* zero, float scale, float* sum) noexcept {
    constexpr std::size_t w = kernels::lanes<Arch>;
    alignas(64) float d[partial_sums] = {}, by[partial_sums] = {};
    const std::size_t count = (n + 3) / 4;
    for (std::size_t i = 0; i < count; ++i) {
        const std::size_t half = i < 4 ? 0 : factors - 1;
        const std::int32_t less = zero == nullptr ? 0 : static_cast<std::int32_t>(zero[half]);
        std::int32_t whole = 0;
        for (std::size_t t = 4 * i; t < std::min(n, 4 * i + 4); ++t) whole += (element[t] - less) * q[t];
        d[i] = static_cast<float>(whole), by[i] = scale * factor[half];
    }
    for (std::size_t at = 0; at < count; at += w) {
        const kernels::mask<Arch> own = kernels::iota<Arch>() < kernels::vi<Arch>(static_cast<std::int32_t>(count - at));
        const kernels::vf<Arch> old = kernels::load<Arch>(sum + at);
        kernels::store<Arch>(sum + at, select(own, fused<Arch>(kernels::load<Arch>(d + at), kernels::load<Arch>(by + at), old), old));
    }
}

#if defined(__AVX2__) && (defined(__FMA__) || defined(__AVX512F__))

/// Returns the sums of four products of bytes each. |weights| may be 128, |q| is at most 127: two products fit 16 bits.
QK_INLINE __m256i sums_of_four(__m256i weights, __m256i q) noexcept {
    const __m256i magnitude = _mm256_abs_epi8(weights), with_sign = _mm256_sign_epi8(q, weights);
#if defined(__AVX512VNNI__) && defined(__AVX512VL__)
    return _mm256_dpbusd_epi32(_mm256_setzero_si256(), magnitude, with_sign);
#elif defined(__AVXVNNI__)
    return _mm256_dpbusd_avx_epi32(_mm256_setzero_si256(), magnitude, with_sign);
#else
    return _mm256_madd_epi16(_mm256_maddubs_epi16(magnitude, with_sign), _mm256_set1_epi16(1));
#endif
}

/// Adds R rows from row `first` on, whose codes of 4 bits are looked up in `table`, and whose codes of 8 bits are the numbers: with the
/// highest bit flipped where offset is 128. Codes of 4 bits: numbers 0, 2, 4 ... of a block of q stand in its lower half.
template <class Arch, std::size_t R, int Width, bool Zero>
QK_INLINE void add_integers(const piece_of_rows& p, const integer_input& x, std::size_t first, __m256i table, int offset) noexcept {
    const __m256i shift = _mm256_setr_epi32(0, 0, 0, 0, 4, 4, 4, 4), nibble = _mm256_set1_epi8(15),
                  flip = _mm256_set1_epi8(static_cast<char>(offset));
    const std::size_t second = p.factors - 1;
    float* sum = p.sum + first * p.sum_stride;
    __m256 s[R];
    kernels::unrolled<R>([&](auto r) QK_INLINE_CALL { s[r] = _mm256_loadu_ps(sum + r * p.sum_stride); });
    const packed_piece* piece = p.piece + first;
    for (std::size_t g = 0; g < p.groups; ++g) {
        const __m256 scale = _mm256_broadcast_ss(x.scale + g);
        const __m256i q = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x.q + g * block_of_input));
        kernels::unrolled<R>([&](auto r) QK_INLINE_CALL {
            const auto halves = [&](const float* of) QK_INLINE_CALL {
                return _mm256_blend_ps(_mm256_broadcast_ss(of), _mm256_broadcast_ss(of + second), 0xf0);
            };
            __m256i whole;
            if constexpr (Width == 4) {
                const __m256i two = _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(piece[r].codes + g * 16)));
                const __m256i weights = _mm256_shuffle_epi8(table, _mm256_and_si256(_mm256_srlv_epi32(two, shift), nibble));
                const __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(weights), _mm256_sign_epi8(q, weights));
                whole = _mm256_add_epi32(_mm256_cvtepi16_epi32(_mm256_castsi256_si128(pairs)),
                                         _mm256_cvtepi16_epi32(_mm256_extracti128_si256(pairs, 1)));
            } else {
                const __m256i code = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(piece[r].codes + g * 32));
                whole = sums_of_four(_mm256_xor_si256(code, flip), q);
            }
            if constexpr (Zero) {
                const __m256i zero = p.zeros ? _mm256_cvttps_epi32(halves(piece[r].zero + g * p.factors)) : _mm256_setzero_si256();
                const __m256i four = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x.four + g * 8));
                whole = _mm256_sub_epi32(whole, _mm256_mullo_epi32(_mm256_sub_epi32(zero, _mm256_set1_epi32(offset)), four));
            }
            const __m256 by = _mm256_mul_ps(scale, halves(piece[r].factor + g * p.factors));
            s[r] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(whole), by, s[r]);
        });
    }
    kernels::unrolled<R>([&](auto r) QK_INLINE_CALL { _mm256_storeu_ps(sum + r * p.sum_stride, s[r]); });
}
template <class Arch>
QK_APART void add_integers(const piece_of_rows& p, const integer_input& x, const whole_elements& e, int width) noexcept {
    alignas(32) std::int8_t numbers[32];
    for (std::size_t i = 0; i < 32; ++i) numbers[i] = static_cast<std::int8_t>(e.value[i % 16]);
    const __m256i table = _mm256_load_si256(reinterpret_cast<const __m256i*>(numbers));
    const int offset = width == 8 && e.natural ? 128 : 0;
    const auto all = [&]<int Width, bool Zero>() QK_INLINE_CALL {
        for (std::size_t r = 0; r < p.rows; r += 2) add_integers<Arch, 2, Width, Zero>(p, x, r, table, offset);
    };
    if (width == 4) p.zeros ? all.template operator()<4, true>() : all.template operator()<4, false>();
    else p.zeros || offset != 0 ? all.template operator()<8, true>() : all.template operator()<8, false>();
}

inline constexpr bool has_fast_integers = true;

#else

inline constexpr bool has_fast_integers = false;

#endif

}  // namespace qk::detail
