// SPDX-License-Identifier: Apache-2.0
// Products with x rounded to int8 by block (product_sums::integers): the sums of eight products are whole numbers, which every instruction
// set adds alike.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "qk/inline.hpp"
#include "qk/isa.hpp"
#include "qk/product/options.hpp"
#include "qk/product/rows.hpp"
#include "qk/product/sums.hpp"

namespace qk::detail {
inline namespace QK_ISA {

inline constexpr std::size_t block_of_input = 32;  ///< values of x that share a scale
inline constexpr std::size_t most_rounded = 4096;  ///< values of x at a time

/// The elements of a format as whole numbers of a unit, by code.
struct whole_elements {
    alignas(64) std::int16_t value[256];
    float unit = 0;
    bool usable = false;  ///< is false where an element is no such number, or a large one
    std::int16_t lowest = 0, highest = 0;
    alignas(16) std::uint8_t above[16] = {};         ///< of codes of 4 bits: value - lowest
    bool two_s_complement = false, natural = false;  ///< a byte's own number, with or without a sign

    template <class Arch>
    QK_APART void fill(const weight_rows<Arch>& w) noexcept {
        usable = false, two_s_complement = natural = w.width == 8;
        if (w.block_bytes != 0) {  // blocks have their numbers themselves, and no code is looked up here
            unit = 1, usable = true, natural = two_s_complement = false;
            return;
        }
        if (w.width > 8 || w.run == 0) return;
        if (w.bytes() != weight_rows<Arch>::integer_bytes::none)
            return fill_bytes<Arch>(w.bytes() == weight_rows<Arch>::integer_bytes::with_sign);
        std::uint32_t code[256];
        float number[256];
        const std::size_t n = std::size_t{1} << w.width;
        for (std::uint32_t i = 0; i < n; ++i) code[i] = i;
        w.elements(code, number, n);
        unit = 0, lowest = 0, highest = 0;
        for (std::size_t i = 0; i < n; ++i) {  // the smallest magnitude; of NaN none
            const float a = number[i] < 0 ? -number[i] : number[i];
            if (a > 0 && (unit == 0 || a < unit)) unit = a;
        }
        if (!(unit > 0) || (std::bit_cast<std::uint32_t>(unit) & 0x7fffffu) != 0) return;
        for (std::size_t i = 0; i < n; ++i) {
            const float whole = number[i] / unit;
            if (!(whole >= -512 && whole <= 512) || whole != static_cast<float>(static_cast<std::int16_t>(whole))) return;
            value[i] = static_cast<std::int16_t>(whole);
            lowest = std::min(lowest, value[i]), highest = std::max(highest, value[i]);
            two_s_complement = two_s_complement && value[i] == static_cast<std::int8_t>(i);
            natural = natural && value[i] == static_cast<std::int16_t>(i);
        }
        for (std::size_t i = 0; n == 16 && i < n; ++i) above[i] = static_cast<std::uint8_t>(value[i] - lowest);
        usable = true;
    }
    template <class Arch>
    QK_APART void fill_bytes(bool with_sign) noexcept {
        unit = 1, usable = true, two_s_complement = with_sign, natural = !with_sign;
        lowest = with_sign ? -128 : 0, highest = with_sign ? 127 : 255;
        for (std::int16_t i = 0; i < 256; ++i) value[i] = with_sign && i > 127 ? static_cast<std::int16_t>(i - 256) : i;
    }
    /// Is true where two products of an element, less the lowest one, and a number of x fit 16 bits.
    bool is_narrow() const noexcept { return highest - lowest <= 128; }
    /// Is true where the forms in registers know codes of so many bits.
    bool in_registers(int width) const noexcept { return width == 4 ? is_narrow() : two_s_complement || natural; }
};

/// x in int8, with the scale of each block of 32 and the sums of eight neighbours.
struct integer_input {
    std::int8_t* q;
    float* scale;
    std::int32_t* eight;
    /// For the form in registers, eight entries for two blocks, in the order of its lanes: the blocks' scales, `eight`, and what is added
    /// where there are no zero points.
    float* lane_scale;
    std::int32_t *lane_eight, *lane_more;
    float* block_sum;  ///< of each block of 32: the sum of its numbers times its scale, for weights to which something is added

    /// Returns what lies n numbers further on: the next of several vectors.
    QK_INLINE integer_input after(std::size_t n) const noexcept {
        return {q + n,
                scale + n / block_of_input,
                eight + n / 8,
                lane_scale + n / 8,
                lane_eight + n / 8,
                lane_more + n / 8,
                block_sum + n / block_of_input};
    }
};

#if QK_HAS(BYTE_SHUFFLES) && QK_HAS(FUSED_SUMS)

inline constexpr bool has_fast_integers = true;

QK_INLINE std::int32_t largest_of_eight(const std::int32_t* v) noexcept {
    __m128i most =
        _mm_max_epi32(_mm_load_si128(reinterpret_cast<const __m128i*>(v)), _mm_load_si128(reinterpret_cast<const __m128i*>(v + 4)));
    most = _mm_max_epi32(most, _mm_shuffle_epi32(most, 0x4e));
    return _mm_cvtsi128_si32(_mm_max_epi32(most, _mm_shuffle_epi32(most, 0xb1)));
}
QK_INLINE __m256i sums_of_eight(__m256i four, __m256i other) noexcept {
    const __m256 a = _mm256_castsi256_ps(four), b = _mm256_castsi256_ps(other);
    return _mm256_add_epi32(_mm256_castps_si256(_mm256_shuffle_ps(a, b, 0x88)), _mm256_castps_si256(_mm256_shuffle_ps(a, b, 0xdd)));
}
/// Stores the bytes of 32 whole numbers from -127 to 127.
QK_INLINE void store_whole(const std::int32_t* whole, std::int8_t* q) noexcept {
    const auto at = [&](int i) QK_INLINE_CALL { return _mm256_load_si256(reinterpret_cast<const __m256i*>(whole + i)); };
    const __m256i runs = _mm256_packs_epi16(_mm256_packs_epi32(at(0), at(8)), _mm256_packs_epi32(at(16), at(24))),
                  bytes = _mm256_permutevar8x32_epi32(runs, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(q), bytes);
}

/// Stores the sums of eight neighbours of 32 bytes from -127 to 127.
QK_INLINE void store_sums(const std::int8_t* q, std::int32_t* eight) noexcept {
    const __m256i bytes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(q)),
                  four = _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_set1_epi8(1), bytes), _mm256_set1_epi16(1)),
                  sums = _mm256_permute4x64_epi64(sums_of_eight(four, four), 0xd8);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(eight), _mm256_castsi256_si128(sums));
}

#else

inline constexpr bool has_fast_integers = false;

QK_INLINE std::int32_t largest_of_eight(const std::int32_t* v) noexcept { return *std::max_element(v, v + 8); }
QK_INLINE void store_whole(const std::int32_t* whole, std::int8_t* q) noexcept {
    for (std::size_t i = 0; i < block_of_input; ++i) q[i] = static_cast<std::int8_t>(whole[i]);
}
QK_INLINE void store_sums(const std::int8_t* q, std::int32_t* eight) noexcept {
    for (std::size_t i = 0; i < block_of_input / 8; ++i) eight[i] = 0;
    for (std::size_t i = 0; i < block_of_input; ++i) eight[i / 8] += q[i];
}

#endif

/// Writes 32 whole numbers next to value / s, by products with the reciprocal; returns false where a product is so near the middle of two
/// that it does not tell.
template <class Arch>
QK_INLINE bool whole_by_products(const float* value, float s, float reciprocal, std::int32_t* whole) noexcept {
    using V = kernels::vi<Arch>;
    constexpr float to_whole = 0x1.8p23f, near = 0.5f - 0x1p-14f;  // a product is off by less than 0x1p-15
    const kernels::vf<Arch> by(reciprocal), shift(to_whole);
    V farthest(0);
    for (std::size_t i = 0; i < block_of_input; i += kernels::lanes<Arch>) {
        const kernels::vf<Arch> quotient = kernels::load<Arch>(value + i) * by, shifted = quotient + shift;
        kernels::store<Arch>(whole + i, kernels::as_int<Arch>(shifted) - V(std::bit_cast<std::int32_t>(to_whole)));
        farthest = max(farthest, kernels::as_int<Arch>(quotient - (shifted - shift)) & V(0x7fffffff));
    }
    return s > 0x1p-100f && !any(farthest > V(std::bit_cast<std::int32_t>(near)));
}
/// Writes 32 whole numbers next to value / s.
template <class Arch>
QK_APART void whole_by_quotients(const float* value, float s, std::int32_t* whole) noexcept {
    using V = kernels::vi<Arch>;
    constexpr float to_whole = 0x1.8p23f;
    for (std::size_t i = 0; i < block_of_input; i += kernels::lanes<Arch>) {
        const kernels::vf<Arch> shifted = kernels::load<Arch>(value + i) / kernels::vf<Arch>(s) + kernels::vf<Arch>(to_whole);
        const V number = kernels::as_int<Arch>(shifted) - V(std::bit_cast<std::int32_t>(to_whole));
        kernels::store<Arch>(whole + i, min(max(number, V(-127)), V(127)));
    }
}
/// Returns the bits of the largest magnitude of 32 values.
template <class Arch>
QK_INLINE std::int32_t largest_of_block(const float* value) noexcept {
    using V = kernels::vi<Arch>;
    constexpr std::size_t w = kernels::lanes<Arch>, some = w < 8 ? 8 : w;
    alignas(64) std::int32_t most_of[some];
    for (std::size_t at = 0; at < some; at += w) {
        V most(0);
        for (std::size_t i = at; i < block_of_input; i += some)
            most = max(most, kernels::as_int<Arch>(kernels::load<Arch>(value + i)) & V(0x7fffffff));
        kernels::store<Arch>(most_of + at, most);
    }
    const std::int32_t largest = largest_of_eight(most_of);
    if constexpr (some == 16) return std::max(largest, largest_of_eight(most_of + 8));
    else return largest;
}

/// Rounds n values of x, at most `most_rounded`, to int8 by block: scale = (largest magnitude / 127) * unit, 0 for a block of zeros, NaN
/// for one with NaN or Inf. Fills the last block up with zeros. (In three passes: no block waits for the quotients of the one before.)
template <class Arch>
QK_APART void round_input(const float* x, std::size_t n, float unit, std::int8_t* to, float* scale_to) noexcept {
    constexpr std::size_t w = kernels::lanes<Arch>, most_blocks = most_rounded / block_of_input;
    alignas(64) float last[block_of_input] = {}, s[most_blocks], reciprocal[most_blocks];
    alignas(64) std::int32_t whole[block_of_input];
    const std::size_t blocks = (n + block_of_input - 1) / block_of_input;
    if (n % block_of_input != 0) std::copy(x + n / block_of_input * block_of_input, x + n, last);
    const auto value_of_block = [&](std::size_t b) { return (b + 1) * block_of_input <= n ? x + b * block_of_input : last; };
    for (std::size_t b = 0; b < blocks; ++b) s[b] = std::bit_cast<float>(largest_of_block<Arch>(value_of_block(b)));
    for (std::size_t b = blocks; b % w != 0; ++b) s[b] = 0;
    for (std::size_t b = 0; b < blocks; b += w) {
        const kernels::vf<Arch> scale = kernels::load<Arch>(s + b) / kernels::vf<Arch>(127.0f);
        kernels::store<Arch>(s + b, scale), kernels::store<Arch>(reciprocal + b, kernels::vf<Arch>(1.0f) / scale);
    }
    for (std::size_t b = 0; b < blocks; ++b) {
        std::int8_t* const q = to + b * block_of_input;
        const bool finite = s[b] <= std::numeric_limits<float>::max();
        scale_to[b] = finite ? s[b] * unit : std::numeric_limits<float>::quiet_NaN();
        if (!finite || s[b] == 0) {
            std::fill(q, q + block_of_input, std::int8_t{0});
            continue;
        }
        if (!whole_by_products<Arch>(value_of_block(b), s[b], reciprocal[b], whole))
            whole_by_quotients<Arch>(value_of_block(b), s[b], whole);
        store_whole(whole, q);
    }
}

/// Sums the eights of n numbers of x.
QK_INLINE void sum_eights(std::size_t n, const integer_input& x) noexcept {
    for (std::size_t k = 0; k < n; k += block_of_input) store_sums(x.q + k, x.eight + k / 8);
}
/// The same for n values of x.
template <class Arch>
QK_INLINE void round_input(const float* x, std::size_t n, float unit, const integer_input& to) noexcept {
    round_input<Arch>(x, n, unit, to.q, to.scale);
    sum_eights(n, to);
}
/// Takes n values of vector m that are rounded already, from number k on, which begins a block.
template <class Arch>
QK_APART void take_rounded(const rounded_vectors& x, std::size_t columns, std::size_t m, std::size_t k, std::size_t n, float unit,
                           const integer_input& to) noexcept {
    const std::size_t stride = padded_columns(columns);
    std::memcpy(to.q, x.q.data() + m * stride + k, padded_columns(n));
    for (std::size_t b = 0; b * block_of_input < n; ++b) to.scale[b] = x.scale[(m * stride + k) / block_of_input + b] * unit;
    sum_eights(n, to);
}

/// Adds a * b to one partial sum.
template <class Arch>
QK_INLINE void add_to_one(float a, float b, float* sum) noexcept {
    alignas(64) float own[kernels::lanes<Arch>];
    kernels::store<Arch>(own, fused<Arch>(kernels::vf<Arch>(a), kernels::vf<Arch>(b), kernels::vf<Arch>(*sum)));
    *sum = own[0];
}
/// Adds what is added to the weights of block number `block`: to all of them, or to each half of 32.
template <class Arch>
QK_APART void add_constants(const std::int8_t* q, std::size_t n, const float* added, std::size_t count, float scale, std::size_t block,
                            float* sum) noexcept {
    for (std::size_t i = 0; i < count; ++i) {
        std::int32_t whole = 0;
        for (std::size_t t = i * block_of_input / count; t < std::min(n, (i + 1) * block_of_input / count); ++t) whole += q[t];
        add_to_one<Arch>(static_cast<float>(whole) * scale, added[i], sum + partial_sums / 2 + block % 8);
    }
}
/// Adds block number `block` of a row, up to 32 weights, whose whole numbers are `element`.
template <class Arch>
QK_APART void add_whole(const std::int32_t* element, const std::int8_t* q, std::size_t n, const float* factor, std::size_t factors,
                        const float* zero, float scale, std::size_t block, float* sum) noexcept {
    constexpr std::size_t w = kernels::lanes<Arch>;
    alignas(64) float d[partial_sums] = {}, by[partial_sums] = {};
    const std::size_t first = block % 2 * 4, count = (n + 7) / 8;
    for (std::size_t i = 0; i < count; ++i) {
        const std::size_t half = i < 2 ? 0 : factors - 1;
        const std::int32_t less = zero == nullptr ? 0 : static_cast<std::int32_t>(zero[half]);
        std::int32_t whole = 0;
        for (std::size_t t = 8 * i; t < std::min(n, 8 * i + 8); ++t) whole += (element[t] - less) * q[t];
        d[first + i] = static_cast<float>(whole), by[first + i] = scale * factor[half];
    }
    for (std::size_t at = 0; at < first + count; at += w) {
        const kernels::vi<Arch> lane = kernels::iota<Arch>() + kernels::vi<Arch>(static_cast<std::int32_t>(at));
        const kernels::mask<Arch> own = (lane < kernels::vi<Arch>(static_cast<std::int32_t>(first + count))) &
                                        (kernels::vi<Arch>(static_cast<std::int32_t>(first)) <= lane);
        const kernels::vf<Arch> old = kernels::load<Arch>(sum + at);
        kernels::store<Arch>(sum + at, select(own, fused<Arch>(kernels::load<Arch>(d + at), kernels::load<Arch>(by + at), old), old));
    }
}

#if QK_HAS(BYTE_SHUFFLES) && QK_HAS(FUSED_SUMS)

#if QK_HAS(WIDE_BYTE_PRODUCTS) && defined(QK_MASK_REGISTERS)
inline constexpr bool has_wide_integers = true;
#else
inline constexpr bool has_wide_integers = false;
#endif

/// Returns the bits of two floats, at any address that a float may have.
QK_INLINE double two_floats(const float* from) noexcept {
    double both;
    std::memcpy(&both, from, sizeof both);
    return both;
}

// Two blocks at a time. With codes of 4 bits each half of a register has the sums of one block; with wide integers those of 8 bits, too.
// Else these are joined by a shuffle within halves, which leaves sums 0 and 1 of both blocks in the lower half, 2 and 3 in the upper one.

/// Makes ready for two blocks each what the form in registers reads of x, n being a multiple of 64. lowest: the least element, which is
/// subtracted from codes of 4 bits, or what is added to those of 8 bits.
template <class Arch>
QK_APART void order_lanes(std::size_t n, int width, std::int32_t lowest, const integer_input& x) noexcept {
    const __m256i by = _mm256_set1_epi32(lowest), even = _mm256_set1_epi16(255);
    for (std::size_t k = 0; k < n; k += 2 * block_of_input) {
        const std::size_t at = k / 8, block = k / block_of_input;
        __m256i eight = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x.eight + at));
        __m256 scale = _mm256_castsi256_ps(_mm256_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1));
        if (width == 4) {  // numbers 0, 2, 4 ... of both blocks, then 1, 3, 5 ...
            __m256i* const q = reinterpret_cast<__m256i*>(x.q + k);
            const __m256i a = _mm256_loadu_si256(q), b = _mm256_loadu_si256(q + 1);
            const auto of_both = [](__m256i lower, __m256i upper)
                                     QK_INLINE_CALL { return _mm256_permute4x64_epi64(_mm256_packus_epi16(lower, upper), 0xd8); };
            _mm256_storeu_si256(q, of_both(_mm256_and_si256(a, even), _mm256_and_si256(b, even)));
            _mm256_storeu_si256(q + 1, of_both(_mm256_srli_epi16(a, 8), _mm256_srli_epi16(b, 8)));
        } else if (!has_wide_integers) {
            eight = _mm256_permute4x64_epi64(eight, 0xd8);
            scale = _mm256_castsi256_ps(_mm256_setr_epi32(0, 0, 1, 1, 0, 0, 1, 1));
        }
        const __m256 two = _mm256_castpd_ps(_mm256_set1_pd(two_floats(x.scale + block)));
        scale = _mm256_permutevar_ps(two, _mm256_castps_si256(scale));
        _mm256_storeu_ps(x.lane_scale + at, scale);
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(x.lane_eight + at), eight);
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(x.lane_more + at), _mm256_mullo_epi32(eight, by));
    }
}

/// The same for weights whose blocks have bytes of their own: 64 codes of 8 bits at a time, in their order.
template <class Arch>
QK_APART void order_blocks(std::size_t n, const integer_input& x) noexcept {
    for (std::size_t k = 0; k < n; k += 2 * block_of_input) {
        const std::size_t at = k / 8, block = k / block_of_input;
        const __m256i eight = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x.eight + at));
        const __m256 two = _mm256_castpd_ps(_mm256_set1_pd(two_floats(x.scale + block)));
        _mm256_storeu_ps(x.lane_scale + at, _mm256_unpacklo_ps(two, two));
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(x.lane_eight + at), _mm256_permute4x64_epi64(eight, 0xd8));
        for (std::size_t i = 0; i < 2; ++i) {
            const std::int32_t* const of = x.eight + at + 4 * i;
            x.block_sum[block + i] = static_cast<float>(of[0] + of[1] + of[2] + of[3]) * x.scale[block + i];
        }
    }
}

/// Returns the sums of four products of bytes each. |weights| may be 128, |q| is at most 127: two products fit 16 bits.
QK_INLINE __m256i sums_of_four(__m256i weights, __m256i q) noexcept {
    const __m256i magnitude = _mm256_abs_epi8(weights), with_sign = _mm256_sign_epi8(q, weights);
#if QK_HAS(BYTE_PRODUCTS)
    return _mm256_dpbusd_avx_epi32(_mm256_setzero_si256(), magnitude, with_sign);
#else
    return _mm256_madd_epi16(_mm256_maddubs_epi16(magnitude, with_sign), _mm256_set1_epi16(1));
#endif
}

/// How codes become bytes. Those of 4 bits are looked up in a table, which has their elements less the lowest one: 0 to 64, or to 128
/// (wide). Bytes without a sign get one, as if the lowest were 128; for wide integers those with a sign lose it, as if it were -128.
enum class integer_kind { nibbles, wide_nibbles, signed_bytes, bytes };
struct integer_codes {
    integer_kind kind;
    __m256i table;
    std::int32_t lowest;
};

#if QK_HAS(WIDE_BYTE_PRODUCTS) && defined(QK_MASK_REGISTERS)

/// Adds R rows from row `first` of a piece on for M vectors of x, four blocks at a time, whose sixteen sums are in order.
/// Where two blocks are left, what is behind them is neither read nor added.
template <class Arch, std::size_t R, std::size_t M, integer_kind Kind, std::size_t Factors, bool Zero>
QK_INLINE void add_integers(const piece_of_rows& p, std::size_t first, const integer_input& x, const integer_codes& codes) noexcept {
    constexpr bool in_nibbles = Kind == integer_kind::nibbles || Kind == integer_kind::wide_nibbles,
                   adds_more = !Zero && Kind != integer_kind::bytes;
    constexpr std::size_t bytes = in_nibbles ? 32 : 64;  // of two blocks
    const __m512i nibble = _mm512_set1_epi8(15), flip = _mm512_set1_epi8(-128), none = _mm512_setzero_si512(),
                  lowest = _mm512_set1_epi32(codes.lowest), table = _mm512_broadcast_i32x4(_mm256_castsi256_si128(codes.table));
    const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30),
                  odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
    const __m512i entry = _mm512_srli_epi32(_mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15), Factors == 2 ? 1 : 2);
    float* const sum = p.sum + first * p.sum_stride;
    __m256 s[R][M];
    const std::byte* in[R];
    const float *factor[R], *zero[R];
    kernels::unrolled<R>([&](auto r) QK_INLINE_CALL {
        kernels::unrolled<M>([&](auto m) QK_INLINE_CALL { s[r][m] = _mm256_loadu_ps(sum + r * p.sum_stride + m * partial_sums); });
        in[r] = p.piece[first + r].codes, factor[r] = p.piece[first + r].factor, zero[r] = p.piece[first + r].zero;
    });
    const std::size_t next = p.next, step = 2 * p.step, x_stride = p.x_stride;
    const auto add = [&](auto pairs, std::size_t g) QK_INLINE_CALL {
        const auto load = [&](const auto* at) QK_INLINE_CALL {
            return pairs == 2 ? _mm512_loadu_si512(at) : _mm512_zextsi256_si512(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)));
        };
        const auto load_second = [&](const auto* at) QK_INLINE_CALL { return pairs == 2 ? _mm512_loadu_si512(at + 64) : none; };
        const auto in_lanes = [&](const float* of) QK_INLINE_CALL {
            constexpr std::size_t entries = pairs * 2 * Factors;
            __m512 v;
            if constexpr (entries == 8) v = _mm512_castps256_ps512(_mm256_loadu_ps(of));
            else if constexpr (entries == 4) v = _mm512_castps128_ps512(_mm_loadu_ps(of));
            else v = _mm512_castps128_ps512(_mm_castpd_ps(_mm_set_sd(two_floats(of))));
            return _mm512_permutexvar_ps(entry, v);
        };
        __m512i q0[M], q1[M], more[M];
        __m512 scale[M];
        kernels::unrolled<M>([&](auto m) QK_INLINE_CALL {
            const std::size_t lane = m * x_stride / 8 + g * 8;
            const __m512i q = _mm512_loadu_si512(x.q + m * x_stride + g * 64), more_q = load_second(x.q + m * x_stride + g * 64);
            q0[m] = in_nibbles ? _mm512_shuffle_i64x2(q, more_q, 0x44) : q;
            q1[m] = in_nibbles ? _mm512_shuffle_i64x2(q, more_q, 0xee) : more_q;
            scale[m] = in_register(_mm512_castsi512_ps(load(x.lane_scale + lane)));
            more[m] = adds_more ? load(x.lane_more + lane) : Zero ? load(x.lane_eight + lane) : none;
        });
        kernels::unrolled<R>([&](auto r) QK_INLINE_CALL {
            const std::byte* const at = in[r] + g * bytes;
            fetch(at + next);
            __m512i a, b, less = none;
            if constexpr (in_nibbles) {
                const __m512i two = load(at);
                a = _mm512_shuffle_epi8(table, _mm512_and_si512(two, nibble));
                b = _mm512_shuffle_epi8(table, _mm512_and_si512(_mm512_srli_epi16(two, 4), nibble));
            } else {
                a = _mm512_loadu_si512(at), b = load_second(at);
                if constexpr (pairs == 2) fetch(at + 64 + next);
                if constexpr (Kind == integer_kind::signed_bytes) a = _mm512_xor_si512(a, flip), b = _mm512_xor_si512(b, flip);
            }
            if constexpr (Zero) less = _mm512_sub_epi32(_mm512_cvttps_epi32(in_lanes(zero[r] + g * step)), lowest);
            const __m512 own = in_lanes(factor[r] + g * step);
            kernels::unrolled<M>([&](auto m) QK_INLINE_CALL {
                __m512i whole;
                if constexpr (in_nibbles) {
                    whole = _mm512_dpbusd_epi32(_mm512_dpbusd_epi32(adds_more ? more[m] : none, a, q0[m]), b, q1[m]);
                } else {
                    const __m512i c = _mm512_dpbusd_epi32(none, a, q0[m]), d = _mm512_dpbusd_epi32(none, b, q1[m]);
                    whole = _mm512_add_epi32(_mm512_permutex2var_epi32(c, even, d), _mm512_permutex2var_epi32(c, odd, d));
                    if constexpr (adds_more) whole = _mm512_add_epi32(whole, more[m]);
                }
                if constexpr (Zero) whole = _mm512_sub_epi32(whole, _mm512_mullo_epi32(less, more[m]));
                const __m512 number = _mm512_cvtepi32_ps(whole), by = _mm512_mul_ps(scale[m], own);
                s[r][m] = _mm256_fmadd_ps(_mm512_castps512_ps256(number), _mm512_castps512_ps256(by), s[r][m]);
                if constexpr (pairs == 2)
                    s[r][m] = _mm256_fmadd_ps(_mm512_extractf32x8_ps(number, 1), _mm512_extractf32x8_ps(by, 1), s[r][m]);
            });
        });
    };
    const std::size_t pairs = p.groups / 2;
    for (std::size_t g = 0; g + 2 <= pairs; g += 2) add(std::integral_constant<std::size_t, 2>(), g);
    if (pairs % 2 != 0) add(std::integral_constant<std::size_t, 1>(), pairs - 1);
    kernels::unrolled<R>([&](auto r) QK_INLINE_CALL {
        kernels::unrolled<M>([&](auto m) QK_INLINE_CALL { _mm256_storeu_ps(sum + r * p.sum_stride + m * partial_sums, s[r][m]); });
    });
}
/// Rows side by side: as many as the registers hold with what M vectors need.
template <std::size_t M>
inline constexpr std::size_t rows_of_integers = M == 4 ? 2 : rows_at_once;

#else

/// Adds R rows from row `first` of a piece on, for M vectors of x.
template <class Arch, std::size_t R, std::size_t M, integer_kind Kind, std::size_t Factors, bool Zero>
QK_INLINE void add_integers(const piece_of_rows& p, std::size_t first, const integer_input& x, const integer_codes& codes) noexcept {
    constexpr bool in_nibbles = Kind == integer_kind::nibbles || Kind == integer_kind::wide_nibbles;
    const __m256i nibble = _mm256_set1_epi8(15), ones = _mm256_set1_epi16(1), flip = _mm256_set1_epi8(-128),
                  lowest = _mm256_set1_epi32(codes.lowest), table = codes.table;
    const __m256i entry = in_nibbles
                              ? (Factors == 2 ? _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3) : _mm256_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1))
                              : (Factors == 2 ? _mm256_setr_epi32(0, 0, 2, 2, 1, 1, 3, 3) : _mm256_setr_epi32(0, 0, 1, 1, 0, 0, 1, 1));
    const auto in_lanes = [&](const float* of) QK_INLINE_CALL {
        if constexpr (Factors == 2) return _mm256_permutevar_ps(_mm256_broadcast_ps(reinterpret_cast<const __m128*>(of)), entry);
        else return _mm256_permutevar_ps(_mm256_castpd_ps(_mm256_set1_pd(two_floats(of))), entry);
    };
    const auto turned = [](__m256 sum) QK_INLINE_CALL {
        return in_nibbles ? sum : _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(sum), 0xd8));
    };
    float* const sum = p.sum + first * p.sum_stride;
    __m256 s[R][M];
    const std::byte* in[R];
    const float *factor[R], *zero[R];
    kernels::unrolled<R>([&](auto r) QK_INLINE_CALL {
        kernels::unrolled<M>([&](auto m) QK_INLINE_CALL { s[r][m] = turned(_mm256_loadu_ps(sum + r * p.sum_stride + m * partial_sums)); });
        in[r] = p.piece[first + r].codes, factor[r] = p.piece[first + r].factor, zero[r] = p.piece[first + r].zero;
    });
    const std::int8_t* const bytes = x.q;
    const float* const scales = x.lane_scale;
    const std::int32_t* const more = Zero ? x.lane_eight : x.lane_more;
    const std::size_t next = p.next, step = 2 * p.step, x_stride = p.x_stride;
    constexpr bool adds_more = !Zero && Kind != integer_kind::signed_bytes;
    const auto load = [](const auto* at) QK_INLINE_CALL { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)); };
    for (std::size_t g = 0, pairs = p.groups / 2; g < pairs; ++g) {
        __m256i q0[M], q1[M], add[M];
        __m256 scale[M];
        kernels::unrolled<M>([&](auto m) QK_INLINE_CALL {
            const std::size_t lane = m * x_stride / 8 + g * 8;
            q0[m] = load(bytes + m * x_stride + g * 64), q1[m] = load(bytes + m * x_stride + g * 64 + 32);
            scale[m] = _mm256_loadu_ps(scales + lane), add[m] = load(more + lane);
            if constexpr (R > 1) q0[m] = in_register(q0[m]), q1[m] = in_register(q1[m]), scale[m] = in_register(scale[m]);
            if constexpr (R > 1 && adds_more) add[m] = in_register(add[m]);
        });
        kernels::unrolled<R>([&](auto r) QK_INLINE_CALL {
            constexpr std::size_t bytes_of_pair = in_nibbles ? 32 : 64;
            const std::byte* const at = in[r] + g * bytes_of_pair;
            fetch(at + next);
            __m256i a = in_register(load(at)), b = a;  // the even and the odd elements, or the first and the second half
            if constexpr (in_nibbles) {
                b = _mm256_shuffle_epi8(table, _mm256_and_si256(_mm256_srli_epi16(a, 4), nibble));
                a = _mm256_shuffle_epi8(table, _mm256_and_si256(a, nibble));
            } else {
                b = in_register(load(at + 32));
                if constexpr (Kind == integer_kind::bytes) a = _mm256_xor_si256(a, flip), b = _mm256_xor_si256(b, flip);
            }
            const __m256 own = in_lanes(factor[r] + g * step);
            __m256i less = a;
            if constexpr (Zero) less = _mm256_sub_epi32(_mm256_cvttps_epi32(in_lanes(zero[r] + g * step)), lowest);
            kernels::unrolled<M>([&](auto m) QK_INLINE_CALL {
                __m256i whole;
                if constexpr (in_nibbles) {
                    const __m256i even = _mm256_maddubs_epi16(a, q0[m]), odd = _mm256_maddubs_epi16(b, q1[m]);
                    if constexpr (Kind == integer_kind::wide_nibbles)
                        whole = _mm256_add_epi32(_mm256_madd_epi16(even, ones), _mm256_madd_epi16(odd, ones));
                    else whole = _mm256_madd_epi16(_mm256_add_epi16(even, odd), ones);
                } else {
                    whole = sums_of_eight(sums_of_four(a, q0[m]), sums_of_four(b, q1[m]));
                }
                if constexpr (Zero) whole = _mm256_sub_epi32(whole, _mm256_mullo_epi32(less, add[m]));
                if constexpr (adds_more) whole = _mm256_add_epi32(whole, add[m]);
                s[r][m] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(whole), _mm256_mul_ps(scale[m], own), s[r][m]);
            });
        });
    }
    kernels::unrolled<R>([&](auto r) QK_INLINE_CALL {
        kernels::unrolled<M>([&](auto m) QK_INLINE_CALL { _mm256_storeu_ps(sum + r * p.sum_stride + m * partial_sums, turned(s[r][m])); });
    });
}
template <std::size_t M>
inline constexpr std::size_t rows_of_integers = M == 1 ? rows_at_once : 1;
#endif

/// Adds all rows.
template <class Arch, integer_kind Kind, std::size_t Factors, bool Zero>
QK_INLINE void add_integers(const piece_of_rows& p, const integer_input& x, const integer_codes& codes) noexcept {
    with_vectors<!Zero>(p, [&](auto m, const piece_of_rows& own, std::size_t first) QK_INLINE_CALL {
        constexpr std::size_t R = rows_of_integers<m>;
        for (std::size_t r = 0; r < p.rows; r += R)
            add_integers<Arch, R, m, Kind, Factors, Zero>(own, r, x.after(first * p.x_stride), codes);
    });
}

/// Returns what order_lanes and add_integers need to know of a format.
template <class Arch>
QK_INLINE integer_codes codes_of(const whole_elements& e, int width) noexcept {
    if (width == 8) {
        const std::int32_t with_sign = has_wide_integers ? -128 : 0;
        return {e.natural ? integer_kind::bytes : integer_kind::signed_bytes, _mm256_setzero_si256(),
                e.natural ? with_sign + 128 : with_sign};
    }
    return {e.highest - e.lowest > 64 ? integer_kind::wide_nibbles : integer_kind::nibbles,
            _mm256_broadcastsi128_si256(_mm_load_si128(reinterpret_cast<const __m128i*>(e.above))), e.lowest};
}
/// Adds pairs of blocks.
template <class Arch>
QK_APART void add_integers(const piece_of_rows& p, const integer_input& x, const integer_codes& codes) noexcept {
    const auto all = [&]<integer_kind Kind, std::size_t Factors, bool Zero>()
                         QK_INLINE_CALL { add_integers<Arch, Kind, Factors, Zero>(p, x, codes); };
    const auto of_kind = [&]<integer_kind Kind>() QK_INLINE_CALL {
        if (p.factors == 2) p.zeros ? all.template operator()<Kind, 2, true>() : all.template operator()<Kind, 2, false>();
        else p.zeros ? all.template operator()<Kind, 1, true>() : all.template operator()<Kind, 1, false>();
    };
    switch (codes.kind) {
        case integer_kind::nibbles: return of_kind.template operator()<integer_kind::nibbles>();
        case integer_kind::wide_nibbles: return of_kind.template operator()<integer_kind::wide_nibbles>();
        case integer_kind::signed_bytes: return of_kind.template operator()<integer_kind::signed_bytes>();
        case integer_kind::bytes: return of_kind.template operator()<integer_kind::bytes>();
    }
}

#endif

}  // namespace QK_ISA
}  // namespace qk::detail
