// SPDX-License-Identifier: Apache-2.0
// Moves codes of 8 and 16 bits, and numbers in float16 and bfloat16, between memory and lanes, and looks up values by codes.
#pragma once

#include <cstring>
#include <type_traits>

#include "qk/inline.hpp"
#include "qk/isa.hpp"
#include "qk/lanes/simd.hpp"
#include "qk/storage.hpp"

namespace qk::kernels {
inline namespace QK_ISA {

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
    if constexpr (lanes<Arch> == 1) {
        return vi<Arch>(std::int32_t{*p});
    } else {
        typename detail::native_ints<Arch, Code, lanes<Arch> * sizeof(Code)>::type codes;
        std::memcpy(&codes, p, sizeof codes);
        return vi<Arch>::from_bits(__builtin_convertvector(codes, typename vi<Arch>::bits));
    }
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

/// Returns the largest Size that looked_up() takes, 0 where there is none.
template <class Arch>
constexpr int most_looked_up() noexcept {
    return lookup_bits<Arch>() == 0 ? 0 : 32;
}
/// Returns, in each lane, the entry that the lowest bits of its index name: one of Size (8, 16 or 32) at p, of which there are 16 at least.
template <int Size, class Arch>
QK_INLINE vi<Arch> looked_up([[maybe_unused]] const std::int32_t* p, vi<Arch> index) noexcept {
    static_assert(Size == 8 || Size == 16 || Size == 32);
#if defined(__AVX512F__)
    if constexpr (lanes<Arch> == 16 && Size <= 16) return _mm512_permutexvar_epi32(index.data, load<Arch>(p).data);
    if constexpr (lanes<Arch> == 16 && Size == 32)
        return _mm512_permutex2var_epi32(load<Arch>(p).data, index.data, load<Arch>(p + 16).data);
#endif
#if defined(__AVX2__)
    if constexpr (lanes<Arch> == 8 && Size == 8) return _mm256_permutevar8x32_epi32(load<Arch>(p).data, index.data);
    if constexpr (lanes<Arch> == 8 && Size > 8) {
        const auto half = [&](const std::int32_t* from)
                              QK_INLINE_CALL { return as_float<Arch>(looked_up<Size / 2, Arch>(from, index)).data; };
        const auto upper = as_float<Arch>(index << (Size == 16 ? 28 : 27)).data;  // by its sign
        return as_int<Arch>(vf<Arch>(_mm256_blendv_ps(half(p), half(p + Size / 2), upper)));
    }
#endif
    return index;
}

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
/// Puts bytes in the order in which interleaving them twice, within both halves of a register, leaves eight neighbours in each register.
QK_INLINE __m256i in_eights(__m256i bytes) noexcept {
    return _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7));
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
    if constexpr (lanes<Arch> == 1) {
        *p = static_cast<Code>(v.data);
    } else {
        using narrow = typename detail::native_ints<Arch, Code, lanes<Arch> * sizeof(Code)>::type;
        const narrow codes = __builtin_convertvector(vi<Arch>::as_bits(v), narrow);
        std::memcpy(p, &codes, sizeof codes);
    }
}

// widen() and narrow() of storage.hpp, a vector at a time. They give the same bits, whatever the floating-point environment, since integer
// or exact operations do it all.

/// widened() makes float32 of the sixteen bits in each lane, narrowed() the reverse.
template <class Arch>
QK_INLINE vf<Arch> widened(vi<Arch> code, bfloat16) noexcept {
    return as_float<Arch>(code << 16);
}
template <class Arch>
QK_INLINE vf<Arch> widened(vi<Arch> code, float16) noexcept {
    using V = vi<Arch>;
    const V magnitude = code & V(0x7fff), more(112 << 23), normal = (magnitude << 13) + more;
    // A subnormal is an integer times 2^-24, which float32 holds as a normal number.
    const V subnormal = as_int<Arch>(to_float(magnitude) * vf<Arch>(0x1p-24f));
    const V large = select(magnitude >= V(0x7c00), normal + more, normal);
    return as_float<Arch>(select(magnitude < V(0x400), subnormal, large) | ((code & V(0x8000)) << 16));
}
template <class Arch>
QK_INLINE vi<Arch> narrowed(vf<Arch> v, bfloat16) noexcept {
    using V = vi<Arch>;
    const V u = as_int<Arch>(v), a = u & V(0x7fffffff);
    const V rounded_off = (a + V(0x7fff) + ((a >> 16) & V(1))) >> 16;
    return select(a > V(0x7f800000), (a >> 16) | V(0x40), rounded_off) | ((u >> 16) & V(0x8000));
}
template <class Arch>
QK_INLINE vi<Arch> narrowed(vf<Arch> v, float16) noexcept {
    using V = vi<Arch>;
    const V u = as_int<Arch>(v), a = u & V(0x7fffffff), one(1);
    const V t = a - V(112 << 23), normal = (t + V(0xfff) + ((t >> 13) & one)) >> 13;
    // Below 2^-14: counted in steps of 2^-24, which is exact, as whole and fraction are.
    const vf<Arch> steps = as_float<Arch>(min(a, V(0x38800000))) * vf<Arch>(0x1p24f);
    const V whole = to_int(steps), fraction = as_int<Arch>(steps - to_float(whole)), half = as_int<Arch>(vf<Arch>(0.5f));
    const V subnormal = whole + select(fraction + (whole & one) > half, one, V(0));
    V h = select(a >= V(0x38800000), normal, subnormal);
    h = select(a >= V(0x47800000), V(0x7c00), h);
    h = select(a > V(0x7f800000), V(0x7e00) | ((a >> 13) & V(0x3ff)), h);
    return h | ((u >> 16) & V(0x8000));
}

/// Is true when the processor converts vectors of float32 to float16 and back, whatever the floating-point environment.
template <class Arch>
constexpr bool converts_halves() noexcept {
#if defined(__AVX512F__)
    if (lanes<Arch> == 16) return true;
#endif
#if defined(__AVX2__) && defined(__F16C__)
    if (lanes<Arch> == 8) return true;
#endif
    return false;
}
/// Loads a vector of float16 as float32, where converts_halves(). The processor makes signalling NaNs quiet.
template <class Arch>
QK_INLINE vf<Arch> load_halves([[maybe_unused]] const std::uint16_t* p) noexcept {
#if defined(__AVX512F__)
    if constexpr (lanes<Arch> == 16) return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
#endif
#if defined(__AVX2__) && defined(__F16C__)
    if constexpr (lanes<Arch> == 8) return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
#endif
    return vf<Arch>(0.0f);
}
/// Stores a vector as float16, where converts_halves(): the bits of narrowed().
template <class Arch>
QK_INLINE void store_halves([[maybe_unused]] std::uint16_t* p, [[maybe_unused]] vf<Arch> v) noexcept {
#if defined(__AVX512F__)
    if constexpr (lanes<Arch> == 16)
        return _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtps_ph(v.data, _MM_FROUND_TO_NEAREST_INT));
#endif
#if defined(__AVX2__) && defined(__F16C__)
    if constexpr (lanes<Arch> == 8)
        return _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(v.data, _MM_FROUND_TO_NEAREST_INT));
#endif
}

/// Loads a vector of float16 or bfloat16 as float32, NaNs with all their bits.
template <class Arch, class Half>
QK_INLINE vf<Arch> load_widened(const Half* from) noexcept {
    const auto* p = reinterpret_cast<const std::uint16_t*>(from);
    if constexpr (converts_halves<Arch>() && std::is_same_v<Half, float16>) {
        const vf<Arch> v = load_halves<Arch>(p);
        const mask<Arch> nan = (as_int<Arch>(v) & vi<Arch>(0x7fffffff)) > vi<Arch>(0x7f800000);
        if (__builtin_expect(!any(nan), 1)) return v;
    }
    return widened<Arch>(load_codes<Arch>(p), Half());
}
/// Stores a vector as float16 or bfloat16.
template <class Arch, class Half>
QK_INLINE void store_narrowed(Half* to, vf<Arch> v) noexcept {
    auto* p = reinterpret_cast<std::uint16_t*>(to);
    if constexpr (converts_halves<Arch>() && std::is_same_v<Half, float16>) store_halves<Arch>(p, v);
    else store_codes<Arch>(p, narrowed<Arch>(v, Half()));
}

template <class Arch, class Half>
void widen_all(const Half* from, std::size_t n, float* to) noexcept {
    std::size_t i = 0;
#pragma GCC unroll 4
    for (; i + lanes<Arch> <= n; i += lanes<Arch>) store<Arch>(to + i, load_widened<Arch>(from + i));
    for (; i < n; ++i) to[i] = widen(from[i]);
}
template <class Arch, class Half>
void narrow_all(const float* from, std::size_t n, Half* to) noexcept {
    std::size_t i = 0;
    for (; i + lanes<Arch> <= n; i += lanes<Arch>) store_narrowed<Arch>(to + i, load<Arch>(from + i));
    for (; i < n; ++i) to[i] = narrow<Half>(from[i]);
}

}  // namespace QK_ISA
}  // namespace qk::kernels
