// SPDX-License-Identifier: Apache-2.0
// Vectors of one value, for every processor on which C++ compiles: no intrinsics, no vectors of the compiler's, no assumption about the
// floating-point unit beyond IEEE 754.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "qk/inline.hpp"
#include "qk/isa.hpp"
#include "qk/lanes/batch.hpp"

namespace qk::kernels {
inline namespace QK_ISA {

/// One value a vector. A type each for the two ways to compute fma(), so that objects of both may be linked together.
struct scalar {};
struct scalar_fma : scalar {};
#if defined(__FP_FAST_FMAF)
using native = scalar_fma;
#else
using native = scalar;
#endif

template <class Arch>
struct mask {
    using register_type = bool;
    register_type data;

    mask() = default;
    QK_INLINE mask(register_type m) noexcept : data(m) {}
    friend QK_INLINE mask operator&(mask a, mask b) noexcept { return a.data && b.data; }
    friend QK_INLINE mask operator|(mask a, mask b) noexcept { return a.data || b.data; }
    friend QK_INLINE mask operator~(mask a) noexcept { return !a.data; }
};

template <class T, class Arch>
struct batch {
    using register_type = T;
    /// Integers wrap around: arithmetic is done without a sign.
    using wrapping = std::conditional_t<std::is_integral_v<T>, std::uint32_t, T>;
    static constexpr std::size_t size = 1;

    register_type data;

    batch() = default;
    QK_INLINE batch(register_type v) noexcept : data(v) {}
    static QK_INLINE batch load_unaligned(const T* p) noexcept { return *p; }
    QK_INLINE void store_unaligned(T* p) const noexcept { *p = data; }

    friend QK_INLINE batch operator+(batch a, batch b) noexcept { return T(wrapping(a.data) + wrapping(b.data)); }
    friend QK_INLINE batch operator-(batch a, batch b) noexcept { return T(wrapping(a.data) - wrapping(b.data)); }
    friend QK_INLINE batch operator*(batch a, batch b) noexcept { return T(wrapping(a.data) * wrapping(b.data)); }
    friend QK_INLINE batch operator/(batch a, batch b) noexcept { return T(wrapping(a.data) / wrapping(b.data)); }
    friend QK_INLINE batch operator-(batch a) noexcept { return T(-wrapping(a.data)); }
    friend QK_INLINE batch operator&(batch a, batch b) noexcept { return T(a.data & b.data); }
    friend QK_INLINE batch operator|(batch a, batch b) noexcept { return T(a.data | b.data); }
    friend QK_INLINE batch operator^(batch a, batch b) noexcept { return T(a.data ^ b.data); }
    friend QK_INLINE batch operator~(batch a) noexcept { return T(~a.data); }
    friend QK_INLINE batch operator<<(batch a, int n) noexcept { return T(wrapping(a.data) << n); }
    friend QK_INLINE batch operator>>(batch a, int n) noexcept { return T(a.data >> n); }
    friend QK_INLINE batch operator<<(batch a, batch n) noexcept { return T(wrapping(a.data) << n.data); }
    friend QK_INLINE batch operator>>(batch a, batch n) noexcept { return T(a.data >> n.data); }
    friend QK_INLINE mask<Arch> operator<(batch a, batch b) noexcept { return a.data < b.data; }
    friend QK_INLINE mask<Arch> operator<=(batch a, batch b) noexcept { return a.data <= b.data; }
    friend QK_INLINE mask<Arch> operator==(batch a, batch b) noexcept { return a.data == b.data; }
    friend QK_INLINE mask<Arch> operator!=(batch a, batch b) noexcept { return a.data != b.data; }
    friend QK_INLINE mask<Arch> operator>(batch a, batch b) noexcept { return a.data > b.data; }
    friend QK_INLINE mask<Arch> operator>=(batch a, batch b) noexcept { return a.data >= b.data; }
};

/// Returns a where m, else b.
template <class T, class Arch>
QK_INLINE batch<T, Arch> select(mask<Arch> m, batch<T, Arch> a, batch<T, Arch> b) noexcept {
    return m.data ? a : b;
}
/// Returns all bits where m, else none.
template <class Arch>
QK_INLINE vi<Arch> all_bits(mask<Arch> m) noexcept {
    return m.data ? -1 : 0;
}

template <class Arch>
QK_INLINE vf<Arch> min(vf<Arch> a, vf<Arch> b) noexcept {
    return a.data < b.data ? a : b;
}
template <class Arch>
QK_INLINE vf<Arch> max(vf<Arch> a, vf<Arch> b) noexcept {
    return a.data > b.data ? a : b;
}
template <class Arch>
QK_INLINE vi<Arch> min(vi<Arch> a, vi<Arch> b) noexcept {
    return a.data < b.data ? a : b;
}
template <class Arch>
QK_INLINE vi<Arch> max(vi<Arch> a, vi<Arch> b) noexcept {
    return a.data > b.data ? a : b;
}
template <class Arch>
QK_INLINE vf<Arch> to_float(vi<Arch> v) noexcept {
    return static_cast<float>(v.data);
}
/// What does not fit becomes INT32_MIN, as on x86.
template <class Arch>
QK_INLINE vi<Arch> to_int(vf<Arch> v) noexcept {
    return v.data >= -0x1p31f && v.data < 0x1p31f ? static_cast<std::int32_t>(v.data) : INT32_MIN;
}

/// Is true when m holds.
template <class Arch>
QK_INLINE bool any(mask<Arch> m) noexcept {
    return m.data;
}

/// Rounds toward zero what lies between -2^31 and 2^31.
template <class Arch>
QK_INLINE vf<Arch> trunc(vf<Arch> v) noexcept {
    return to_float<Arch>(to_int<Arch>(v));
}
/// Rounds what is at least 0 and less than 2^31 to the nearest whole number.
template <class Arch>
QK_INLINE vf<Arch> nearest(vf<Arch> v) noexcept {
    return v.data < 0x1p23f ? (v.data + 0x1p23f) - 0x1p23f : v.data;
}

/// Is true when the processor multiplies and adds in one instruction, with one rounding.
template <class Arch>
constexpr bool has_fused() noexcept {
    return std::is_same_v<Arch, scalar_fma>;
}
/// Returns a * b + c, rounded once where has_fused(), else twice.
template <class Arch>
QK_INLINE vf<Arch> fma(vf<Arch> a, vf<Arch> b, vf<Arch> c) noexcept {
    if constexpr (has_fused<Arch>()) return __builtin_fmaf(a.data, b.data, c.data);
    else return a * b + c;
}
/// Returns c - a * b, rounded likewise.
template <class Arch>
QK_INLINE vf<Arch> fnma(vf<Arch> a, vf<Arch> b, vf<Arch> c) noexcept {
    if constexpr (has_fused<Arch>()) return __builtin_fmaf(-a.data, b.data, c.data);
    else return c - a * b;
}

}  // namespace QK_ISA
}  // namespace qk::kernels
