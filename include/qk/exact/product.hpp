// SPDX-License-Identifier: Apache-2.0
// A product that is rounded before it meets a sum. g++ contracts products with sums into one fma wherever a processor has it, and then sums
// that decide between two scales differ from those of a processor without.
#pragma once

#include <cstddef>

#include "qk/inline.hpp"
#include "qk/isa.hpp"

namespace qk {

namespace detail {
inline namespace QK_ISA {

/// Returns v, and keeps a compiler from contracting the product that it is with a sum.
template <class T>
QK_INLINE T kept(T v) noexcept {
#if defined(__SSE2__)
    asm("" : "+x"(v));
#elif defined(__ARM_NEON) && defined(__aarch64__)
    asm("" : "+w"(v));
#elif defined(__riscv_flen)
    asm("" : "+f"(v));
#else
    volatile T hidden = v;
    v = hidden;
#endif
    return v;
}

/// The same for an array of products, through memory, so that loops around it stay vectors.
template <class T, std::size_t N>
QK_INLINE void keep(T (&v)[N]) noexcept {
#if defined(__GNUC__)
    asm("" : "+m"(v));
#else
    for (T& one : v) one = kept(one);
#endif
}

}  // namespace QK_ISA
}  // namespace detail

inline namespace QK_ISA {

/// Returns a * b, rounded.
QK_INLINE double rounded_product(double a, double b) noexcept { return detail::kept(a * b); }

}  // namespace QK_ISA

}  // namespace qk
