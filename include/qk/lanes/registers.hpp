// SPDX-License-Identifier: Apache-2.0
// Vectors over xsimd::batch, where the instruction set is one of x86 from SSE2 on, NEON, SVE, RISC-V's V or WebAssembly's: a thin layer, in
// which vectors and masks of all lane types have one register each, and integers wrap around.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#if !__has_include(<xsimd/xsimd.hpp>)
#error "qk's vectors need xsimd 8.1 or later (Debian: libxsimd-dev); with -DQK_SCALAR qk computes one value at a time and needs nothing"
#endif
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"  // g++ 12's own avx512fintrin.h
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wold-style-cast"
#pragma GCC diagnostic ignored "-Wshadow"
#if !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wpsabi"
#endif
#if defined(__wasm_simd128__) && !defined(__EMSCRIPTEN__)
// xsimd looks for Emscripten before it uses WebAssembly's vectors; any compiler that has them will do.
#include <xsimd/config/xsimd_config.hpp>
#if !defined(XSIMD_HPP) && XSIMD_VERSION_MAJOR >= 13
#undef XSIMD_WITH_WASM
#define XSIMD_WITH_WASM 1
#undef XSIMD_NO_SUPPORTED_ARCHITECTURE
#endif
#endif
#include <xsimd/xsimd.hpp>
#pragma GCC diagnostic pop
#if defined(__wasm_simd128__) && !XSIMD_WITH_WASM
#error "WebAssembly's vectors need xsimd 13 or later, first included by qk; with -DQK_SCALAR qk computes one value at a time"
#elif defined(__riscv) && XSIMD_VERSION_MAJOR < 13
#error "RISC-V's vectors need xsimd 13 or later; with -DQK_SCALAR qk computes one value at a time"
#endif

#include "qk/inline.hpp"
#include "qk/isa.hpp"
#include "qk/lanes/batch.hpp"
#include "qk/lanes/intrinsics.hpp"

// C-style casts turn a register into the compiler's own vector of other lanes: no named cast is as short, or compiles as fast.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wold-style-cast"

namespace qk::kernels {
inline namespace QK_ISA {

/// The instruction set that a file is compiled for, as far as the kernels tell these apart: a type each, so that it is part of every
/// symbol's name. `of` is xsimd's.
#if defined(__AVX512F__) && defined(__AVX512CD__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)
#define QK_MASK_REGISTERS 1
struct avx512 {
    using of = xsimd::avx512dq;  // lanes have 32 bits: avx512bw has nothing for them, and a defect in 8.1
};
// Products use VNNI and VBMI where they are there: a processor without them must not get such a symbol from another file.
#if defined(__AVX512VNNI__) && defined(__AVX512VBMI__)
struct avx512_vnni_vbmi : avx512 {};
using native = avx512_vnni_vbmi;
#elif defined(__AVX512VNNI__)
struct avx512_vnni : avx512 {};
using native = avx512_vnni;
#elif defined(__AVX512VBMI__)
struct avx512_vbmi : avx512 {};
using native = avx512_vbmi;
#else
using native = avx512;
#endif
#elif defined(__AVX2__)
struct avx2 {
    using of = xsimd::avx2;
};
#if defined(__FMA__)
struct avx2_fma {
    using of = xsimd::fma3<xsimd::avx2>;
};
#if defined(__AVXVNNI__)
struct avx2_fma_vnni : avx2_fma {};
using native = avx2_fma_vnni;
#else
using native = avx2_fma;
#endif
#else
using native = avx2;
#endif
#elif defined(__SSE2__)
// AVX without AVX2 has no integers of 256 bits: vectors stay at 128.
#if defined(__FMA__)
#define QK_NARROW_FMA 1  // beside AVX xsimd 8.1 has no fma3<sse4_2>
struct avx_fma {
    using of = xsimd::sse4_2;
};
using native = avx_fma;
#elif defined(__AVX__)
struct avx {
    using of = xsimd::sse4_2;
};
using native = avx;
#elif defined(__SSE4_1__)
struct sse4_1 {
    using of = xsimd::sse4_1;
};
using native = sse4_1;
#else
struct sse2 {
    using of = xsimd::sse2;
};
using native = sse2;
#endif
#elif XSIMD_VERSION_MAJOR >= 13 && XSIMD_WITH_SVE && XSIMD_SVE_BITS > 128 && XSIMD_SVE_BITS <= 512
// Vectors of a length that the compiler is told (-msve-vector-bits); without it, and for 128 and more than 512 bits, NEON's are used.
#define QK_PREDICATES 1
template <int Bits>
struct sve {
    using of = xsimd::sve;
};
using native = sve<XSIMD_SVE_BITS>;
#elif defined(__aarch64__)
struct neon {
    using of = xsimd::neon64;
};
using native = neon;
#elif defined(__riscv)
#define QK_PREDICATES 1
template <int Bits>
struct rvv {
    using of = xsimd::rvv;
};
using native = rvv<XSIMD_RVV_BITS>;
#else
struct wasm {
    using of = xsimd::wasm;
};
using native = wasm;
#endif

/// One truth value for each lane.
template <class Arch>
struct mask {
    using of = xsimd::batch_bool<std::int32_t, typename Arch::of>;
    using register_type = typename of::register_type;
    register_type data;

    mask() = default;
    QK_INLINE mask(register_type m) noexcept : data(m) {}
    QK_INLINE mask(const of& m) noexcept : data(m.data) {}
#if defined(QK_PREDICATES)  // registers of a bit for each byte, no vectors to a compiler
    friend QK_INLINE mask operator&(mask a, mask b) noexcept { return of(a.data) & of(b.data); }
    friend QK_INLINE mask operator|(mask a, mask b) noexcept { return of(a.data) | of(b.data); }
    friend QK_INLINE mask operator~(mask a) noexcept { return ~of(a.data); }
#else
    friend QK_INLINE mask operator&(mask a, mask b) noexcept { return register_type(a.data & b.data); }
    friend QK_INLINE mask operator|(mask a, mask b) noexcept { return register_type(a.data | b.data); }
    friend QK_INLINE mask operator~(mask a) noexcept { return register_type(~a.data); }
#endif
};

template <class T, class Arch>
struct batch {
    using of = xsimd::batch<T, typename Arch::of>;
    /// Integers wrap around: arithmetic is done without a sign.
    using wrapping = xsimd::batch<std::conditional_t<std::is_integral_v<T>, std::uint32_t, T>, typename Arch::of>;
    using register_type = typename of::register_type;
    static constexpr std::size_t size = of::size;

    /// And, or, xor and shifts by a number are done in lanes of 32 bits by the compiler itself. xsimd's and, or and xor are in lanes of 64
    /// bits, and g++ keeps each constant twice for those; its shifts on NEON ask for each of 32 counts in turn.
    typedef std::conditional_t<std::is_integral_v<T>, T, std::int32_t> bits __attribute__((vector_size(sizeof(register_type))));

    register_type data;

#if defined(__riscv)  // xsimd's registers are classes there
    static QK_INLINE bits as_bits(batch a) noexcept { return __builtin_bit_cast(bits, a.data); }
    static QK_INLINE batch from_bits(bits v) noexcept { return __builtin_bit_cast(register_type, v); }
#else
    static QK_INLINE bits as_bits(batch a) noexcept { return (bits)a.data; }
    static QK_INLINE batch from_bits(bits v) noexcept { return (register_type)v; }
#endif

    batch() = default;
    QK_INLINE batch(register_type v) noexcept : data(v) {}
    QK_INLINE batch(const of& v) noexcept : data(v.data) {}
    QK_INLINE explicit batch(T v) noexcept : data(of(v).data) {}
    static QK_INLINE batch load_unaligned(const T* p) noexcept { return of::load_unaligned(p); }
    QK_INLINE void store_unaligned(T* p) const noexcept { of(data).store_unaligned(p); }

    friend QK_INLINE batch operator+(batch a, batch b) noexcept { return given(raw(a) + raw(b)); }
    friend QK_INLINE batch operator-(batch a, batch b) noexcept { return given(raw(a) - raw(b)); }
    friend QK_INLINE batch operator*(batch a, batch b) noexcept { return given(raw(a) * raw(b)); }
    friend QK_INLINE batch operator/(batch a, batch b) noexcept {
#if defined(__aarch64__) && !defined(QK_PREDICATES)  // xsimd's, of 8.1 and 13.2, is no IEEE quotient
        return vdivq_f32(a.data, b.data);
#else
        return given(raw(a) / raw(b));
#endif
    }
    friend QK_INLINE batch operator-(batch a) noexcept {
#if !defined(QK_PREDICATES) && !defined(__wasm_simd128__)
        // xsimd 8.1 subtracts from 0 on AVX-512, which makes +0 of +0.
        if constexpr (std::is_floating_point_v<T>) return register_type(-a.data);
#endif
        return given(-raw(a));
    }
    friend QK_INLINE batch operator&(batch a, batch b) noexcept { return from_bits(as_bits(a) & as_bits(b)); }
    friend QK_INLINE batch operator|(batch a, batch b) noexcept { return from_bits(as_bits(a) | as_bits(b)); }
    friend QK_INLINE batch operator^(batch a, batch b) noexcept { return from_bits(as_bits(a) ^ as_bits(b)); }
    friend QK_INLINE batch operator~(batch a) noexcept { return ~of(a.data); }
    friend QK_INLINE batch operator<<(batch a, int n) noexcept { return from_bits(as_bits(a) << n); }
    friend QK_INLINE batch operator>>(batch a, int n) noexcept { return from_bits(as_bits(a) >> n); }
    friend QK_INLINE batch operator<<(batch a, batch n) noexcept { return given(raw(a) << raw(n)); }
    friend QK_INLINE batch operator>>(batch a, batch n) noexcept { return of(a.data) >> of(n.data); }
    friend QK_INLINE mask<Arch> operator<(batch a, batch b) noexcept { return as_mask(of(a.data) < of(b.data)); }
    friend QK_INLINE mask<Arch> operator<=(batch a, batch b) noexcept {
        // xsimd takes two comparisons for integers where a mask is a register of lanes.
#if !defined(QK_MASK_REGISTERS) && !defined(QK_PREDICATES)
        if constexpr (std::is_integral_v<T>) return (typename mask<Arch>::register_type)(as_bits(a) <= as_bits(b));
#endif
        return as_mask(of(a.data) <= of(b.data));
    }
    friend QK_INLINE mask<Arch> operator==(batch a, batch b) noexcept { return as_mask(of(a.data) == of(b.data)); }
    friend QK_INLINE mask<Arch> operator!=(batch a, batch b) noexcept {
        // In xsimd 8.1 NaN is not unequal to NaN where x86 compares floats.
        if constexpr (std::is_floating_point_v<T>) return ~(a == b);
        else return as_mask(of(a.data) != of(b.data));
    }
    friend QK_INLINE mask<Arch> operator>(batch a, batch b) noexcept { return b < a; }
    friend QK_INLINE mask<Arch> operator>=(batch a, batch b) noexcept { return b <= a; }

  private:
    static QK_INLINE wrapping raw(batch a) noexcept { return wrapping(__builtin_bit_cast(typename wrapping::register_type, a.data)); }
    static QK_INLINE batch given(const wrapping& v) noexcept { return __builtin_bit_cast(register_type, v.data); }
    static QK_INLINE mask<Arch> as_mask(const typename of::batch_bool_type& m) noexcept {
#if defined(QK_PREDICATES)
        return typename mask<Arch>::register_type(m.data);
#else
        return __builtin_bit_cast(typename mask<Arch>::register_type, m.data);
#endif
    }
};

/// Returns a where m, else b.
template <class T, class Arch>
QK_INLINE batch<T, Arch> select(mask<Arch> m, batch<T, Arch> a, batch<T, Arch> b) noexcept {
    using of = typename batch<T, Arch>::of;
    using bools = typename of::batch_bool_type;
#if defined(QK_PREDICATES)
    return xsimd::select(bools(typename bools::register_type(m.data)), of(a.data), of(b.data));
#else
    return xsimd::select(bools(__builtin_bit_cast(typename bools::register_type, m.data)), of(a.data), of(b.data));
#endif
}

/// Returns all bits of a lane where m, else none.
template <class Arch>
QK_INLINE vi<Arch> all_bits(mask<Arch> m) noexcept {
#if defined(QK_MASK_REGISTERS)
    return _mm512_movm_epi32(m.data);
#elif defined(QK_PREDICATES)
    return select(m, vi<Arch>(-1), vi<Arch>(0));
#else
    return __builtin_bit_cast(typename vi<Arch>::register_type, m.data);
#endif
}

template <class Arch>
QK_INLINE vf<Arch> min(vf<Arch> a, vf<Arch> b) noexcept {
    return xsimd::min(typename vf<Arch>::of(a.data), typename vf<Arch>::of(b.data));
}
template <class Arch>
QK_INLINE vf<Arch> max(vf<Arch> a, vf<Arch> b) noexcept {
    return xsimd::max(typename vf<Arch>::of(a.data), typename vf<Arch>::of(b.data));
}
template <class Arch>
QK_INLINE vi<Arch> min(vi<Arch> a, vi<Arch> b) noexcept {
    return xsimd::min(typename vi<Arch>::of(a.data), typename vi<Arch>::of(b.data));
}
template <class Arch>
QK_INLINE vi<Arch> max(vi<Arch> a, vi<Arch> b) noexcept {
    return xsimd::max(typename vi<Arch>::of(a.data), typename vi<Arch>::of(b.data));
}
template <class Arch>
QK_INLINE vf<Arch> to_float(vi<Arch> v) noexcept {
    return xsimd::to_float(typename vi<Arch>::of(v.data));
}
template <class Arch>
QK_INLINE vi<Arch> to_int(vf<Arch> v) noexcept {
    return xsimd::to_int(typename vf<Arch>::of(v.data));
}

/// Is true when m holds in some lane.
template <class Arch>
QK_INLINE bool any(mask<Arch> m) noexcept {
    return xsimd::any(typename mask<Arch>::of(m.data));
}

/// Rounds toward zero what lies between -2^31 and 2^31.
template <class Arch>
QK_INLINE vf<Arch> trunc(vf<Arch> v) noexcept {
#if defined(__SSE2__) && !defined(__SSE4_1__)
    return to_float<Arch>(to_int<Arch>(v));
#else
    return xsimd::trunc(typename vf<Arch>::of(v.data));
#endif
}

/// Rounds what is at least 0 and less than 2^31 to the nearest whole number.
template <class Arch>
QK_INLINE vf<Arch> nearest(vf<Arch> v) noexcept {
#if defined(__SSE2__) && !defined(__SSE4_1__)
    return to_float<Arch>(vi<Arch>(_mm_cvtps_epi32(v.data)));
#else
    return xsimd::nearbyint(typename vf<Arch>::of(v.data));
#endif
}

/// Is true when the processor multiplies and adds in one instruction, with one rounding.
template <class Arch>
constexpr bool has_fused() noexcept {
#if defined(__FMA__) || defined(__AVX512F__) || defined(__aarch64__) || defined(__riscv)
    return true;
#else
    return false;
#endif
}
/// Returns a * b + c, rounded once where has_fused(), else twice.
template <class Arch>
QK_INLINE vf<Arch> fma(vf<Arch> a, vf<Arch> b, vf<Arch> c) noexcept {
#if defined(QK_NARROW_FMA)
    return _mm_fmadd_ps(a.data, b.data, c.data);
#elif defined(QK_MASK_REGISTERS)  // xsimd 8.1 has a product and a sum there
    return _mm512_fmadd_ps(a.data, b.data, c.data);
#else
    using of = typename vf<Arch>::of;
    if constexpr (has_fused<Arch>()) return xsimd::fma(of(a.data), of(b.data), of(c.data));
    else return a * b + c;
#endif
}
/// Returns c - a * b, rounded likewise. (For fma(a, -b, c) a compiler keeps -b in a register of its own.)
template <class Arch>
QK_INLINE vf<Arch> fnma(vf<Arch> a, vf<Arch> b, vf<Arch> c) noexcept {
#if defined(QK_NARROW_FMA)
    return _mm_fnmadd_ps(a.data, b.data, c.data);
#elif defined(QK_MASK_REGISTERS)
    return _mm512_fnmadd_ps(a.data, b.data, c.data);
#elif defined(QK_PREDICATES)  // xsimd's gives another zero
    return fma(-a, b, c);
#elif defined(__aarch64__)    // likewise
    return vfmsq_f32(c.data, a.data, b.data);
#else
    using of = typename vf<Arch>::of;
    if constexpr (has_fused<Arch>()) return xsimd::fnma(of(a.data), of(b.data), of(c.data));
    else return c - a * b;
#endif
}

}  // namespace QK_ISA
}  // namespace qk::kernels

#pragma GCC diagnostic pop
