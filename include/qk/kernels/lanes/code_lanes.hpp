// SPDX-License-Identifier: Apache-2.0
// Moves codes of 8 and 16 bits between memory and lanes, and looks up values by codes.
#pragma once

#include <cstring>

#include "qk/inline.hpp"
#include "qk/kernels/lanes/simd.hpp"

namespace qk::kernels {

/// load_codes() loads as many bytes (or 16-bit words) as there are lanes, one into each; store_codes() stores the lowest byte (word) of
/// each lane.
template <class Arch, class Code>
vi<Arch> load_codes(const Code* p) noexcept {
    static_assert(sizeof(Code) <= 2);
#if defined(__AVX512F__)
    if constexpr (lanes<Arch> == 16 && sizeof(Code) == 1) return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    if constexpr (lanes<Arch> == 16 && sizeof(Code) == 2)
        return _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
#endif
#if defined(__AVX2__)
    if constexpr (lanes<Arch> == 8 && sizeof(Code) == 1) return _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
    if constexpr (lanes<Arch> == 8 && sizeof(Code) == 2) return _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
#endif
#if defined(__SSE2__)
    if constexpr (lanes<Arch> == 4) {
        const __m128i zero = _mm_setzero_si128();
        __m128i codes;
        if constexpr (sizeof(Code) == 1) {
            std::int32_t four;
            std::memcpy(&four, p, 4);
            codes = _mm_unpacklo_epi8(_mm_cvtsi32_si128(four), zero);
        } else {
            codes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
        }
        return _mm_unpacklo_epi16(codes, zero);
    }
#endif
    alignas(64) std::int32_t lane[lanes<Arch>];
    for (std::size_t i = 0; i < lanes<Arch>; ++i) lane[i] = p[i];
    return load<Arch>(lane);
}
/// Returns how many bits of a lane can index a lookup_table; 0: there is no lookup.
template <class Arch>
constexpr int lookup_bits() noexcept {
#if defined(__AVX512F__)
    if (lanes<Arch> == 16) return 5;
#endif
#if defined(__AVX2__)
    if (lanes<Arch> == 8) return 3;
#endif
    return 0;
}
/// A table of 2^lookup_bits() values in one vector or two. at() looks up the lowest lookup_bits() bits of each lane.
template <class Arch>
struct lookup_table {
    vf<Arch> first = vf<Arch>(0.0f), second = vf<Arch>(0.0f);

    QK_INLINE vf<Arch> at([[maybe_unused]] vi<Arch> index) const noexcept {
#if defined(__AVX512F__)
        if constexpr (lanes<Arch> == 16) return _mm512_permutex2var_ps(first.data, index.data, second.data);
#endif
#if defined(__AVX2__)
        if constexpr (lanes<Arch> == 8) return _mm256_permutevar8x32_ps(first.data, index.data);
#endif
        return first;
    }
};

#if defined(__AVX2__)
/// Returns the lowest bytes of eight lanes, in the lower half.
QK_INLINE __m128i lowest_bytes(__m256i v) noexcept {
    constexpr char none = -128;
    const __m256i bytes = _mm256_setr_epi8(0, 4, 8, 12, none, none, none, none, none, none, none, none, none, none, none, none, 0, 4, 8, 12,
                                           none, none, none, none, none, none, none, none, none, none, none, none);
    const __m256i low = _mm256_shuffle_epi8(v, bytes);
    return _mm_unpacklo_epi32(_mm256_castsi256_si128(low), _mm256_extracti128_si256(low, 1));
}
#endif
#if defined(__AVX2__)
/// Packs four vectors of eight lanes into bytes, each clamped to -128 .. 127. Runs of four lanes of a vector stay together; in_order()
/// sorts the runs.
template <class Arch>
QK_INLINE __m256i packed_bytes(const vi<Arch>* v) noexcept {
    return _mm256_packs_epi16(_mm256_packs_epi32(v[0].data, v[1].data), _mm256_packs_epi32(v[2].data, v[3].data));
}
/// packed_bytes() for lanes from 0 to 255.
template <class Arch>
QK_INLINE __m256i packed_codes(const vi<Arch>* v) noexcept {
    return _mm256_packus_epi16(_mm256_packs_epi32(v[0].data, v[1].data), _mm256_packs_epi32(v[2].data, v[3].data));
}
QK_INLINE __m256i in_order(__m256i packed) noexcept {
    return _mm256_permutevar8x32_epi32(packed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}
/// Returns a bit for each pair of lanes of four vectors, the first one's lowest: set where `a` is not above `b`. Both lanes of a pair must
/// be alike.
template <class Arch>
QK_INLINE std::uint16_t bits_of_pairs_of_four(const vi<Arch>* a, const vi<Arch>* b) noexcept {
    const auto above = [&](std::size_t k) QK_INLINE_CALL { return _mm256_cmpgt_epi32(a[k].data, b[k].data); };
    // For each pair one lane, of two vectors in turn; then packed to 16 bits and to 8.
    const __m256i first = _mm256_blend_epi32(above(0), above(1), 0xaa), second = _mm256_blend_epi32(above(2), above(3), 0xaa);
    const __m256i words = _mm256_packs_epi32(first, second);
    const __m128i bytes = _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
    const __m128i order = _mm_setr_epi8(0, 2, 8, 10, 1, 3, 9, 11, 4, 6, 12, 14, 5, 7, 13, 15);
    return static_cast<std::uint16_t>(~_mm_movemask_epi8(_mm_shuffle_epi8(bytes, order)));
}
/// Stores two vectors of sixteen bits a lane.
template <class Arch>
QK_INLINE void store_two(std::uint16_t* to, const vi<Arch>* v) noexcept {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm256_permute4x64_epi64(_mm256_packus_epi32(v[0].data, v[1].data), 0xd8));
}
#endif
template <class Arch, class Code>
void store_codes(Code* p, vi<Arch> v) noexcept {
    static_assert(sizeof(Code) <= 2);
#if defined(__AVX512F__)
    if constexpr (lanes<Arch> == 16 && sizeof(Code) == 1)
        return _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(v.data));
    if constexpr (lanes<Arch> == 16 && sizeof(Code) == 2)
        return _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(v.data));
#endif
#if defined(__AVX2__)
    if constexpr (lanes<Arch> == 8 && sizeof(Code) == 1) return _mm_storel_epi64(reinterpret_cast<__m128i*>(p), lowest_bytes(v.data));
    if constexpr (lanes<Arch> == 8 && sizeof(Code) == 2) {
        constexpr char none = -128;
        const __m256i words = _mm256_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, none, none, none, none, none, none, none, none, 0, 1, 4, 5, 8, 9,
                                               12, 13, none, none, none, none, none, none, none, none);
        const __m256i low = _mm256_shuffle_epi8(v.data, words);
        return _mm_storeu_si128(reinterpret_cast<__m128i*>(p),
                                _mm_unpacklo_epi64(_mm256_castsi256_si128(low), _mm256_extracti128_si256(low, 1)));
    }
#endif
#if defined(__SSE2__)
    if constexpr (lanes<Arch> == 4) {
        if constexpr (sizeof(Code) == 1) {
            const __m128i low = _mm_and_si128(v.data, _mm_set1_epi32(255)), words = _mm_packs_epi32(low, low);
            const std::int32_t four = _mm_cvtsi128_si32(_mm_packus_epi16(words, words));
            std::memcpy(p, &four, 4);
        } else {
            const __m128i low = _mm_srai_epi32(_mm_slli_epi32(v.data, 16), 16);  // as signed words, which packing does not clamp
            _mm_storel_epi64(reinterpret_cast<__m128i*>(p), _mm_packs_epi32(low, low));
        }
        return;
    }
#endif
    alignas(64) std::int32_t lane[lanes<Arch>];
    store<Arch>(lane, v);
    for (std::size_t i = 0; i < lanes<Arch>; ++i) p[i] = static_cast<Code>(lane[i]);
}

}  // namespace qk::kernels
