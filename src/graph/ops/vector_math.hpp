// SPDX-License-Identifier: Apache-2.0
// Computes exp, log, tanh, erf and related functions of float32 as branch-free vector code, to about 1 to 2 ulp
// (tests/graph/vector_math.cpp says how many). An element's bits do not depend on its position.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>

namespace qk::graph::ops {

#if defined(__AVX512F__)
inline constexpr std::size_t vector_bytes = 64;
#elif defined(__AVX__)
inline constexpr std::size_t vector_bytes = 32;
#else
inline constexpr std::size_t vector_bytes = 16;
#endif

// Vector types of g++ and clang: arithmetic, comparison and ?: work by lane. A scalar operand is broadcast.
using vfloat = float __attribute__((vector_size(vector_bytes)));
using vint = std::int32_t __attribute__((vector_size(vector_bytes)));
using vuint = std::uint32_t __attribute__((vector_size(vector_bytes)));
inline constexpr std::size_t vector_lanes = vector_bytes / sizeof(float);

inline vfloat vector_load(const float* p) {
    vfloat v;
    std::memcpy(&v, p, sizeof v);
    return v;
}
inline void vector_store(float* p, vfloat v) { std::memcpy(p, &v, sizeof v); }
inline vfloat vector_fill(float x) { return vfloat{} + x; }
inline vfloat vector_abs(vfloat x) { return std::bit_cast<vfloat>(std::bit_cast<vuint>(x) & 0x7fffffffu); }
inline vfloat vector_sign_of(vfloat magnitude, vfloat sign) {
    return std::bit_cast<vfloat>((std::bit_cast<vuint>(magnitude) & 0x7fffffffu) | (std::bit_cast<vuint>(sign) & 0x80000000u));
}
/// Computes max(x, low) and min(x, high), but keeps a NaN of x.
inline vfloat vector_at_least(vfloat x, vfloat low) { return x < low ? low : x; }
inline vfloat vector_at_most(vfloat x, vfloat high) { return x > high ? high : x; }

/// Computes y[i] = f(x[i]) by whole vectors. The last, partial vector is padded and goes through the same code, so that an element's result
/// does not depend on its position. y may be x.
template <class F>
void map_vectors(const float* x, float* y, std::size_t n, F f) {
    std::size_t i = 0;
    for (; i + vector_lanes <= n; i += vector_lanes) vector_store(y + i, f(vector_load(x + i)));
    if (i < n) {
        float pad[vector_lanes] = {};
        std::memcpy(pad, x + i, (n - i) * sizeof(float));
        vector_store(pad, f(vector_load(pad)));
        std::memcpy(y + i, pad, (n - i) * sizeof(float));
    }
}

/// Splits e^x = power 2^n: x = n ln2 + r with |r| <= ln2 / 2, and power is e^r by a polynomial (error 4e-9).
struct exponential {
    vfloat power;
    vint n;
    explicit exponential(vfloat x) {
        const vfloat magic = vector_fill(0x1.8p23f);  // adding it rounds to an integer, which then stands in the low bits
        const vfloat shifted = x * 0x1.715476p+0f + magic;
        n = std::bit_cast<vint>(std::bit_cast<vuint>(shifted) - std::bit_cast<vuint>(magic));
        const vfloat k = shifted - magic;
        const vfloat r = (x - k * 0x1.62e4p-1f) - k * 0x1.7f7d1cp-20f;  // ln2 = 0x1.62e4p-1 (exact times k) + the rest
        vfloat p = r * 1.395048574e-03f + 8.368887939e-03f;
        p = p * r + 4.166620597e-02f;
        p = p * r + 1.666651815e-01f;
        p = p * r + 0.5f;
        power = p * (r * r) + r + 1.0f;
    }
};

/// e^x. 2^n is multiplied in as two factors, so that subnormal results come out right.
inline vfloat vexp(vfloat x) {
    const exponential e(vector_at_most(vector_at_least(x, vector_fill(-104.0f)), vector_fill(89.0f)));
    const vint half = e.n >> 1;
    const vfloat first = std::bit_cast<vfloat>(std::bit_cast<vuint>(half + 127) << 23);
    const vfloat second = std::bit_cast<vfloat>(std::bit_cast<vuint>(e.n - half + 127) << 23);
    return e.power * first * second;
}

/// e^x for x in [-80, 80], where n can be added to the exponent.
inline vfloat vexp_of_moderate(vfloat x) {
    const exponential e(x);
    return std::bit_cast<vfloat>(std::bit_cast<vuint>(e.power) + (std::bit_cast<vuint>(e.n) << 23));
}

/// ln(x), by x = m 2^e with m in [sqrt(1/2), sqrt(2)) and a polynomial in m - 1.
inline vfloat vlog(vfloat x) {
    const vfloat tiny = vector_fill(std::numeric_limits<float>::min());
    const auto subnormal = x < tiny;
    const vfloat scaled = subnormal ? x * 0x1p23f : x;
    const vuint bits = std::bit_cast<vuint>(scaled) - 0x3f3504f3u;  // the bits of sqrt(1/2), where the exponent e steps
    const vint e = (std::bit_cast<vint>(bits) >> 23);
    const vfloat m = std::bit_cast<vfloat>((bits & 0x007fffffu) + 0x3f3504f3u);
    const vfloat f = m - 1.0f;
    vfloat p = f * 6.915368140e-02f - 1.178980768e-01f;
    p = p * f + 1.187297627e-01f;
    p = p * f - 1.238434836e-01f;
    p = p * f + 1.421865821e-01f;
    p = p * f - 1.666925102e-01f;
    p = p * f + 2.000222653e-01f;
    p = p * f - 2.499998659e-01f;
    p = p * f + 3.333331048e-01f;
    const vfloat k = __builtin_convertvector(e, vfloat) - (subnormal ? vector_fill(23.0f) : vector_fill(0.0f));
    const vfloat ff = f * f;
    vfloat y = k * 0x1.7f7d1cp-20f + ff * f * p;
    y = y - ff * 0.5f;
    y = (y + f) + k * 0x1.62e4p-1f;
    constexpr float inf = std::numeric_limits<float>::infinity();
    y = x == 0.0f ? vector_fill(-inf) : y;
    y = x < 0.0f ? vector_fill(std::numeric_limits<float>::quiet_NaN()) : y;
    return x < inf ? y : x + (x < 0.0f ? y : x);  // +Inf and NaN return themselves
}

/// ln(1 + u) for u >= 0, corrected by the rounding error of 1 + u.
inline vfloat vlog1p_positive(vfloat u) {
    const vfloat s = 1.0f + u;
    const vfloat lost = u - (s - 1.0f);
    return s < std::numeric_limits<float>::infinity() ? vlog(s) + lost / s : s;
}

/// 1 / (1 + e^-x), computed from e^-|x| so that nothing overflows and small results keep their accuracy.
inline vfloat vsigmoid(vfloat x) {
    const vfloat e = vexp(-vector_abs(x));
    return (x < 0.0f ? e : vector_fill(1.0f)) / (1.0f + e);
}

/// tanh(x): an odd polynomial for |x| <= 0.625 (error 4e-9), else 1 - 2 / (e^2|x| + 1) with the sign of x.
inline vfloat vtanh(vfloat x) {
    const vfloat a = vector_abs(x);
    const vfloat z = x * x;
    vfloat p = z * -5.717036780e-03f + 2.065057866e-02f;
    p = p * z - 5.374349654e-02f;
    p = p * z + 1.333149076e-01f;
    p = p * z - 3.333328366e-01f;
    const vfloat small = p * z * x + x;
    const vfloat large = vector_sign_of(1.0f - 2.0f / (vexp_of_moderate(vector_at_most(a + a, vector_fill(20.0f))) + 1.0f), x);
    return a > 0.625f ? large : small;
}

/// erf(x): an odd polynomial for |x| <= 0.95, else 1 - e^-q with q fitted to -ln(erfc) and the sign of x.
inline vfloat verf(vfloat x) {
    const vfloat a = vector_at_most(vector_abs(x), vector_fill(4.0f));
    const vfloat z = x * x;
    vfloat p = z * 8.215423441e-05f - 8.105965098e-04f;
    p = p * z + 5.197796971e-03f;
    p = p * z - 2.685810439e-02f;
    p = p * z + 1.128367260e-01f;
    p = p * z - 3.761263192e-01f;
    p = p * z + 1.283792257e-01f;  // the rest of 2 / sqrt(pi): x itself is added exactly
    vfloat q = a * 2.149611282e-05f - 4.391063703e-04f;
    q = q * a + 4.193610977e-03f;
    q = q * a - 2.517896704e-02f;
    q = q * a + 1.083724797e-01f;
    q = q * a + 6.332626343e-01f;
    q = q * a + 1.129556775e+00f;
    q = q * a - 1.834441500e-04f;
    const vfloat large = vector_sign_of(1.0f - vexp_of_moderate(-q), x);
    return a > 0.95f ? large : p * x + x;
}

/// ln(1 + e^x) without overflow.
inline vfloat vsoftplus(vfloat x) { return vector_at_least(x, vector_fill(0.0f)) + vlog1p_positive(vexp(-vector_abs(x))); }

/// Returns fold(...fold(start, map(x[0]))..., map(x[n-1])) in an order that depends on n alone: within lanes first, then across them.
/// `start` must be neutral for fold. map and fold must take both float and vfloat.
template <class Map, class Fold>
float fold_row(const float* x, std::size_t n, float start, Map map, Fold fold) {
    vfloat part[4];
    for (vfloat& p : part) p = vector_fill(start);
    std::size_t i = 0;
    for (; i + 4 * vector_lanes <= n; i += 4 * vector_lanes)
        for (std::size_t k = 0; k < 4; ++k) part[k] = fold(part[k], map(vector_load(x + i + k * vector_lanes)));
    for (; i + vector_lanes <= n; i += vector_lanes) part[0] = fold(part[0], map(vector_load(x + i)));
    float lanes[vector_lanes];
    vector_store(lanes, fold(fold(part[0], part[1]), fold(part[2], part[3])));
    for (std::size_t k = 0; i < n; ++i, ++k) lanes[k] = fold(lanes[k], map(x[i]));
    for (std::size_t width = vector_lanes / 2; width > 0; width /= 2)
        for (std::size_t k = 0; k < width; ++k) lanes[k] = fold(lanes[k], lanes[k + width]);
    return lanes[0];
}

inline float vector_sum(const float* x, std::size_t n) {
    return fold_row(
        x, n, 0.0f, [](auto v) { return v; }, [](auto a, auto b) { return a + b; });
}

/// Returns the larger or smaller of two values, NaN if either is NaN. Takes floats and vectors.
struct vector_larger {
    template <class V>
    V operator()(V a, V b) const {
        return a > b ? a : (a == a ? b : a);
    }
};
struct vector_smaller {
    template <class V>
    V operator()(V a, V b) const {
        return a < b ? a : (a == a ? b : a);
    }
};

/// Returns the largest element of a row: -Inf if it is empty, NaN if one element is NaN.
inline float vector_max(const float* x, std::size_t n) {
    return fold_row(
        x, n, -std::numeric_limits<float>::infinity(), [](auto v) { return v; }, vector_larger{});
}

}  // namespace qk::graph::ops
