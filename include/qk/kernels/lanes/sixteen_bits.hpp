// SPDX-License-Identifier: Apache-2.0
// widen() and narrow() of storage.hpp, a vector at a time. They give the same bits, whatever the floating-point environment, since integer
// or exact operations do it all.
#pragma once

#include "qk/inline.hpp"
#include "qk/kernels/lanes/code_lanes.hpp"
#include "qk/storage.hpp"

namespace qk::kernels {

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

template <class Arch, class Half>
void widen_all(const Half* from, std::size_t n, float* to) noexcept {
    std::size_t i = 0;
#pragma GCC unroll 4
    for (; i + lanes<Arch> <= n; i += lanes<Arch>)
        store<Arch>(to + i, widened<Arch>(load_codes<Arch>(reinterpret_cast<const std::uint16_t*>(from + i)), Half()));
    for (; i < n; ++i) to[i] = widen(from[i]);
}
template <class Arch, class Half>
void narrow_all(const float* from, std::size_t n, Half* to) noexcept {
    std::size_t i = 0;
    for (; i + lanes<Arch> <= n; i += lanes<Arch>)
        store_codes<Arch>(reinterpret_cast<std::uint16_t*>(to + i), narrowed<Arch>(load<Arch>(from + i), Half()));
    for (; i < n; ++i) to[i] = narrow<Half>(from[i]);
}

}  // namespace qk::kernels
