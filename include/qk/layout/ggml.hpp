// SPDX-License-Identifier: Apache-2.0
// ggml's blocks: bytes to floats as dequantize_row_* of ggml-quants.c does it, and bytes to codes and back.
// Most products here are exact in float32 (11 bits of an fp16 scale, at most 8 of a sub-scale, a few of a code), so a compiler that
// contracts to FMA gives the same bits; where a product rounds (q6_k, iq4_xs), nothing is added to it.
#pragma once

#include <bit>
#include <cstring>
#include <limits>
#include <type_traits>

#include "qk/inline.hpp"
#include "qk/isa.hpp"
#include "qk/layout/values.hpp"
#include "qk/storage.hpp"

namespace qk::layout_parts {
inline namespace QK_ISA {

constexpr float half_to_float(std::uint16_t h) { return widen(float16{h}); }
constexpr float bfloat_to_float(std::uint16_t b) { return widen(bfloat16{b}); }

/// 2^(code - 127). 255 is NaN in OCP's rule.
constexpr float e8m0_to_float(std::uint8_t code) {
    if (code == 255) return std::numeric_limits<float>::quiet_NaN();
    return std::bit_cast<float>(code == 0 ? 0x00400000u : std::uint32_t{code} << 23);
}
/// FP8 E4M3 of OCP: bias 7, 0x7f and 0xff are NaN, no infinities.
constexpr float e4m3_to_float(std::uint8_t code) {
    const int exponent = code >> 3 & 15, mantissa = code & 7;
    if (exponent == 15 && mantissa == 7) return std::bit_cast<float>(0x7fc00000u | std::uint32_t{code} >> 7 << 31);
    const float magnitude = exponent == 0 ? static_cast<float>(mantissa) * 0x1p-9f
                                          : std::bit_cast<float>(static_cast<std::uint32_t>((exponent + 120) << 23 | mantissa << 20));
    return code >> 7 ? -magnitude : magnitude;
}
constexpr float e5m2_to_float(std::uint8_t code) { return half_to_float(static_cast<std::uint16_t>(code << 8)); }

/// Small floats without special codes: E2M1, E2M3, E3M2.
constexpr float minifloat(unsigned code, int exponent_bits, int mantissa_bits) {
    const unsigned mantissa = code & ((1u << mantissa_bits) - 1), exponent = code >> mantissa_bits & ((1u << exponent_bits) - 1);
    const int bias = (1 << (exponent_bits - 1)) - 1;
    const unsigned significand = exponent == 0 ? mantissa : mantissa | 1u << mantissa_bits;
    const int power = static_cast<int>(exponent == 0 ? 1 : exponent) - bias - mantissa_bits;
    float value = static_cast<float>(significand);
    for (int k = 0; k < power; ++k) value *= 2;
    for (int k = 0; k > power; --k) value /= 2;
    return code >> (exponent_bits + mantissa_bits) & 1u ? -value : value;
}

/// A scale of ggml's nvfp4: E4M3 whose sign is passed over and which has no NaN: 0x7f is 0, and 0xff is 480.
constexpr float ue4m3_to_float(std::uint8_t code) {
    const int exponent = code >> 3 & 15, mantissa = code & 7;
    if (code == 0x7f) return 0.0f;
    if (exponent == 0) return static_cast<float>(mantissa) * 0x1p-9f;
    return std::bit_cast<float>(static_cast<std::uint32_t>((exponent + 120) << 23 | mantissa << 20));
}

inline constexpr std::int8_t iq4_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
inline constexpr std::int8_t doubled_e2m1[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

inline float half_at(const std::uint8_t* p) {
    std::uint16_t h;
    std::memcpy(&h, p, 2);
    return half_to_float(h);
}

/// Sub-scale and minimum number j of q4_k and q5_k: 6 bits each in 12 bytes.
struct scale_and_minimum {
    int scale, minimum;
};
inline scale_and_minimum k4_scale(const std::uint8_t* q, int j) {
    if (j < 4) return {q[j] & 63, q[j + 4] & 63};
    return {(q[j + 4] & 15) | q[j - 4] >> 6 << 4, q[j + 4] >> 4 | q[j] >> 6 << 4};
}
/// The 16 sub-scales of q3_k, 6 bits each in 12 bytes.
inline int k3_scale(const std::uint8_t* q, int j) {
    const int low = j < 8 ? q[j] & 15 : q[j - 8] >> 4;
    return (low | (q[8 + j % 4] >> (2 * (j / 4)) & 3) << 4) - 32;
}
inline int iq4_xs_scale(const std::uint8_t* block, int j) {
    std::uint16_t high;
    std::memcpy(&high, block + 2, 2);
    return ((block[4 + j / 2] >> (4 * (j % 2)) & 15) | (high >> (2 * j) & 3) << 4) - 32;
}
/// Trit number `index` of a byte that holds five: ggml multiplies up and takes the top.
constexpr unsigned trit(std::uint8_t byte, int index) {
    constexpr std::uint8_t power[5] = {1, 3, 9, 27, 81};
    return static_cast<std::uint8_t>(byte * power[index]) * 3u >> 8;
}

}  // namespace QK_ISA
}  // namespace qk::layout_parts

namespace qk {

inline namespace QK_ISA {

/// Returns the code of value `i` in a block, as ggml stores it: for q5_0 all five bits, for the trits 0, 1 or 2. The types of one number a
/// value (f32, i8 ...) have no codes.
QK_INLINE constexpr unsigned ggml_code(ggml_type type, const std::uint8_t* block, unsigned i) {
    using enum ggml_type;
    const unsigned half = i % 32, j = half % 16;  // of blocks of 32 whose nibbles hold its halves
    const auto nibble = [&](const std::uint8_t* q) { return half < 16 ? q[j] & 15u : q[j] >> 4u; };
    const auto high_bit = [&](const std::uint8_t* q) { return (q[half / 8] >> (half % 8) & 1u) << 4; };
    switch (type) {
        case q4_0:
        case iq4_nl: return nibble(block + 2);
        case q4_1: return nibble(block + 4);
        case q5_0: return nibble(block + 6) | high_bit(block + 2);
        case q5_1: return nibble(block + 8) | high_bit(block + 4);
        case q8_0: return block[2 + i];
        case q8_1: return block[4 + i];
        case q8_k: return block[4 + i];
        case mxfp4: return nibble(block + 1);
        case nvfp4: return block[4 + i / 16 * 8 + i % 8] >> (i % 16 / 8 * 4) & 15u;
        case q1_0: return block[2 + i / 8] >> (i % 8) & 1u;
        case q2_0: return block[2 + i / 4] >> (i % 4 * 2) & 3u;
        case q2_k: return block[16 + i / 128 * 32 + i % 32] >> (i / 32 % 4 * 2) & 3u;
        case q3_k: return (block[32 + i / 128 * 32 + i % 32] >> (i / 32 % 4 * 2) & 3u) | (block[i % 32] >> (i / 32) & 1u) << 2;
        case q4_k: return block[16 + i / 64 * 32 + i % 32] >> (i / 32 % 2 * 4) & 15u;
        case q5_k: return (block[48 + i / 64 * 32 + i % 32] >> (i / 32 % 2 * 4) & 15u) | (block[16 + i % 32] >> (i / 32) & 1u) << 4;
        case q6_k:
            return (block[i / 128 * 64 + i % 64] >> (i % 128 / 64 * 4) & 15u) |
                   (block[128 + i / 128 * 32 + i % 32] >> (i / 32 % 4 * 2) & 3u) << 4;
        case iq4_xs: return block[8 + i / 32 * 16 + j] >> (half / 16 * 4) & 15u;
        case tq2_0: return block[i / 128 * 32 + i % 32] >> (i / 32 % 4 * 2) & 3u;
        case tq1_0:
            if (i < 160) return layout_parts::trit(block[i % 32], static_cast<int>(i / 32));
            if (i < 240) return layout_parts::trit(block[32 + (i - 160) % 16], static_cast<int>((i - 160) / 16));
            return layout_parts::trit(block[48 + (i - 240) % 4], static_cast<int>((i - 240) / 4));
        default: return 0;
    }
}

}  // namespace QK_ISA

namespace layout_parts {
inline namespace QK_ISA {
/// Writes value(i, code) of every value of a block. The type is a constant, so that the loops have no switch.
template <ggml_type Type, class Value>
QK_INLINE void each_code(const std::uint8_t* block, float* y, Value value) {
    constexpr unsigned count = facts_of(Type).values;  // a constant: a call for each value would keep the loop from being made of vectors
    for (unsigned i = 0; i < count; ++i) y[i] = value(i, ggml_code(Type, block, i));
}
constexpr float centred(unsigned code, int middle) { return static_cast<float>(static_cast<int>(code) - middle); }
constexpr float signed_code(unsigned code) { return static_cast<float>(static_cast<std::int8_t>(code)); }

/// Values d * (code - middle), with the fp16 d at `place`.
template <ggml_type Type>
QK_INLINE void decode_centred(const std::uint8_t* block, float* y, unsigned place, int middle) {
    each_code<Type>(block, y, [middle, d = half_at(block + place)](unsigned, unsigned c) { return d * centred(c, middle); });
}
/// Values d * code + m.
template <ggml_type Type>
QK_INLINE void decode_affine(const std::uint8_t* b, float* y) {
    each_code<Type>(b, y, [d = half_at(b), m = half_at(b + 2)](unsigned, unsigned c) { return d * static_cast<float>(c) + m; });
}
/// q4_k and q5_k: (d * scale) * code - dmin * minimum.
template <ggml_type Type>
QK_INLINE void decode_k4(const std::uint8_t* b, float* y) {
    float scale[8], minimum[8];
    for (int j = 0; j < 8; ++j) {
        const auto s = k4_scale(b + 4, j);
        scale[j] = half_at(b) * static_cast<float>(s.scale), minimum[j] = half_at(b + 2) * static_cast<float>(s.minimum);
    }
    each_code<Type>(b, y, [&](unsigned i, unsigned c) { return scale[i / 32] * static_cast<float>(c) - minimum[i / 32]; });
}
inline void decode_number(ggml_type type, const std::uint8_t* b, float* y) {
    std::uint16_t half;
    std::memcpy(&half, b, 2);
    if (type == ggml_type::f32) std::memcpy(y, b, 4);
    else if (type == ggml_type::f16) *y = half_to_float(half);
    else if (type == ggml_type::bf16) *y = bfloat_to_float(half);
    else {
        double v;
        std::memcpy(&v, b, 8);
        *y = static_cast<float>(v);
    }
}
}  // namespace QK_ISA
}  // namespace layout_parts

inline namespace QK_ISA {

/// Turns one block into floats, as ggml does. `readable` of facts_of(type) must hold.
inline void decode_ggml(ggml_type type, const std::uint8_t* b, float* y) {
    using enum ggml_type;
    using namespace layout_parts;
    switch (type) {
        case q4_0: return decode_centred<q4_0>(b, y, 0, 8);
        case q5_0: return decode_centred<q5_0>(b, y, 0, 16);
        case q2_0: return decode_centred<q2_0>(b, y, 0, 1);
        case tq1_0: return decode_centred<tq1_0>(b, y, 52, 1);
        case tq2_0: return decode_centred<tq2_0>(b, y, 64, 1);
        case q4_1: return decode_affine<q4_1>(b, y);
        case q5_1: return decode_affine<q5_1>(b, y);
        case q4_k: return decode_k4<q4_k>(b, y);
        case q5_k: return decode_k4<q5_k>(b, y);
        case q8_0: return each_code<q8_0>(b, y, [d = half_at(b)](unsigned, unsigned c) { return d * signed_code(c); });
        case q8_1: return each_code<q8_1>(b, y, [d = half_at(b)](unsigned, unsigned c) { return d * signed_code(c); });
        case q8_k: {
            float d;
            std::memcpy(&d, b, 4);
            return each_code<q8_k>(b, y, [d](unsigned, unsigned c) { return d * signed_code(c); });
        }
        case iq4_nl:
            return each_code<iq4_nl>(b, y, [d = half_at(b)](unsigned, unsigned c) { return d * static_cast<float>(iq4_values[c]); });
        case mxfp4: {  // the values are doubled and the scale is halved: code 255 is 2^128 and no NaN
            const float d = std::bit_cast<float>(b[0] < 2 ? 0x00200000u << b[0] : (b[0] - 1u) << 23);
            return each_code<mxfp4>(b, y, [d](unsigned, unsigned c) { return d * static_cast<float>(doubled_e2m1[c]); });
        }
        case nvfp4: {
            const float d[4] = {ue4m3_to_float(b[0]) * 0.5f, ue4m3_to_float(b[1]) * 0.5f, ue4m3_to_float(b[2]) * 0.5f,
                                ue4m3_to_float(b[3]) * 0.5f};
            return each_code<nvfp4>(b, y, [&d](unsigned i, unsigned c) { return d[i / 16] * static_cast<float>(doubled_e2m1[c]); });
        }
        case q1_0: return each_code<q1_0>(b, y, [d = half_at(b)](unsigned, unsigned c) { return c != 0 ? d : -d; });
        case q2_k:
            return each_code<q2_k>(b, y, [b, d = half_at(b + 80), m = half_at(b + 82)](unsigned i, unsigned c) {
                const unsigned s = b[i / 16];
                return d * static_cast<float>(s & 15) * static_cast<float>(c) - m * static_cast<float>(s >> 4);
            });
        case q3_k: {  // the third bit counts upwards from -4
            float d[16];
            for (int j = 0; j < 16; ++j) d[j] = half_at(b + 108) * static_cast<float>(k3_scale(b + 96, j));
            return each_code<q3_k>(b, y, [&d](unsigned i, unsigned c) { return d[i / 16] * centred(c, 4); });
        }
        case q6_k:
            return each_code<q6_k>(
                b, y, [b, d = half_at(b + 208)](unsigned i, unsigned c) { return d * signed_code(b[192 + i / 16]) * centred(c, 32); });
        case iq4_xs: {
            float d[8];
            for (int j = 0; j < 8; ++j) d[j] = half_at(b) * static_cast<float>(iq4_xs_scale(b, j));
            return each_code<iq4_xs>(b, y, [&d](unsigned i, unsigned c) { return d[i / 32] * static_cast<float>(iq4_values[c]); });
        }
        default: return decode_number(type, b, y);
    }
}

/// Puts code `i` into a block, and leaves everything else in it alone. The inverse of ggml_code, except for tq1_0, whose bytes hold five
/// codes: see put_trits.
inline void put_ggml_code(ggml_type type, std::uint8_t* block, unsigned i, unsigned code) {
    using enum ggml_type;
    const unsigned half = i % 32, j = half % 16;
    const auto put = [](std::uint8_t& byte, unsigned shift, unsigned bits, unsigned value) {
        const unsigned mask = ((1u << bits) - 1) << shift;
        byte = static_cast<std::uint8_t>((byte & ~mask) | (value << shift & mask));
    };
    const auto nibble = [&](std::uint8_t* q) { put(q[j], half / 16 * 4, 4, code); };
    const auto high_bit = [&](std::uint8_t* q) { put(q[half / 8], half % 8, 1, code >> 4); };
    switch (type) {
        case q4_0:
        case iq4_nl: return nibble(block + 2);
        case q4_1: return nibble(block + 4);
        case q5_0: return nibble(block + 6), high_bit(block + 2);
        case q5_1: return nibble(block + 8), high_bit(block + 4);
        case q8_0: return put(block[2 + i], 0, 8, code);
        case q8_1:
        case q8_k: return put(block[4 + i], 0, 8, code);
        case mxfp4: return nibble(block + 1);
        case nvfp4: return put(block[4 + i / 16 * 8 + i % 8], i % 16 / 8 * 4, 4, code);
        case q1_0: return put(block[2 + i / 8], i % 8, 1, code);
        case q2_0: return put(block[2 + i / 4], i % 4 * 2, 2, code);
        case q2_k: return put(block[16 + i / 128 * 32 + i % 32], i / 32 % 4 * 2, 2, code);
        case q3_k: return put(block[32 + i / 128 * 32 + i % 32], i / 32 % 4 * 2, 2, code), put(block[i % 32], i / 32, 1, code >> 2);
        case q4_k: return put(block[16 + i / 64 * 32 + i % 32], i / 32 % 2 * 4, 4, code);
        case q5_k: return put(block[48 + i / 64 * 32 + i % 32], i / 32 % 2 * 4, 4, code), put(block[16 + i % 32], i / 32, 1, code >> 4);
        case q6_k:
            return put(block[i / 128 * 64 + i % 64], i % 128 / 64 * 4, 4, code),
                   put(block[128 + i / 128 * 32 + i % 32], i / 32 % 4 * 2, 2, code >> 4);
        case iq4_xs: return put(block[8 + i / 32 * 16 + j], half / 16 * 4, 4, code);
        case tq2_0: return put(block[i / 128 * 32 + i % 32], i / 32 % 4 * 2, 2, code);
        default: return;
    }
}

/// Fills the bytes of a tq1_0 block from its 256 codes 0, 1, 2: five trits a byte (four in the last four), stored as ceil(256 n / 243).
inline void put_trits(std::uint8_t* block, const std::uint8_t* codes) {
    const auto store = [&](std::uint8_t& byte, const std::uint8_t* first, int stride, int count) {
        unsigned n = 0;
        for (int k = 0; k < 5; ++k) n = 3 * n + (k < count ? first[k * stride] : 0);
        byte = static_cast<std::uint8_t>((n * 256 + 242) / 243);
    };
    for (int k = 0; k < 32; ++k) store(block[k], codes + k, 32, 5);
    for (int k = 0; k < 16; ++k) store(block[32 + k], codes + 160 + k, 16, 5);
    for (int k = 0; k < 4; ++k) store(block[48 + k], codes + 240 + k, 4, 4);
}

}  // namespace QK_ISA

}  // namespace qk
