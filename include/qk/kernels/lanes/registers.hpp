// SPDX-License-Identifier: Apache-2.0
// Vectors over the compiler's own, where the instruction set is one of x86 from SSE2 on or NEON. The operators are single expressions over
// them: a compiler spends its time on calls that it has to inline, and a kernel has thousands of operators.
#pragma once

#include <cstddef>
#include <cstdint>

#include "qk/inline.hpp"
#include "qk/kernels/lanes/batch.hpp"
#include "qk/kernels/lanes/intrinsics.hpp"

// C-style casts turn the compiler's own vectors into vectors of other lanes: no named cast is as short, or compiles as fast.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wold-style-cast"

namespace qk::kernels {

/// The instruction set that a file is compiled for, as far as the kernels tell these apart: a type each, so that it is part of every
/// symbol's name. `ints` and `floats` are the vectors that intrinsics take.
#if defined(__AVX512F__) && defined(__AVX512CD__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)
#define QK_MASK_REGISTERS 1
struct avx512 {
    static constexpr std::size_t bytes = 64;
    using floats = __m512;
    using ints = __m512i;
};
using native = avx512;
#elif defined(__AVX2__)
struct avx2 {
    static constexpr std::size_t bytes = 32;
    using floats = __m256;
    using ints = __m256i;
};
struct avx2_fma : avx2 {};
#if defined(__FMA__)
using native = avx2_fma;
#else
using native = avx2;
#endif
#elif defined(__SSE2__)
struct sse2 {
    static constexpr std::size_t bytes = 16;
    using floats = __m128;
    using ints = __m128i;
};
struct sse4_1 : sse2 {};
struct avx : sse4_1 {};
struct avx_fma : avx {};
#if defined(__FMA__)
using native = avx_fma;
#elif defined(__AVX__)
using native = avx;
#elif defined(__SSE4_1__)
using native = sse4_1;
#else
using native = sse2;
#endif
#else
struct neon {
    static constexpr std::size_t bytes = 16;
    using floats = float32x4_t;
    using ints = int32x4_t;
};
using native = neon;
#endif

/// The vectors of an instruction set with lanes of type T. Integer arithmetic is done in `wrapping`, without a sign, so it wraps around.
template <class T, class Arch>
struct vector_types;
template <class Arch>
struct vector_types<float, Arch> {
    using given = typename Arch::floats;
    typedef float lanes __attribute__((vector_size(Arch::bytes)));
    typedef float wrapping __attribute__((vector_size(Arch::bytes)));
};
template <class Arch>
struct vector_types<std::int32_t, Arch> {
    using given = typename Arch::ints;
    typedef std::int32_t lanes __attribute__((vector_size(Arch::bytes)));
    typedef std::uint32_t wrapping __attribute__((vector_size(Arch::bytes)));
};
template <class Arch>
struct vector_types<std::uint32_t, Arch> {
    using given = typename Arch::ints;
    typedef std::uint32_t lanes __attribute__((vector_size(Arch::bytes)));
    typedef std::uint32_t wrapping __attribute__((vector_size(Arch::bytes)));
};

/// One truth value for each lane.
template <class Arch>
struct mask {
#if defined(QK_MASK_REGISTERS)
    using register_type = __mmask16;
#else
    using register_type = typename vector_types<std::int32_t, Arch>::lanes;
#endif
    register_type data;

    mask() = default;
    QK_INLINE mask(register_type m) noexcept : data(m) {}
    friend QK_INLINE mask operator&(mask a, mask b) noexcept { return register_type(a.data & b.data); }
    friend QK_INLINE mask operator|(mask a, mask b) noexcept { return register_type(a.data | b.data); }
    friend QK_INLINE mask operator~(mask a) noexcept { return register_type(~a.data); }
};

template <class T, class Arch>
struct batch {
    using types = vector_types<T, Arch>;
    using register_type = typename types::given;
    using lanes_type = typename types::lanes;
    using wrapping = typename types::wrapping;
    static constexpr std::size_t size = Arch::bytes / sizeof(T);

    register_type data;

    batch() = default;
    QK_INLINE batch(register_type v) noexcept : data(v) {}
    QK_INLINE explicit batch(T v) noexcept {
        if constexpr (size == 4) data = (register_type)lanes_type{v, v, v, v};
        else if constexpr (size == 8) data = (register_type)lanes_type{v, v, v, v, v, v, v, v};
        else data = (register_type)lanes_type{v, v, v, v, v, v, v, v, v, v, v, v, v, v, v, v};
    }
    static QK_INLINE batch load_unaligned(const T* p) noexcept {
        typedef lanes_type unaligned __attribute__((aligned(sizeof(T)), may_alias));
        return (register_type) * reinterpret_cast<const unaligned*>(p);
    }
    QK_INLINE void store_unaligned(T* p) const noexcept {
        typedef lanes_type unaligned __attribute__((aligned(sizeof(T)), may_alias));
        *reinterpret_cast<unaligned*>(p) = (lanes_type)data;
    }

    friend QK_INLINE batch operator+(batch a, batch b) noexcept { return (register_type)((wrapping)a.data + (wrapping)b.data); }
    friend QK_INLINE batch operator-(batch a, batch b) noexcept { return (register_type)((wrapping)a.data - (wrapping)b.data); }
    friend QK_INLINE batch operator*(batch a, batch b) noexcept { return (register_type)((wrapping)a.data * (wrapping)b.data); }
    friend QK_INLINE batch operator/(batch a, batch b) noexcept { return (register_type)((wrapping)a.data / (wrapping)b.data); }
    friend QK_INLINE batch operator-(batch a) noexcept { return (register_type)(-(wrapping)a.data); }
    friend QK_INLINE batch operator&(batch a, batch b) noexcept { return (register_type)((lanes_type)a.data & (lanes_type)b.data); }
    friend QK_INLINE batch operator|(batch a, batch b) noexcept { return (register_type)((lanes_type)a.data | (lanes_type)b.data); }
    friend QK_INLINE batch operator^(batch a, batch b) noexcept { return (register_type)((lanes_type)a.data ^ (lanes_type)b.data); }
    friend QK_INLINE batch operator~(batch a) noexcept { return (register_type)(~(lanes_type)a.data); }
    friend QK_INLINE batch operator<<(batch a, int n) noexcept { return (register_type)((wrapping)a.data << n); }
    friend QK_INLINE batch operator>>(batch a, int n) noexcept { return (register_type)((lanes_type)a.data >> n); }
    friend QK_INLINE batch operator<<(batch a, batch n) noexcept { return (register_type)((wrapping)a.data << (wrapping)n.data); }
    friend QK_INLINE batch operator>>(batch a, batch n) noexcept { return (register_type)((lanes_type)a.data >> (lanes_type)n.data); }
#if defined(QK_MASK_REGISTERS)
    friend QK_INLINE mask<Arch> operator<(batch a, batch b) noexcept { return _mm512_cmplt_epi32_mask(a.data, b.data); }
    friend QK_INLINE mask<Arch> operator<=(batch a, batch b) noexcept { return _mm512_cmple_epi32_mask(a.data, b.data); }
    friend QK_INLINE mask<Arch> operator==(batch a, batch b) noexcept { return _mm512_cmpeq_epi32_mask(a.data, b.data); }
    friend QK_INLINE mask<Arch> operator!=(batch a, batch b) noexcept { return _mm512_cmpneq_epi32_mask(a.data, b.data); }
#else
    friend QK_INLINE mask<Arch> operator<(batch a, batch b) noexcept { return (lanes_type)a.data < (lanes_type)b.data; }
    friend QK_INLINE mask<Arch> operator<=(batch a, batch b) noexcept { return (lanes_type)a.data <= (lanes_type)b.data; }
    friend QK_INLINE mask<Arch> operator==(batch a, batch b) noexcept { return (lanes_type)a.data == (lanes_type)b.data; }
    friend QK_INLINE mask<Arch> operator!=(batch a, batch b) noexcept { return (lanes_type)a.data != (lanes_type)b.data; }
#endif
    friend QK_INLINE mask<Arch> operator>(batch a, batch b) noexcept { return b < a; }
    friend QK_INLINE mask<Arch> operator>=(batch a, batch b) noexcept { return b <= a; }
};

// QK_LANES picks its argument for vectors of 16 lanes, of 8 lanes or of 4 lanes.
#if defined(QK_MASK_REGISTERS)
#define QK_LANES(wide, middle, narrow) wide
#elif defined(__AVX2__)
#define QK_LANES(wide, middle, narrow) middle
#else
#define QK_LANES(wide, middle, narrow) narrow
#endif

/// Returns a where m, else b.
template <class T, class Arch>
QK_INLINE batch<T, Arch> select(mask<Arch> m, batch<T, Arch> a, batch<T, Arch> b) noexcept {
#if defined(QK_MASK_REGISTERS)
    return (typename batch<T, Arch>::register_type)_mm512_mask_blend_epi32(m.data, (__m512i)b.data, (__m512i)a.data);
#elif defined(__SSE4_1__)
    return (typename batch<T, Arch>::register_type)QK_LANES(, _mm256_blendv_epi8, _mm_blendv_epi8)(
        (typename Arch::ints)b.data, (typename Arch::ints)a.data, (typename Arch::ints)m.data);
#else
    using ints = typename vi<Arch>::lanes_type;
    return (typename batch<T, Arch>::register_type)(((ints)a.data & m.data) | ((ints)b.data & ~m.data));
#endif
}

/// Returns all bits of a lane where m, else none.
template <class Arch>
QK_INLINE vi<Arch> all_bits(mask<Arch> m) noexcept {
#if defined(QK_MASK_REGISTERS)
    return _mm512_movm_epi32(m.data);
#else
    return (typename vi<Arch>::register_type)m.data;
#endif
}

#if defined(__SSE2__)
template <class Arch>
QK_INLINE vf<Arch> min(vf<Arch> a, vf<Arch> b) noexcept {
    return QK_LANES(_mm512_min_ps, _mm256_min_ps, _mm_min_ps)(a.data, b.data);
}
template <class Arch>
QK_INLINE vf<Arch> max(vf<Arch> a, vf<Arch> b) noexcept {
    return QK_LANES(_mm512_max_ps, _mm256_max_ps, _mm_max_ps)(a.data, b.data);
}
template <class Arch>
QK_INLINE vf<Arch> to_float(vi<Arch> v) noexcept {
    return QK_LANES(_mm512_cvtepi32_ps, _mm256_cvtepi32_ps, _mm_cvtepi32_ps)(v.data);
}
template <class Arch>
QK_INLINE vi<Arch> to_int(vf<Arch> v) noexcept {
    return QK_LANES(_mm512_cvttps_epi32, _mm256_cvttps_epi32, _mm_cvttps_epi32)(v.data);
}
#else
template <class Arch>
QK_INLINE vf<Arch> min(vf<Arch> a, vf<Arch> b) noexcept {
    return vminq_f32(a.data, b.data);
}
template <class Arch>
QK_INLINE vf<Arch> max(vf<Arch> a, vf<Arch> b) noexcept {
    return vmaxq_f32(a.data, b.data);
}
template <class Arch>
QK_INLINE vf<Arch> to_float(vi<Arch> v) noexcept {
    return vcvtq_f32_s32(v.data);
}
template <class Arch>
QK_INLINE vi<Arch> to_int(vf<Arch> v) noexcept {
    return vcvtq_s32_f32(v.data);
}
#endif

#if defined(__SSE4_1__)
template <class Arch>
QK_INLINE vi<Arch> min(vi<Arch> a, vi<Arch> b) noexcept {
    return QK_LANES(_mm512_min_epi32, _mm256_min_epi32, _mm_min_epi32)(a.data, b.data);
}
template <class Arch>
QK_INLINE vi<Arch> max(vi<Arch> a, vi<Arch> b) noexcept {
    return QK_LANES(_mm512_max_epi32, _mm256_max_epi32, _mm_max_epi32)(a.data, b.data);
}
#elif defined(__SSE2__)
template <class Arch>
QK_INLINE vi<Arch> min(vi<Arch> a, vi<Arch> b) noexcept {
    return select(a < b, a, b);
}
template <class Arch>
QK_INLINE vi<Arch> max(vi<Arch> a, vi<Arch> b) noexcept {
    return select(a > b, a, b);
}
#else
template <class Arch>
QK_INLINE vi<Arch> min(vi<Arch> a, vi<Arch> b) noexcept {
    return vminq_s32(a.data, b.data);
}
template <class Arch>
QK_INLINE vi<Arch> max(vi<Arch> a, vi<Arch> b) noexcept {
    return vmaxq_s32(a.data, b.data);
}
#endif

/// Is true when m holds in some lane.
template <class Arch>
QK_INLINE bool any(mask<Arch> m) noexcept {
#if defined(QK_MASK_REGISTERS)
    return m.data != 0;
#elif defined(__AVX2__)
    return _mm256_testz_si256((__m256i)m.data, (__m256i)m.data) == 0;
#elif defined(__SSE2__)
    return _mm_movemask_epi8((__m128i)m.data) != 0;
#else
    return vmaxvq_u32((uint32x4_t)m.data) != 0;
#endif
}

#if defined(__SSE4_1__)
template <int Rounding, class Arch>
QK_INLINE vf<Arch> whole(vf<Arch> v) noexcept {
    return QK_LANES(_mm512_roundscale_ps, _mm256_round_ps, _mm_round_ps)(v.data, Rounding | _MM_FROUND_NO_EXC);
}
#endif

/// Rounds toward zero what lies between -2^31 and 2^31.
template <class Arch>
QK_INLINE vf<Arch> trunc(vf<Arch> v) noexcept {
#if defined(__SSE4_1__)
    return whole<_MM_FROUND_TO_ZERO, Arch>(v);
#elif defined(__aarch64__)
    return vrndq_f32(v.data);
#else
    return to_float<Arch>(to_int<Arch>(v));
#endif
}

/// Rounds what is at least 0 and less than 2^31 to the nearest whole number.
template <class Arch>
QK_INLINE vf<Arch> nearest(vf<Arch> v) noexcept {
#if defined(__SSE4_1__)
    return whole<_MM_FROUND_TO_NEAREST_INT, Arch>(v);
#elif defined(__aarch64__)
    return vrndnq_f32(v.data);
#else
    return to_float<Arch>(vi<Arch>(_mm_cvtps_epi32(v.data)));
#endif
}

/// Is true when the processor multiplies and adds in one instruction, with one rounding.
template <class Arch>
constexpr bool has_fused() noexcept {
#if defined(__FMA__) || defined(__AVX512F__) || defined(__aarch64__)
    return true;
#else
    return false;
#endif
}
/// Returns a * b + c, rounded once where has_fused(), else twice.
template <class Arch>
QK_INLINE vf<Arch> fma(vf<Arch> a, vf<Arch> b, vf<Arch> c) noexcept {
#if defined(QK_MASK_REGISTERS)
    return _mm512_fmadd_ps(a.data, b.data, c.data);
#elif defined(__FMA__)
    return QK_LANES(, _mm256_fmadd_ps, _mm_fmadd_ps)(a.data, b.data, c.data);
#elif defined(__aarch64__)
    return vfmaq_f32(c.data, a.data, b.data);
#else
    return a * b + c;
#endif
}

/// Returns c - a * b, rounded likewise. (For fma(a, -b, c) a compiler keeps -b in a register of its own.)
template <class Arch>
QK_INLINE vf<Arch> fnma(vf<Arch> a, vf<Arch> b, vf<Arch> c) noexcept {
#if defined(QK_MASK_REGISTERS)
    return _mm512_fnmadd_ps(a.data, b.data, c.data);
#elif defined(__FMA__)
    return QK_LANES(, _mm256_fnmadd_ps, _mm_fnmadd_ps)(a.data, b.data, c.data);
#elif defined(__aarch64__)
    return vfmsq_f32(c.data, a.data, b.data);
#else
    return c - a * b;
#endif
}

}  // namespace qk::kernels

#pragma GCC diagnostic pop
#undef QK_LANES
