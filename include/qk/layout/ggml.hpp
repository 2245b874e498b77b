// SPDX-License-Identifier: Apache-2.0
// ggml's blocks: bytes to floats as dequantize_row_* of ggml-quants.c does it, and bytes to codes and back.
// Where something is added, the products are exact in float32 (11 bits of an fp16 scale, at most 6 of a sub-scale, a few of a code), so a
// compiler that contracts to FMA gives the same bits.
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
/// What the values of a block are: number(code) * factor[i / run], and where a type adds something to them, + added[i / run].
template <ggml_type Type>
struct block_parts {
    using enum ggml_type;
    static constexpr unsigned values = facts_of(Type).values;
    static constexpr unsigned run = Type == q2_k || Type == q3_k || Type == q6_k || Type == nvfp4 ? 16
                                    : Type == q4_k || Type == q5_k || Type == iq4_xs              ? 32
                                                                                                  : values;
    static constexpr unsigned runs = values / run;
    static constexpr bool adds = Type == q4_1 || Type == q5_1 || Type == q2_k || Type == q4_k || Type == q5_k;

    static constexpr int number(unsigned code) {
        switch (Type) {
            case q4_0: return static_cast<int>(code) - 8;
            case q5_0: return static_cast<int>(code) - 16;
            case q2_0:
            case tq1_0:
            case tq2_0: return static_cast<int>(code) - 1;
            case q3_k: return static_cast<int>(code) - 4;  // the third bit counts upwards from -4
            case q6_k: return static_cast<int>(code) - 32;
            case q8_0:
            case q8_1:
            case q8_k: return static_cast<std::int8_t>(code);
            case iq4_nl:
            case iq4_xs: return iq4_values[code];
            case mxfp4:
            case nvfp4: return doubled_e2m1[code];
            case q1_0: return code != 0 ? 1 : -1;
            default: return static_cast<int>(code);
        }
    }
    QK_INLINE static void read(const std::uint8_t* b, float* factor, [[maybe_unused]] float* added) {
        // What is subtracted is added with the other sign, so that a minimum of 0 is taken from a weight of -0 as ggml takes it.
        for (unsigned j = 0; j < runs; ++j) {
            if constexpr (Type == q4_1 || Type == q5_1) {
                factor[j] = half_at(b), added[j] = half_at(b + 2);
            } else if constexpr (Type == q4_k || Type == q5_k) {
                const auto s = k4_scale(b + 4, static_cast<int>(j));
                factor[j] = half_at(b) * static_cast<float>(s.scale), added[j] = -(half_at(b + 2) * static_cast<float>(s.minimum));
            } else if constexpr (Type == q2_k) {
                factor[j] = half_at(b + 80) * static_cast<float>(b[j] & 15), added[j] = -(half_at(b + 82) * static_cast<float>(b[j] >> 4));
            } else if constexpr (Type == q3_k) {
                factor[j] = half_at(b + 108) * static_cast<float>(k3_scale(b + 96, static_cast<int>(j)));
            } else if constexpr (Type == q6_k) {
                factor[j] = half_at(b + 208) * static_cast<float>(static_cast<std::int8_t>(b[192 + j]));
            } else if constexpr (Type == iq4_xs) {
                factor[j] = half_at(b) * static_cast<float>(iq4_xs_scale(b, static_cast<int>(j)));
            } else if constexpr (Type == mxfp4) {  // the values are doubled and the scale is halved: code 255 is 2^128 and no NaN
                factor[j] = std::bit_cast<float>(b[0] < 2 ? 0x00200000u << b[0] : (b[0] - 1u) << 23);
            } else if constexpr (Type == nvfp4) {
                factor[j] = ue4m3_to_float(b[j]) * 0.5f;
            } else if constexpr (Type == q8_k) {
                std::memcpy(factor, b, sizeof *factor);
            } else {
                factor[j] = half_at(b + (Type == tq1_0 ? 52 : Type == tq2_0 ? 64 : 0));
            }
        }
    }
};
template <ggml_type Type>
QK_INLINE void decode_block(const std::uint8_t* b, float* y) {
    using parts = block_parts<Type>;
    float factor[parts::runs], added[parts::runs];
    parts::read(b, factor, added);
    for (unsigned i = 0; i < parts::values; ++i) {
        y[i] = factor[i / parts::run] * static_cast<float>(parts::number(ggml_code(Type, b, i)));
        if constexpr (parts::adds) y[i] += added[i / parts::run];
    }
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

/// Calls `call` with the type as its template argument, where the type's values are whole numbers times a factor; else returns false.
template <class Call>
QK_INLINE bool with_ggml_type(ggml_type type, const Call& call) {
    using enum ggml_type;
    const auto is = [&]<ggml_type... Type>() QK_INLINE_CALL { return ((type == Type && (call.template operator()<Type>(), true)) || ...); };
    return is.template operator()<q4_0, q4_1, q5_0, q5_1, q8_0, q8_1, q8_k, q2_k, q3_k, q4_k, q5_k, q6_k, iq4_nl, iq4_xs, tq1_0, tq2_0,
                                  mxfp4, nvfp4, q1_0, q2_0>();
}

/// Turns one block into floats, as ggml does. `readable` of facts_of(type) must hold.
inline void decode_ggml(ggml_type type, const std::uint8_t* b, float* y) {
    if (!with_ggml_type(type, [&]<ggml_type Type>() QK_INLINE_CALL { layout_parts::decode_block<Type>(b, y); }))
        layout_parts::decode_number(type, b, y);
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
