// SPDX-License-Identifier: Apache-2.0
// Computes the maxima of as many blocks as there are lanes, by a transpose that halves its rows at every step. That is about half the work
// of reducing each block by itself, and what follows from a maximum is then computed once for all of them.
#pragma once

#include <utility>

#include "qk/inline.hpp"
#include "qk/isa.hpp"
#include "qk/lanes/simd.hpp"

namespace qk::kernels {
inline namespace QK_ISA {

namespace detail {

/// Picks, inside each 128 bits, alternating lanes of u and v from the first or second half of the 128 bits.
template <class Arch, int Half>
struct interleave {
    using lane = std::int32_t;
    constexpr int operator()(int i) const {
        const int quarter = i / 4 * 4, place = i % 4;
        return quarter + place / 2 + 2 * Half + (place % 2) * static_cast<int>(lanes<Arch>);
    }
};
/// Picks the even lanes of u and the odd lanes of v.
template <class Arch>
struct alternate {
    using lane = std::int32_t;
    constexpr int operator()(int i) const { return i + (i % 2) * static_cast<int>(lanes<Arch>); }
};
/// Picks, inside each 128 bits, a half of u, then the same half of v. (In lanes of 64 bits, or g++ takes a shuffle across all of the
/// vector.)
template <class Arch, int Half>
struct halves {
    using lane = std::int64_t;
    constexpr int operator()(int i) const { return i / 2 * 2 + Half + (i % 2) * static_cast<int>(lanes<Arch> / 2); }
};
/// Picks every second 128 bits of u, then of v.
template <class Arch, int Odd>
struct quarters {
    using lane = std::int32_t;
    constexpr int operator()(int i) const {
        constexpr int w = static_cast<int>(lanes<Arch>);
        const int quarter = i / 4, of_v = quarter >= w / 8 ? 1 : 0;
        return of_v * w + (2 * (quarter - of_v * (w / 8)) + Odd) * 4 + i % 4;
    }
};
template <class Arch, template <class, int> class Pick>
QK_INLINE vi<Arch> fold(vi<Arch> u, vi<Arch> v) noexcept {
    return max(pick<Arch, Pick<Arch, 0>>(u, v), pick<Arch, Pick<Arch, 1>>(u, v));
}

}  // namespace detail

/// Lane b of the result is the largest lane of m[b], for lanes<Arch> vectors: a transpose that halves its rows at every step. `Pairs`:
/// neighbouring lanes are equal, so the first step only takes every second one.
template <class Arch, bool Pairs = false>
[[gnu::always_inline]] inline vi<Arch> maxima(vi<Arch>* m) noexcept {
    constexpr std::size_t w = lanes<Arch>;
    unrolled<w / 2>([&](auto i) QK_INLINE_CALL {
        if constexpr (Pairs) m[i] = detail::pick<Arch, detail::alternate<Arch>>(m[2 * i], m[2 * i + 1]);
        else m[i] = detail::fold<Arch, detail::interleave>(m[2 * i], m[2 * i + 1]);
    });
    unrolled<w / 4>([&](auto i) QK_INLINE_CALL { m[i] = detail::fold<Arch, detail::halves>(m[2 * i], m[2 * i + 1]); });
    // Now m[i] holds four blocks, spread over the 128-bit parts.
    if constexpr (w == 8) m[0] = detail::fold<Arch, detail::quarters>(m[0], m[1]);
    if constexpr (w == 16) {
        const vi<Arch> a = detail::fold<Arch, detail::quarters>(m[0], m[1]), b = detail::fold<Arch, detail::quarters>(m[2], m[3]);
        m[0] = detail::fold<Arch, detail::quarters>(a, b);
    }
    return m[0];
}

/// Returns the maxima of 8 vectors of 16 lanes with a block in each half. That of half h of vector i stands at lane
/// i / 4 * 8 + h * 4 + i % 4.
template <class Arch>
[[gnu::always_inline]] inline vi<Arch> maxima_of_halves(vi<Arch>* m) noexcept {
    unrolled<4>([&](auto i) QK_INLINE_CALL { m[i] = detail::fold<Arch, detail::interleave>(m[2 * i], m[2 * i + 1]); });
    unrolled<2>([&](auto i) QK_INLINE_CALL { m[i] = detail::fold<Arch, detail::halves>(m[2 * i], m[2 * i + 1]); });
    return detail::fold<Arch, detail::quarters>(m[0], m[1]);
}

}  // namespace QK_ISA
}  // namespace qk::kernels
