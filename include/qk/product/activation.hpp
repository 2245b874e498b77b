// SPDX-License-Identifier: Apache-2.0
// What happens to a sum before it is written: scales, bias, activation. The same bits on every processor: nothing here asks a library's exp
// or erf, and no product is contracted with a sum.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "qk/exact/product.hpp"
#include "qk/inline.hpp"
#include "qk/isa.hpp"

namespace qk {

/// silu(v) = v / (1 + e^-v); gelu(v) = v * Phi(v), with the error function; gelu_tanh is its approximation by tanh. They are computed in
/// double and rounded once to float32 (the double is within 2^-40 of the exact value, relative to it). Of -Inf they are their limit, -0.
enum class activation : std::uint8_t { none, relu, silu, gelu, gelu_tanh };

namespace detail {
inline namespace QK_ISA {

/// Returns a * b + c with both roundings.
QK_INLINE double multiply_add(double a, double b, double c) noexcept { return kept(a * b) + c; }

template <std::size_t N>
QK_INLINE double polynomial(const double (&c)[N], double v) noexcept {
    double p = c[0];
    for (std::size_t i = 1; i < N; ++i) p = multiply_add(p, v, c[i]);
    return p;
}

/// Returns e^v for v from -700 to 700, and that of the nearer end beyond.
QK_INLINE double exponential(double v) noexcept {
    v = v < -700 ? -700 : v > 700 ? 700 : v;
    constexpr double to_whole = 0x1.8p52;
    const double shifted = multiply_add(v, 0x1.71547652b82fep0, to_whole), n = shifted - to_whole;
    const double r = multiply_add(n, -0x1.62e42fee00000p-1, v), rest = multiply_add(n, -0x1.a39ef35793c76p-33, r);
    constexpr double c[] = {1 / 6227020800.0, 1 / 479001600.0, 1 / 39916800.0, 1 / 3628800.0, 1 / 362880.0, 1 / 40320.0, 1 / 5040.0,
                            1 / 720.0,        1 / 120.0,       1 / 24.0,       1 / 6.0,       0.5,          1.0,         1.0};
    const auto power = static_cast<std::uint64_t>(static_cast<std::int64_t>(n) + 1023) << 52;
    return polynomial(c, rest) * std::bit_cast<double>(power);
}

/// Returns 1 - erf(v). After W. J. Cody, "Rational Chebyshev approximations for the error function", Math. Comp. 23 (1969).
QK_INLINE double complementary_error(double v) noexcept {
    const double a = v < 0 ? -v : v;
    if (a <= 0.46875) {
        constexpr double p[] = {1.85777706184603153e-1, 3.16112374387056560e0, 1.13864154151050156e2, 3.77485237685302021e2,
                                3.20937758913846947e3};
        constexpr double q[] = {1.0, 2.36012909523441209e1, 2.44024637934444173e2, 1.28261652607737228e3, 2.84423683343917062e3};
        const double z = a * a;
        return 1 - kept(v * (polynomial(p, z) / polynomial(q, z)));
    }
    double tail = 0;
    if (a <= 4) {
        constexpr double p[] = {2.15311535474403846e-8, 5.64188496988670089e-1, 8.88314979438837594e0,
                                6.61191906371416295e1,  2.98635138197400131e2,  8.81952221241769090e2,
                                1.71204761263407058e3,  2.05107837782607147e3,  1.23033935479799725e3};
        constexpr double q[] = {1.0,
                                1.57449261107098347e1,
                                1.17693950891312499e2,
                                5.37181101862009858e2,
                                1.62138957456669019e3,
                                3.29079923573345963e3,
                                4.36261909014324716e3,
                                3.43936767414372164e3,
                                1.23033935480374942e3};
        tail = polynomial(p, a) / polynomial(q, a);
    } else {
        constexpr double p[] = {1.63153871373020978e-2, 3.05326634961232344e-1, 3.60344899949804439e-1,
                                1.25781726111229246e-1, 1.60837851487422766e-2, 6.58749161529837803e-4};
        constexpr double q[] = {
            1.0, 2.56852019228982242e0, 1.87295284992346725e0, 5.27905102951428412e-1, 6.05183413124413191e-2, 2.33520497626869185e-3};
        const double z = 1 / (a * a);
        tail = (0x1.20dd750429b6dp-1 - kept(z * (polynomial(p, z) / polynomial(q, z)))) / a;
    }
    // e^(-a^2) in two factors: the square of a's first bits is exact.
    const double first = static_cast<double>(static_cast<std::int64_t>(a < 100 ? a * 16 : 1600)) / 16;
    const double second = (a - first) * (a + first);
    tail = kept(kept(exponential(-(first * first)) * exponential(-second)) * tail);
    return v < 0 ? 2 - tail : tail;
}

/// Returns the activation of v.
QK_INLINE float activated(activation a, float v) noexcept {
    if (a == activation::none || v != v) return v;
    if (a == activation::relu) return v > 0 ? v : 0.0f;
    constexpr float infinity = std::numeric_limits<float>::infinity();
    if (v == infinity) return v;
    if (v == -infinity) return -0.0f;
    const auto d = static_cast<double>(v);
    if (a == activation::silu) return static_cast<float>(d / (1 + exponential(-d)));
    if (a == activation::gelu) return static_cast<float>(kept(0.5 * d) * complementary_error(d * -0x1.6a09e667f3bcdp-1));
    const double u = kept(0x1.9884533d43651p0 * multiply_add(kept(0.044715 * d), kept(d * d), d));  // twice the square root of 2 / pi
    return static_cast<float>(d / (1 + exponential(-u)));
}

}  // namespace QK_ISA
}  // namespace detail
}  // namespace qk
