// SPDX-License-Identifier: Apache-2.0
// What the kernels do with vectors beyond their operators (vectors.hpp): loads and stores of some lanes, stores past the caches, moves
// between lanes, masks as bits, and how the processor rounds.
#pragma once

#include <bit>
#include <type_traits>
#include <utility>

#include "qk/inline.hpp"
#include "qk/isa.hpp"
#include "qk/lanes/vectors.hpp"

namespace qk::kernels {
inline namespace QK_ISA {

template <class Arch>
vi<Arch> as_int(vf<Arch> v) noexcept {
    return vi<Arch>(__builtin_bit_cast(typename vi<Arch>::register_type, v.data));
}
template <class Arch>
vi<Arch> as_int(vu<Arch> v) noexcept {
    return vi<Arch>(__builtin_bit_cast(typename vi<Arch>::register_type, v.data));
}
template <class Arch>
vu<Arch> as_unsigned(vi<Arch> v) noexcept {
    return vu<Arch>(__builtin_bit_cast(typename vu<Arch>::register_type, v.data));
}
template <class Arch>
vf<Arch> as_float(vi<Arch> v) noexcept {
    return vf<Arch>(__builtin_bit_cast(typename vf<Arch>::register_type, v.data));
}

template <class Arch>
vf<Arch> load(const float* p) noexcept {
    return vf<Arch>::load_unaligned(p);
}
template <class Arch>
vi<Arch> load(const std::int32_t* p) noexcept {
    return vi<Arch>::load_unaligned(p);
}
template <class Arch>
void store(float* p, vf<Arch> v) noexcept {
    v.store_unaligned(p);
}
/// Stores v past the caches, to an address aligned to the vector.
template <class Arch>
void stream(float* p, vf<Arch> v) noexcept {
#if defined(__AVX512F__)
    if constexpr (sizeof(v) == 64) return _mm512_stream_ps(p, v.data);
#endif
#if defined(__AVX__)
    if constexpr (sizeof(v) == 32) return _mm256_stream_ps(p, v.data);
#endif
#if defined(__SSE2__)
    if constexpr (sizeof(v) == 16) return _mm_stream_ps(p, v.data);
#endif
    v.store_unaligned(p);
}
/// Makes streamed data visible before the stores that follow.
template <class Arch>
void end_streaming() noexcept {
#if defined(__SSE2__)
    _mm_sfence();
#endif
}
template <class Arch>
void store(std::int32_t* p, vi<Arch> v) noexcept {
    v.store_unaligned(p);
}

#if defined(__AVX2__)
/// Returns all ones in the first `count` of eight lanes.
QK_INLINE __m256i first_lanes(std::size_t count) noexcept {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
#endif
/// Loads `count` neighbouring floats into the first lanes and touches no other memory. The other lanes are 0.
template <class Arch>
QK_INLINE vf<Arch> load_first(const float* p, std::size_t count) noexcept {
#if defined(__AVX512F__)
    if constexpr (lanes<Arch> == 16) return _mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << count) - 1), p);
#endif
#if defined(__AVX2__)
    if constexpr (lanes<Arch> == 8) return _mm256_maskload_ps(p, first_lanes(count));
#endif
    alignas(64) float lane[lanes<Arch>] = {};
    for (std::size_t i = 0; i < count; ++i) lane[i] = p[i];
    return load<Arch>(lane);
}
template <class Arch>
QK_INLINE void store_first(float* p, std::size_t count, vf<Arch> v) noexcept {
#if defined(__AVX512F__)
    if constexpr (lanes<Arch> == 16) return _mm512_mask_storeu_ps(p, static_cast<__mmask16>((1u << count) - 1), v.data);
#endif
#if defined(__AVX2__)
    if constexpr (lanes<Arch> == 8) return _mm256_maskstore_ps(p, first_lanes(count), v.data);
#endif
    alignas(64) float lane[lanes<Arch>];
    store<Arch>(lane, v);
    for (std::size_t i = 0; i < count; ++i) p[i] = lane[i];
}

/// Loads `count` floats that lie `stride` apart; the other lanes are 0.
template <class Arch>
vf<Arch> load_some(const float* p, std::size_t stride, std::size_t count) noexcept {
    if (stride == 1) return load_first<Arch>(p, count);
    alignas(64) float lane[lanes<Arch>] = {};
    for (std::size_t i = 0; i < count; ++i) lane[i] = p[i * stride];
    return load<Arch>(lane);
}
template <class Arch>
void store_some(float* p, std::size_t stride, std::size_t count, vf<Arch> v) noexcept {
    if (stride == 1) return store_first<Arch>(p, count, v);
    alignas(64) float lane[lanes<Arch>];
    store<Arch>(lane, v);
    for (std::size_t i = 0; i < count; ++i) p[i * stride] = lane[i];
}

/// {0, 1, 2, ...}
template <class Arch>
vi<Arch> iota() noexcept {
    alignas(64) std::int32_t lane[lanes<Arch>];
    for (std::size_t i = 0; i < lanes<Arch>; ++i) lane[i] = static_cast<std::int32_t>(i);
    return load<Arch>(lane);
}

/// Returns the lanes at which maxima_of_halves has the two blocks of vector i of 16 lanes: i / 4 * 8 + i % 4 in the lower half, four more
/// in the upper one.
template <class Arch>
QK_INLINE vi<Arch> lanes_of_halves(std::size_t i) noexcept {
    const auto at = static_cast<std::int32_t>(i / 4 * 8 + i % 4);
    return vi<Arch>(at) + select(iota<Arch>() < vi<Arch>(static_cast<std::int32_t>(lanes<Arch> / 2)), vi<Arch>(0), vi<Arch>(4));
}
/// Returns in each lane the lane of v that `from` names.
template <class Arch>
QK_INLINE vf<Arch> spread_halves(vf<Arch> v, vi<Arch> from) noexcept {
#if defined(__AVX512F__)
    if constexpr (sizeof(v) == 64) return _mm512_permutexvar_ps(from.data, v.data);
#endif
    alignas(64) float lane[lanes<Arch>], picked[lanes<Arch>];
    alignas(64) std::int32_t index[lanes<Arch>];
    store<Arch>(lane, v);
    store<Arch>(index, from);
    for (std::size_t k = 0; k < lanes<Arch>; ++k) picked[k] = lane[index[k]];
    return load<Arch>(picked);
}

/// Returns one bit for each lane, the first lane's lowest.
template <class Arch>
QK_INLINE std::uint32_t bits_of(mask<Arch> m) noexcept {
#if defined(__AVX512F__)
    if constexpr (lanes<Arch> == 16) return static_cast<std::uint32_t>(static_cast<__mmask16>(m.data));
#endif
#if defined(__AVX2__)
    if constexpr (lanes<Arch> == 8) return static_cast<std::uint32_t>(_mm256_movemask_ps(__builtin_bit_cast(__m256, m.data)));
#endif
    alignas(64) std::int32_t lane[lanes<Arch>];
    store<Arch>(lane, select(m, vi<Arch>(1), vi<Arch>(0)));
    std::uint32_t bits = 0;
    for (std::size_t k = 0; k < lanes<Arch>; ++k) bits |= static_cast<std::uint32_t>(lane[k]) << k;
    return bits;
}

/// Returns the mask for which bits_of() gives `bits`.
template <class Arch>
QK_INLINE mask<Arch> lanes_set(std::uint32_t bits) noexcept {
#if defined(__AVX512F__)
    if constexpr (lanes<Arch> == 16) return mask<Arch>(static_cast<__mmask16>(bits));
#endif
    return (vi<Arch>(static_cast<std::int32_t>(bits)) & (vi<Arch>(1) << iota<Arch>())) != vi<Arch>(0);
}

/// Returns one bit for each pair of lanes, the first pair's lowest, of a mask that is the same in both lanes of a pair.
template <class Arch>
std::uint32_t bits_of_pairs(mask<Arch> m) noexcept {
    const std::uint32_t lane = bits_of<Arch>(m);
#if defined(__BMI2__)
    return _pext_u32(lane, 0x5555u);
#else
    std::uint32_t bits = 0;
    for (std::size_t k = 0; k < lanes<Arch>; k += 2) bits |= (lane >> k & 1u) << k / 2;
    return bits;
#endif
}

namespace detail {

template <class Arch, class Int, std::size_t Bytes = sizeof(vi<Arch>)>
struct native_ints {
    typedef Int type __attribute__((vector_size(Bytes)));
};

/// Returns the lanes that Pick names for each place: those of u count from 0, those of v follow them.
template <class Arch, class Pick, std::size_t... I>
QK_INLINE vi<Arch> pick(vi<Arch> u, vi<Arch> v, std::index_sequence<I...>) noexcept {
    using N = typename native_ints<Arch, typename Pick::lane>::type;
    const N a = __builtin_bit_cast(N, u.data), b = __builtin_bit_cast(N, v.data);
    const N r = __builtin_shufflevector(a, b, Pick()(static_cast<int>(I))...);
    return vi<Arch>(__builtin_bit_cast(typename vi<Arch>::register_type, r));
}

template <class Arch, class Pick>
QK_INLINE vi<Arch> pick(vi<Arch> u, vi<Arch> v) noexcept {
    return pick<Arch, Pick>(u, v, std::make_index_sequence<sizeof(vi<Arch>) / sizeof(typename Pick::lane)>());
}

/// Picks the lane that lies `Far` from each, a power of two, in its group of twice as many.
template <std::size_t Far>
struct across {
    using lane = std::int32_t;
    constexpr int operator()(int i) const { return i ^ static_cast<int>(Far); }
};

/// Picks the lane at which maxima_of_halves has block i.
struct in_blocks {
    using lane = std::int32_t;
    constexpr int operator()(int i) const { return i / 8 * 8 + i % 2 * 4 + i / 2 % 4; }
};

}  // namespace detail

/// Puts the lanes of maxima_of_halves in the order of the blocks.
template <class Arch>
QK_INLINE vi<Arch> in_block_order(vi<Arch> v) noexcept {
    return detail::pick<Arch, detail::in_blocks>(v, v);
}

/// Every lane gets the largest of its group of `Group` neighbouring lanes (a power of two, at most the vector).
template <std::size_t Group, class Arch>
QK_INLINE vi<Arch> max_of_group(vi<Arch> v) noexcept {
    static_assert((Group & (Group - 1)) == 0 && Group <= lanes<Arch>);
    if constexpr (Group >= 2) v = max(v, detail::pick<Arch, detail::across<1>>(v, v));
    if constexpr (Group >= 4) v = max(v, detail::pick<Arch, detail::across<2>>(v, v));
    if constexpr (Group >= 8) v = max(v, detail::pick<Arch, detail::across<4>>(v, v));
    if constexpr (Group >= 16) v = max(v, detail::pick<Arch, detail::across<8>>(v, v));
    return v;
}

/// The IEEE quotient.
template <class Arch>
QK_INLINE vf<Arch> quotient(vf<Arch> a, vf<Arch> b) noexcept {
    return a / b;
}

/// Is set where floor(f * 2^32) + word, both without a sign, is at least 2^32; f is the fraction of v, which is at least 0 and less than
/// 2^31.
template <class Arch>
QK_INLINE mask<Arch> carries(vf<Arch> v, vi<Arch> words) noexcept {
#if defined(__AVX512F__)
    if constexpr (lanes<Arch> == 16) {
        const __m512 fraction = (v - trunc<Arch>(v)).data;
        const __m512i scaled = _mm512_cvttps_epu32(_mm512_mul_ps(fraction, _mm512_set1_ps(0x1p32f)));
        return _mm512_cmpgt_epu32_mask(scaled, _mm512_xor_si512(words.data, _mm512_set1_epi32(-1)));
    }
#endif
#if defined(__aarch64__) && !defined(QK_PREDICATES)
    const uint32x4_t scaled = vcvtq_u32_f32(((v - trunc<Arch>(v)) * vf<Arch>(0x1p32f)).data);
    return vcgtq_u32(scaled, vmvnq_u32(vreinterpretq_u32_s32(words.data)));
#else
    // In units of 2^-32 the distance from the nearest whole number lies between -2^31 and 2^31 (which the conversion makes -2^31), and it
    // is the fraction or 2^32 less: their lowest 32 bits are the same. Bits finer than 2^-32 exist only below 2^-8, where the distance is
    // the fraction.
    vf<Arch> distance = v - nearest(v);
#if !defined(__SSE2__)  // other conversions make 2^31 - 1 of 2^31
    distance = select(distance == vf<Arch>(0.5f), vf<Arch>(-0.5f), distance);
#endif
    const vi<Arch> scaled = to_int<Arch>(distance * vf<Arch>(0x1p32f)), sign(INT32_MIN);
    return (scaled ^ sign) > (words ^ vi<Arch>(INT32_MAX));
#endif
}
/// Returns v where `sign` is not negative, else -v. v must be 0 where `sign` is 0.
template <class Arch>
QK_INLINE vi<Arch> signed_as(vi<Arch> v, vi<Arch> sign) noexcept {
#if defined(__AVX512F__)
    if constexpr (lanes<Arch> == 16) return _mm512_mask_sub_epi32(v.data, _mm512_movepi32_mask(sign.data), _mm512_setzero_si512(), v.data);
#endif
#if defined(__AVX2__)
    if constexpr (lanes<Arch> == 8) return _mm256_sign_epi32(v.data, sign.data);
#endif
    const vi<Arch> negative = sign >> 31;
    return (v ^ negative) - negative;
}
/// Returns v + 1 where `where`, else v.
template <class Arch>
QK_INLINE vi<Arch> one_more(vi<Arch> v, mask<Arch> where) noexcept {
#if defined(__AVX512F__)
    if constexpr (lanes<Arch> == 16) return _mm512_mask_add_epi32(v.data, where.data, v.data, _mm512_set1_epi32(1));
#endif
    return v - all_bits<Arch>(where);
}
/// Returns v + 1 where `where`, else v, of floats.
template <class Arch>
QK_INLINE vf<Arch> one_more(vf<Arch> v, mask<Arch> where) noexcept {
#if defined(__AVX512F__)
    if constexpr (lanes<Arch> == 16) return _mm512_mask_add_ps(v.data, where.data, v.data, _mm512_set1_ps(1.0f));
#endif
    return v + as_float<Arch>(all_bits<Arch>(where) & as_int<Arch>(vf<Arch>(1.0f)));
}

/// Returns v with its magnitude clamped to `limit`, which is positive. Neither is NaN.
template <class Arch>
QK_INLINE vf<Arch> clamp_magnitude(vf<Arch> v, vf<Arch> limit) noexcept {
#if defined(__AVX512DQ__)
    if constexpr (sizeof(v) == 64) return _mm512_range_ps(v.data, limit.data, 2);
#endif
    return min(max(v, -limit), limit);
}

// How asm names an operand that it reads and writes. It cannot name WebAssembly's vectors, where products and sums are never contracted,
// nor those that xsimd has for RISC-V, as intrinsics, which clang does not contract (and only clang compiles).
#if defined(__AVX512F__)
#define QK_IN_VECTOR_REGISTER "+v"
#elif defined(__SSE2__)
#define QK_IN_VECTOR_REGISTER "+x"
#elif defined(__ARM_NEON) && defined(__aarch64__)
#define QK_IN_VECTOR_REGISTER "+w"
#elif defined(__riscv_flen) && !defined(QK_PREDICATES)
#define QK_IN_VECTOR_REGISTER "+f"
#elif defined(__GNUC__) && !defined(__wasm_simd128__) && !defined(__riscv_flen)
#define QK_IN_VECTOR_REGISTER "+r"
#endif

/// Returns v and hides from the compiler what it is: a constant stays in a register and is not made anew, and a product is rounded before
/// it meets a sum, not contracted with it into an fma.
template <class Arch, class T>
batch<T, Arch> opaque(batch<T, Arch> v) noexcept {
    if constexpr (lanes<Arch> == 1 && !std::is_same_v<T, float>) return v;
#if defined(QK_IN_VECTOR_REGISTER)
    else asm("" : QK_IN_VECTOR_REGISTER(v.data));
#else
    else if constexpr (lanes<Arch> == 1) {
        volatile T hidden = v.data;
        v.data = hidden;
    }
#endif
    return v;
}

/// Loads a vector before those that are loaded in turn after it. A compiler that orders loads as it likes reads a tile up and down, and
/// processors foresee such addresses badly.
template <class Arch>
QK_INLINE vf<Arch> load_in_turn(const float* p) noexcept {
    vf<Arch> v = load<Arch>(p);
#if defined(QK_IN_VECTOR_REGISTER)
    if constexpr (lanes<Arch> != 1) asm volatile("" : QK_IN_VECTOR_REGISTER(v.data));
#endif
    return v;
}
#undef QK_IN_VECTOR_REGISTER

/// Is true when the processor rounds to nearest even and flushes nothing, as the fast forms require.
template <class Arch>
bool default_environment() noexcept {
#if defined(__SSE2__)
    return (_mm_getcsr() & 0xe040u) == 0;  // rounding control, flush to zero, denormals are zero
#elif defined(__aarch64__)
    std::uint64_t fpcr;
    asm volatile("mrs %0, fpcr" : "=r"(fpcr));
    return (fpcr & 0x03c00000u) == 0;
#else
    // Sums that are ties, and a product and a sum of subnormals: another rounding or a flush gives other bits.
    volatile float one = 1.0f, tie = 0x1p-24f, next = 0x1.000002p+0f, least = 0x1p-126f, half = 0.5f, subnormal = 0x1p-149f;
    const float down = one + tie, up = next + tie, made = least * half, kept = subnormal + subnormal;
    return std::bit_cast<std::uint32_t>(down) == 0x3f800000u && std::bit_cast<std::uint32_t>(up) == 0x3f800002u &&
           std::bit_cast<std::uint32_t>(made) == 0x00400000u && std::bit_cast<std::uint32_t>(kept) == 0x00000002u;
#endif
}

}  // namespace QK_ISA
}  // namespace qk::kernels
