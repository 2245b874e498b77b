// SPDX-License-Identifier: Apache-2.0
// Small floats as the systems' packages cast to them, and the few functions of numpy and PyTorch that their rules are made of. Every
// operation is one float32 operation in the order that it is written in: the target is compiled without contraction to FMA.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>

#include "qk/exact/flags.hpp"

namespace qk::systems {

inline constexpr float infinity = std::numeric_limits<float>::infinity();
inline constexpr float quiet_nan = std::numeric_limits<float>::quiet_NaN();
inline constexpr float largest_float = std::numeric_limits<float>::max();

inline std::uint32_t bits_of(float v) { return std::bit_cast<std::uint32_t>(v); }
inline float float_of(std::uint32_t bits) { return std::bit_cast<float>(bits); }
inline std::uint32_t magnitude_bits(float v) { return bits_of(v) & 0x7fffffffu; }

/// 2^e for any e; subnormal below -126, 0 below -149, Inf above 127.
inline float power_of_two(int e) { return e > 127 ? infinity : std::ldexp(1.0f, e); }

/// log2 rounded to float32 once, as PyTorch, numpy and a C library give it but for a last bit: ceil and floor of it step at a float32 just
/// beside a power of two, which some of the rules rely on.
inline float log2_float(float v) { return static_cast<float>(std::log2(static_cast<double>(v))); }

/// Code of |v| in a float with `mantissa` bits and `bias`, rounded to nearest even, subnormals included, without an end: codes go on
/// counting above the format's largest. v is finite.
inline std::uint32_t magnitude_code(float v, int mantissa, int bias) {
    const std::uint32_t bits = magnitude_bits(v);
    const int field = static_cast<int>(bits >> 23);
    const int exponent = (field == 0 ? 1 : field) - 127 + bias;  // of the target, biased
    if (exponent >= 1 && field != 0) {
        const int drop = 23 - mantissa;
        const std::uint32_t half = (1u << (drop - 1)) - 1 + ((bits >> drop) & 1);
        return ((bits + half) >> drop) - (static_cast<std::uint32_t>(127 - bias) << mantissa);
    }
    const std::uint32_t whole = (bits & 0x7fffffu) | (field == 0 ? 0 : 0x800000u);
    const int drop = 24 - mantissa - exponent;
    if (drop > 25) return 0;
    if (drop <= 0) return whole << -drop;
    return (whole + (1u << (drop - 1)) - 1 + ((whole >> drop) & 1)) >> drop;
}

inline float magnitude_value(std::uint32_t code, int mantissa, int bias) {
    const int field = static_cast<int>(code >> mantissa);
    const int fraction = static_cast<int>(code & ((1u << mantissa) - 1));
    if (field == 0) return std::ldexp(static_cast<float>(fraction), 1 - bias - mantissa);
    return std::ldexp(static_cast<float>(fraction + (1 << mantissa)), field - bias - mantissa);
}

/// torch.float8_e4m3fn: whatever is too large, Inf too, becomes 448; NaN is 0x7f with the sign.
inline std::uint8_t to_e4m3(float v) {
    const auto sign = static_cast<std::uint8_t>((bits_of(v) >> 24) & 0x80);
    if (std::isnan(v)) return sign | 0x7f;
    return static_cast<std::uint8_t>(sign | (std::abs(v) < 448.0f ? magnitude_code(v, 3, 7) : 0x7e));
}
inline float from_e4m3(std::uint8_t code) {
    const std::uint32_t magnitude = code & 0x7f;
    const float v = magnitude == 0x7f ? quiet_nan : magnitude_value(magnitude, 3, 7);
    return code & 0x80 ? -v : v;
}

/// torch.float8_e5m2: overflow is Inf.
inline std::uint8_t to_e5m2(float v) {
    const auto sign = static_cast<std::uint8_t>((bits_of(v) >> 24) & 0x80);
    if (std::isnan(v)) return sign | 0x7f;
    if (std::isinf(v)) return sign | 0x7c;
    const std::uint32_t code = magnitude_code(v, 2, 15);
    return static_cast<std::uint8_t>(sign | (code > 0x7c ? 0x7c : code));
}
inline float from_e5m2(std::uint8_t code) {
    const std::uint32_t magnitude = code & 0x7f;
    const float v = magnitude > 0x7c ? quiet_nan : magnitude == 0x7c ? infinity : magnitude_value(magnitude, 2, 15);
    return code & 0x80 ? -v : v;
}

inline std::uint16_t to_half(float v) {
    const auto sign = static_cast<std::uint16_t>((bits_of(v) >> 16) & 0x8000);
    if (std::isnan(v)) return static_cast<std::uint16_t>(sign | 0x7e00);
    if (std::isinf(v)) return static_cast<std::uint16_t>(sign | 0x7c00);
    const std::uint32_t code = magnitude_code(v, 10, 15);
    return static_cast<std::uint16_t>(sign | (code > 0x7c00 ? 0x7c00 : code));
}
inline float from_half(std::uint16_t code) {
    const std::uint32_t magnitude = code & 0x7fff;
    const float v = magnitude > 0x7c00 ? quiet_nan : magnitude == 0x7c00 ? infinity : magnitude_value(magnitude, 10, 15);
    return code & 0x8000 ? -v : v;
}
inline float through_half(float v) { return from_half(to_half(v)); }

/// Rounded to bfloat16, ties to even. A NaN keeps only its top bits, made quiet.
inline std::uint16_t to_bfloat16(float v) {
    const std::uint32_t bits = bits_of(v);
    if (std::isnan(v)) return static_cast<std::uint16_t>((bits >> 16) | 0x40);
    return static_cast<std::uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}
inline float from_bfloat16(std::uint16_t code) { return float_of(static_cast<std::uint32_t>(code) << 16); }
inline float through_bfloat16(float v) { return from_bfloat16(to_bfloat16(v)); }

/// UE5M3, the scale of NVFP4's successors: no sign, bias 15, 255 is NaN, largest 114688.
inline float from_ue5m3(std::uint8_t code) { return code == 0xff ? quiet_nan : magnitude_value(code, 3, 15); }

/// Magnitudes of E2M1 by their codes.
inline constexpr float e2m1_magnitudes[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};

/// Code of a magnitude in E2M1, to nearest, ties to even, everything above 5 is 6. NaN is `for_nan`.
inline std::uint8_t e2m1_even(float magnitude, std::uint8_t for_nan = 0) {
    const float a = magnitude;
    if (a != a) return for_nan;
    return static_cast<std::uint8_t>((a > 0.25f) + (a >= 0.75f) + (a > 1.25f) + (a >= 1.75f) + (a > 2.5f) + (a >= 3.5f) + (a > 5.0f));
}
/// With its sign: -0 and NaN have none.
inline std::uint8_t to_e2m1(float v, std::uint8_t for_nan = 0) {
    return static_cast<std::uint8_t>(e2m1_even(std::abs(v), for_nan) | (v < 0 ? 8 : 0));
}
inline float from_e2m1(std::uint8_t code) { return code & 8 ? -e2m1_magnitudes[code & 7] : e2m1_magnitudes[code & 7]; }

/// torch.clamp: NaN stays.
inline float clamp(float v, float low, float high) { return v < low ? low : v > high ? high : v; }

/// torch.amax of |x|: a NaN in it is the answer.
inline float absolute_maximum(std::span<const float> x) {
    float most = 0;
    for (const float v : x) {
        const float a = std::abs(v);
        if (a != a) return quiet_nan;
        if (a > most) most = a;
    }
    return most;
}

/// Of the finite ones alone.
inline float finite_maximum(std::span<const float> x) {
    float most = 0;
    for (const float v : x) {
        if (std::isfinite(v) && std::abs(v) > most) most = std::abs(v);
    }
    return most;
}
/// torch.round where a straight-through estimator adds x again: (round(x) - x) + x has no -0.
inline float round_without_negative_zero(float v) { return std::nearbyint(v) + 0.0f; }

/// The first element of largest magnitude with its sign, by C's comparisons: a NaN never wins.
inline float signed_maximum(std::span<const float> x) {
    float magnitude = 0, most = 0;
    for (const float v : x) {
        if (std::abs(v) > magnitude) {
            magnitude = std::abs(v);
            most = v;
        }
    }
    return most;
}

/// PyTorch's sum of a contiguous row on AVX2: lanes of eight, four accumulators from 32 values on, then the lanes one after another.
inline float torch_sum(std::span<const float> x) {
    float lanes[4][8] = {};
    const std::size_t vectors = x.size() / 8;
    const std::size_t quads = vectors / 4;
    for (std::size_t q = 0; q < quads; ++q) {
        for (std::size_t a = 0; a < 4; ++a) {
            for (std::size_t k = 0; k < 8; ++k) lanes[a][k] += x[(q * 4 + a) * 8 + k];
        }
    }
    for (std::size_t v = quads * 4; v < vectors; ++v) {
        for (std::size_t k = 0; k < 8; ++k) lanes[0][k] += x[v * 8 + k];
    }
    for (std::size_t a = 1; a < 4; ++a) {
        for (std::size_t k = 0; k < 8; ++k) lanes[0][k] += lanes[a][k];
    }
    float sum = 0;
    for (std::size_t i = vectors * 8; i < x.size(); ++i) sum += x[i];
    for (const float lane : lanes[0]) sum += lane;
    return sum;
}

}  // namespace qk::systems
