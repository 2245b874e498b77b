// SPDX-License-Identifier: Apache-2.0
// Decodes ggml's blocks as ggml dequantizes them: those of the usual types in registers (AVX2, AVX-512), all others by qk/layout/ggml.hpp.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "qk/formats/format.hpp"
#include "qk/inline.hpp"
#include "qk/isa.hpp"
#include "qk/lanes/code_lanes.hpp"
#include "qk/layout/ggml.hpp"
#include "qk/memory/values.hpp"

namespace qk::detail {
inline namespace QK_ISA {

inline constexpr std::size_t largest_ggml_block = 256;

#if QK_HAS(BYTE_SHUFFLES) && QK_HAS(FUSED_SUMS) && QK_HAS(HALF_CONVERSIONS)

inline constexpr bool has_ggml_groups = true;

/// The numbers of sixteen codes: as floats, and the upper two bytes of each, below which all bits are 0.
struct short_numbers {
    alignas(64) float value[16];
    alignas(16) std::uint8_t upper[16], lower[16];
};
template <class Number>
constexpr short_numbers short_numbers_of(const Number& number) {
    short_numbers t{};
    for (unsigned i = 0; i < 16; ++i) {
        t.value[i] = static_cast<float>(number(i));
        const auto bits = std::bit_cast<std::uint32_t>(t.value[i]);
        t.upper[i] = static_cast<std::uint8_t>(bits >> 24), t.lower[i] = static_cast<std::uint8_t>(bits >> 16);
    }
    return t;
}
inline constexpr short_numbers counted_numbers = short_numbers_of([](unsigned i) { return static_cast<int>(i); }),
                               centred_numbers = short_numbers_of([](unsigned i) { return static_cast<int>(i) - 8; }),
                               iq4_numbers = short_numbers_of([](unsigned i) { return int{layout_parts::iq4_values[i]}; });

/// Calls put(k, numbers) for the numbers from k on of 32 codes below 16, one a byte.
template <class Arch, class Put>
QK_INLINE void each_of_short(const short_numbers& t, __m256i codes, const Put& put) noexcept {
#if QK_HAS(SIXTEEN_LANES)
    if constexpr (kernels::lanes<Arch> == 16) {
        const __m512 numbers = _mm512_load_ps(t.value);
        put(std::size_t{0}, kernels::vf<Arch>(_mm512_permutexvar_ps(_mm512_cvtepu8_epi32(_mm256_castsi256_si128(codes)), numbers)));
        put(std::size_t{16}, kernels::vf<Arch>(_mm512_permutexvar_ps(_mm512_cvtepu8_epi32(_mm256_extracti128_si256(codes, 1)), numbers)));
        return;
    }
#endif
    if constexpr (kernels::lanes<Arch> == 8) {
        const auto twice = [](const std::uint8_t* p)
                               QK_INLINE_CALL { return _mm256_broadcastsi128_si256(_mm_load_si128(reinterpret_cast<const __m128i*>(p))); };
        const __m256i c = kernels::in_eights(codes), a = _mm256_shuffle_epi8(twice(t.lower), c), b = _mm256_shuffle_epi8(twice(t.upper), c),
                      first = _mm256_unpacklo_epi8(a, b), second = _mm256_unpackhi_epi8(a, b), none = _mm256_setzero_si256();
        const auto values = [](__m256i v) QK_INLINE_CALL { return kernels::vf<Arch>(_mm256_castsi256_ps(v)); };
        put(std::size_t{0}, values(_mm256_unpacklo_epi16(none, first))), put(std::size_t{8}, values(_mm256_unpackhi_epi16(none, first)));
        put(std::size_t{16}, values(_mm256_unpacklo_epi16(none, second))),
            put(std::size_t{24}, values(_mm256_unpackhi_epi16(none, second)));
    }
}
/// The same for 32 whole numbers of eight bits.
template <class Arch, class Put>
QK_INLINE void each_of_bytes(__m256i bytes, const Put& put) noexcept {
    const __m128i half[2] = {_mm256_castsi256_si128(bytes), _mm256_extracti128_si256(bytes, 1)};
#if QK_HAS(SIXTEEN_LANES)
    if constexpr (kernels::lanes<Arch> == 16) {
        for (std::size_t h = 0; h < 2; ++h) put(16 * h, kernels::vf<Arch>(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(half[h]))));
        return;
    }
#endif
    if constexpr (kernels::lanes<Arch> == 8) {
        for (std::size_t h = 0; h < 2; ++h) {
            put(16 * h, kernels::vf<Arch>(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(half[h]))));
            put(16 * h + 8, kernels::vf<Arch>(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(half[h], 8)))));
        }
    }
}

/// Returns the numbers of as many whole numbers of eight bits as a vector has lanes.
template <class Arch>
QK_INLINE kernels::vf<Arch> numbers_of_bytes(const std::byte* p) noexcept {
#if QK_HAS(SIXTEEN_LANES)
    if constexpr (kernels::lanes<Arch> == 16)
        return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
#endif
    if constexpr (kernels::lanes<Arch> == 8)
        return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
    return kernels::vf<Arch>(0.0f);
}

/// How a block of a type is read: in steps of `at_once` groups of 32 values, each of which has `factors` factors of its own.
template <ggml_type Type>
struct ggml_groups {
    using enum ggml_type;
    static constexpr std::size_t values = facts_of(Type).values, bytes = facts_of(Type).bytes, groups = values / 32;
    static constexpr std::size_t factors = Type == q6_k ? 2 : 1, at_once = Type == q6_k ? 4 : Type == q4_k ? 2 : 1;
    static constexpr bool minima = Type == q4_k;

    /// The factors of a block's values, and what is added behind them: minima, with the other sign.
    struct scales {
        alignas(32) float factor[values == 256 ? 8 * factors : 1], less[minima ? 8 : 1];
    };

    static QK_INLINE __m256 half_at(const std::byte* p) noexcept {
        std::uint16_t h;
        std::memcpy(&h, p, sizeof h);
        return _mm256_broadcastss_ps(_mm_cvtph_ps(_mm_cvtsi32_si128(h)));
    }
    static QK_INLINE void read(const std::byte* block, scales& s) noexcept {
        if constexpr (Type == q4_k) {  // k4_scale, all at once
            std::uint32_t word[3];
            std::memcpy(word, block + 4, sizeof word);
            constexpr std::uint32_t six = 0x3f3f3f3f, four = 0x0f0f0f0f, two = 0x03030303;
            const auto code = [](std::uint32_t c) QK_INLINE_CALL { return static_cast<std::int32_t>(c); };
            const __m128i all = _mm_setr_epi32(code(word[0] & six), code((word[2] & four) | (word[0] >> 6 & two) << 4), code(word[1] & six),
                                               code((word[2] >> 4 & four) | (word[1] >> 6 & two) << 4));
            const auto put = [](float* to, __m128i c, __m256 by)
                                 QK_INLINE_CALL { _mm256_store_ps(to, _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(c)), by)); };
            put(s.factor, all,
                half_at(block)),  // The sign is turned here, so that a minimum of 0 is taken from a weight of -0 as ggml takes it.
                put(s.less, _mm_srli_si128(all, 8), _mm256_xor_ps(half_at(block + 2), _mm256_set1_ps(-0.0f)));
        } else if constexpr (Type == q6_k) {
            const __m256 d = half_at(block + 208);
            const __m128i all = _mm_loadu_si128(reinterpret_cast<const __m128i*>(block + 192));
            _mm256_store_ps(s.factor, _mm256_mul_ps(d, _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(all))));
            _mm256_store_ps(s.factor + 8, _mm256_mul_ps(d, _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(all, 8)))));
        } else if constexpr (Type == iq4_xs) {  // iq4_xs_scale, all at once
            std::uint16_t high;
            std::int32_t low;
            std::memcpy(&high, block + 2, sizeof high), std::memcpy(&low, block + 4, sizeof low);
            const __m256i place = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
            const __m256i lower = _mm256_and_si256(_mm256_srlv_epi32(_mm256_set1_epi32(low), _mm256_slli_epi32(place, 2)),
                                                   _mm256_set1_epi32(15)),
                          upper = _mm256_and_si256(_mm256_srlv_epi32(_mm256_set1_epi32(high), _mm256_slli_epi32(place, 1)),
                                                   _mm256_set1_epi32(3));
            const __m256i code = _mm256_sub_epi32(_mm256_or_si256(lower, _mm256_slli_epi32(upper, 4)), _mm256_set1_epi32(32));
            _mm256_store_ps(s.factor, _mm256_mul_ps(half_at(block), _mm256_cvtepi32_ps(code)));
        } else {
            _mm_store_ss(s.factor, _mm256_castps256_ps128(half_at(block)));
        }
    }
    /// Returns the codes of group `I` of step `step`, a byte each.
    template <std::size_t I>
    static QK_INLINE __m256i codes(const std::byte* block, std::size_t step) noexcept {
        const auto load = [](const std::byte* p) QK_INLINE_CALL { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); };
        const __m256i nibble = _mm256_set1_epi8(15);
        if constexpr (Type == q4_k) {
            const __m256i two = load(block + 16 + 32 * step);
            return _mm256_and_si256(I == 0 ? two : _mm256_srli_epi16(two, 4), nibble);
        } else if constexpr (Type == q6_k) {
            const __m256i low = load(block + 64 * step + 32 * (I % 2)), high = load(block + 128 + 32 * step);
            const __m256i four = _mm256_and_si256(I < 2 ? low : _mm256_srli_epi16(low, 4), nibble);
            const __m256i moved = I == 0   ? _mm256_slli_epi16(high, 4)
                                  : I == 1 ? _mm256_slli_epi16(high, 2)
                                  : I == 2 ? high
                                           : _mm256_srli_epi16(high, 2);
            return _mm256_or_si256(four, _mm256_and_si256(moved, _mm256_set1_epi8(0x30)));
        } else if constexpr (Type == q8_0) {
            return load(block + 2);
        } else {  // a nibble of sixteen bytes for each half
            const std::byte* const at = block + (Type == iq4_xs ? 8 + 16 * step : 2);
            const __m128i two = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
            return _mm256_and_si256(_mm256_inserti128_si256(_mm256_castsi128_si256(two), _mm_srli_epi16(two, 4), 1), nibble);
        }
    }
    /// Calls put(k, numbers) for the numbers of group `i` of step `step`.
    template <class Arch, std::size_t I, class Put>
    static QK_INLINE void group(const std::byte* block, std::size_t step, const Put& put) noexcept {
        if constexpr (Type == q6_k) {
            each_of_bytes<Arch>(_mm256_sub_epi8(codes<I>(block, step), _mm256_set1_epi8(32)), put);
        } else if constexpr (Type == q8_0) {
            kernels::unrolled<32 / kernels::lanes<Arch>>([&](auto v) QK_INLINE_CALL {
                constexpr std::size_t k = v * kernels::lanes<Arch>;
                put(std::size_t{k}, numbers_of_bytes<Arch>(block + 2 + k));
            });
        } else {
            each_of_short<Arch>(Type == q4_k ? counted_numbers : Type == q4_0 ? centred_numbers : iq4_numbers, codes<I>(block, step), put);
        }
    }
    /// Calls put(k, values) for the 32 values of a group.
    template <class Arch, std::size_t I, class Put>
    static QK_INLINE void weights(const std::byte* block, std::size_t step, const scales& s, const Put& put) noexcept {
        const std::size_t g = step * at_once + I;
        group<Arch, I>(block, step, [&](std::size_t k, kernels::vf<Arch> number) QK_INLINE_CALL {
            const kernels::vf<Arch> by(s.factor[g * factors + (factors == 2 ? k / 16 : 0)]);
            // Products are exact where something is added, so that fusing them changes no bit.
            if constexpr (minima) put(k, kernels::fma(number, by, kernels::vf<Arch>(s.less[g])));
            else put(k, number * by);
        });
    }
};

/// Returns call.operator()<type>() for the types that are decoded in registers, and false for the others.
template <class Call>
QK_INLINE bool with_ggml_groups(ggml_type type, const Call& call) noexcept {
    using enum ggml_type;
    switch (type) {
        case q4_0: call.template operator()<q4_0>(); return true;
        case q4_k: call.template operator()<q4_k>(); return true;
        case q6_k: call.template operator()<q6_k>(); return true;
        case q8_0: call.template operator()<q8_0>(); return true;
        case iq4_nl: call.template operator()<iq4_nl>(); return true;
        case iq4_xs: call.template operator()<iq4_xs>(); return true;
        default: return false;
    }
}

/// Writes the values of `blocks` blocks.
template <class Arch, ggml_type Type>
QK_APART void decode_ggml_groups(const std::byte* from, std::size_t blocks, float* to) noexcept {
    using how = ggml_groups<Type>;
    typename how::scales s;
    for (std::size_t b = 0; b < blocks; ++b, from += how::bytes) {
        how::read(from, s);
        for (std::size_t step = 0; step < how::groups / how::at_once; ++step) {
            kernels::unrolled<how::at_once>([&](auto i) QK_INLINE_CALL {
                how::template weights<Arch, i>(from, step, s,
                                               [&](std::size_t k, kernels::vf<Arch> v) QK_INLINE_CALL { kernels::store<Arch>(to + k, v); });
                to += 32;
            });
        }
    }
}

#else

inline constexpr bool has_ggml_groups = false;

#endif

/// Writes the values of `blocks` neighbouring blocks.
template <class Arch>
void decode_ggml_run(ggml_type type, const std::byte* from, std::size_t blocks, float* to) noexcept {
#if QK_HAS(BYTE_SHUFFLES) && QK_HAS(FUSED_SUMS) && QK_HAS(HALF_CONVERSIONS)
    if constexpr (kernels::lanes<Arch> >= 8) {
        if (with_ggml_groups(type, [&]<ggml_type Type>() { decode_ggml_groups<Arch, Type>(from, blocks, to); })) return;
    }
#endif
    const ggml_facts f = facts_of(type);
    for (std::size_t b = 0; b < blocks; ++b)
        decode_ggml(type, reinterpret_cast<const std::uint8_t*>(from) + b * f.bytes, to + b * f.values);
}

/// Writes n values of a row of blocks from value k on.
template <class Arch>
void decode_ggml_row(ggml_type type, const std::byte* row, std::size_t k, std::size_t n, float* to) noexcept {
    const ggml_facts f = facts_of(type);
    for (std::size_t end = k + n; k < end;) {
        const std::size_t within = k % f.values;
        const std::byte* const block = row + k / f.values * f.bytes;
        std::size_t some = (end - k) / f.values * f.values;
        if (within == 0 && some != 0) {
            decode_ggml_run<Arch>(type, block, some / f.values, to);
        } else {
            alignas(64) float all[largest_ggml_block];
            some = std::min<std::size_t>(end - k, f.values - within);
            decode_ggml_run<Arch>(type, block, 1, all);
            std::memcpy(to, all + within, some * sizeof(float));
        }
        k += some, to += some;
    }
}

/// Decodes a tensor whose blocks lie in rows.
template <class Arch>
void decode_ggml_blocks(const ggml_blocks& f, std::span<const std::byte> blocks, values_out y, along_axis a) noexcept {
    const std::size_t rows = a.outer * a.inner, bytes = divide_up(a.length, block_size(f)) * bytes_of_block(f);
    constexpr std::size_t piece = 8 * largest_ggml_block;
    for (std::size_t r = 0; r < rows; ++r) {
        const std::byte* const row = blocks.data() + r * bytes;
        if (y.floats() != nullptr) {
            decode_ggml_row<Arch>(f.type, row, 0, a.length, y.floats() + r * a.length);
            continue;
        }
        for (std::size_t k = 0; k < a.length; k += piece) {
            alignas(64) float value[piece];
            const std::size_t n = std::min(piece, a.length - k);
            decode_ggml_row<Arch>(f.type, row, k, n, value);
            y.template copy<Arch>(value, r * a.length + k, n);
        }
    }
}

}  // namespace QK_ISA
}  // namespace qk::detail
