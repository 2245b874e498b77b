// SPDX-License-Identifier: Apache-2.0
// ggml's types with one scale (and perhaps a minimum) for each block. Low nibbles hold the first half of a block, high nibbles the second.
#include <algorithm>

#include "ggml_blocks.hpp"

namespace qk::systems::ggml {
namespace {

float mean_square(floats row) {
    float sum = 0;
    for (const float v : row) sum += v * v;
    return sum / static_cast<float>(row.size());
}

void store_nibbles(std::byte* to, std::span<const std::uint8_t, 32> codes) {
    for (std::size_t j = 0; j < 16; ++j) to[j] = byte_of((codes[j] & 15u) | (codes[j + 16] & 15u) << 4);
}
/// The fifth bits of 32 codes, a bit each.
void store_fifths(std::byte* to, std::span<const std::uint8_t, 32> codes) {
    for (std::size_t j = 0; j < 32; j += 8) {
        unsigned bits = 0;
        for (std::size_t k = 0; k < 8; ++k) bits |= ((codes[j + k] >> 4) & 1u) << k;
        to[j / 8] = byte_of(bits);
    }
}
unsigned nibble(const std::byte* from, std::size_t i) { return i < 16 ? number(from[i]) & 15 : number(from[i - 16]) >> 4; }
unsigned fifth(const std::byte* from, std::size_t i) { return ((number(from[i / 8]) >> (i % 8)) & 1) << 4; }

/// q4_0 and q5_0: the signed value of largest magnitude lands on the lowest code. The codes are made with the scale in float32; what is
/// stored is its half.
template <int Bits>
void quantize_symmetric(floats row, floats importance, bytes to) {
    constexpr int half = 1 << (Bits - 1);
    const float square = importance.empty() ? 0 : mean_square(row);
    each_block(32, Bits == 4 ? 18 : 22, row, importance, to, [&](floats x, floats weight, std::byte* block) {
        std::array<std::uint8_t, 32> codes;
        if (weight.empty()) {
            const float d = signed_maximum(x) / static_cast<float>(-half);
            const float id = d != 0 ? 1.0f / d : 0.0f;
            for (std::size_t i = 0; i < 32; ++i) {
                const float v = x[i] * id;
                const auto code = static_cast<std::int8_t>(truncated(v + (static_cast<float>(half) + 0.5f)));
                codes[i] = static_cast<std::uint8_t>(std::min(2 * half - 1, static_cast<int>(code)));
            }
            store_half(block, d);
        } else {
            std::array<float, 32> weights;
            std::array<std::int8_t, 32> found;
            weigh(x, weight, square, weights);
            store_half(block, search_signed(half, x, weights, found));
            std::copy(found.begin(), found.end(), codes.begin());
        }
        if (Bits == 5) store_fifths(block + 2, codes);
        store_nibbles(block + (Bits == 5 ? 6 : 2), codes);
    });
}
template <int Bits>
void dequantize_symmetric(const_bytes from, std::span<float> row) {
    each_block(32, Bits == 4 ? 18 : 22, from, row, [](const std::byte* block, std::span<float> y) {
        const float d = load_half(block);
        for (std::size_t i = 0; i < 32; ++i) {
            const unsigned code = Bits == 4 ? nibble(block + 2, i) : nibble(block + 6, i) | fifth(block + 2, i);
            y[i] = static_cast<float>(static_cast<int>(code) - (1 << (Bits - 1))) * d;
        }
    });
}

/// q4_1 and q5_1: a scale and a minimum.
template <int Bits>
void quantize_affine(floats row, floats importance, bytes to) {
    constexpr int most = (1 << Bits) - 1;
    const float square = importance.empty() ? 0 : mean_square(row);
    each_block(32, Bits == 4 ? 20 : 24, row, importance, to, [&](floats x, floats weight, std::byte* block) {
        std::array<std::uint8_t, 32> codes;
        float d = 0, low = largest_float;
        if (weight.empty()) {
            float high = -largest_float;
            for (const float v : x) {
                if (v < low) low = v;
                if (v > high) high = v;
            }
            d = (high - low) / static_cast<float>(most);
            const float id = d != 0 ? 1.0f / d : 0.0f;
            for (std::size_t i = 0; i < 32; ++i) {
                const float v = (x[i] - low) * id;
                const int code = truncated(v + 0.5f);
                codes[i] = static_cast<std::uint8_t>(Bits == 4 ? std::min(most, static_cast<int>(static_cast<std::int8_t>(code))) : code);
            }
        } else {
            std::array<float, 32> weights;
            weigh(x, weight, square, weights);
            float minimum = 0;
            d = search_affine({most, -0.9f, 0.05f, 36, false, true}, x, weights, codes, minimum);
            low = -minimum;
        }
        store_half(block, d);
        store_half(block + 2, low);
        if (Bits == 5) store_fifths(block + 4, codes);
        store_nibbles(block + (Bits == 5 ? 8 : 4), codes);
    });
}
template <int Bits>
void dequantize_affine(const_bytes from, std::span<float> row) {
    each_block(32, Bits == 4 ? 20 : 24, from, row, [](const std::byte* block, std::span<float> y) {
        const float d = load_half(block), m = load_half(block + 2);
        for (std::size_t i = 0; i < 32; ++i) {
            const unsigned code = Bits == 4 ? nibble(block + 4, i) : nibble(block + 8, i) | fifth(block + 4, i);
            y[i] = static_cast<float>(code) * d + m;
        }
    });
}

/// ggml's own E4M3 for scales: rounds half up; from 256 on everything is 448.
unsigned scale_code(float v) {
    if (!(v > 0)) return 0;
    if (v > 448) v = 448;
    const std::uint32_t bits = bits_of(v);
    int exponent = static_cast<int>(bits >> 23) - 127 + 7;
    if (exponent <= 0) return static_cast<unsigned>(std::min(truncated(v * 512.0f + 0.5f), 7));
    unsigned fraction = ((bits >> 20) & 7) + ((bits >> 19) & 1);
    if (fraction > 7) {
        fraction = 0;
        ++exponent;
    }
    return exponent >= 15 ? 0x7e : static_cast<unsigned>(exponent) << 3 | fraction;
}
// The sign is passed over: 0xff is 480.
float half_scale_value(unsigned code) { return code == 0x7f ? 0.0f : magnitude_value(code & 0x7f, 3, 7) * 0.5f; }

float plain_absolute_maximum(floats x) {
    float most = 0;
    for (const float v : x) {
        if (most < std::abs(v)) most = std::abs(v);
    }
    return most;
}
/// The maximum of C's MAX macro, whose result after a NaN is what follows it.
float macro_absolute_maximum(floats x) {
    float most = 0;
    for (const float v : x) most = most > std::abs(v) ? most : std::abs(v);
    return most;
}

constexpr int iq4_levels[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
unsigned iq4_code(float x) {
    if (x <= static_cast<float>(iq4_levels[0])) return 0;
    if (x >= static_cast<float>(iq4_levels[15])) return 15;
    unsigned low = 0, high = 15;
    while (high - low > 1) {
        const unsigned middle = (low + high) / 2;
        (x < static_cast<float>(iq4_levels[middle]) ? high : low) = middle;
    }
    return x - static_cast<float>(iq4_levels[high - 1]) < static_cast<float>(iq4_levels[high]) - x ? high - 1 : high;
}

/// The scale of 32 values on iq4's levels: the best of the one that puts the extreme on the lowest level and 15 near it.
float iq4_scale(floats x, floats weights) {
    const float extreme = signed_maximum(x);
    if (std::abs(extreme) < 1e-15f) return 0;
    float xq = 0, qq = 0;
    const auto sums = [&](float inverse) {
        xq = qq = 0;
        for (std::size_t i = 0; i < x.size(); ++i) {
            const auto q = static_cast<float>(iq4_levels[iq4_code(inverse * x[i])]);
            xq += weights[i] * q * x[i];
            qq += weights[i] * q * q;
        }
    };
    const float first = -extreme / static_cast<float>(iq4_levels[0]);
    sums(1 / first);
    float d = qq > 0 ? xq / qq : 0.0f;
    float best = d * xq;
    for (int step = -7; step <= 7; ++step) {
        sums(static_cast<float>(step + iq4_levels[0]) / extreme);
        if (qq > 0 && xq * xq > best * qq) {
            d = xq / qq;
            best = d * xq;
        }
    }
    return d;
}
void iq4_weights(floats x, floats importance, float square, std::span<float> weights) {
    if (!importance.empty()) return weigh(x, importance, square, weights);
    for (std::size_t i = 0; i < x.size(); ++i) weights[i] = x[i] * x[i];
}
float doubled_mean_square(floats x) {
    float sum = 0;
    for (const float v : x) sum += v * v;
    return sum * (2.0f / static_cast<float>(x.size()));
}

}  // namespace

void quantize_q4_0(floats row, floats importance, bytes to) { quantize_symmetric<4>(row, importance, to); }
void quantize_q5_0(floats row, floats importance, bytes to) { quantize_symmetric<5>(row, importance, to); }
void quantize_q4_1(floats row, floats importance, bytes to) { quantize_affine<4>(row, importance, to); }
void quantize_q5_1(floats row, floats importance, bytes to) { quantize_affine<5>(row, importance, to); }
void dequantize_q4_0(const_bytes from, std::span<float> row) { dequantize_symmetric<4>(from, row); }
void dequantize_q5_0(const_bytes from, std::span<float> row) { dequantize_symmetric<5>(from, row); }
void dequantize_q4_1(const_bytes from, std::span<float> row) { dequantize_affine<4>(from, row); }
void dequantize_q5_1(const_bytes from, std::span<float> row) { dequantize_affine<5>(from, row); }

void quantize_q8_0(floats row, floats, bytes to) {
    each_block(32, 34, row, {}, to, [](floats x, floats, std::byte* block) {
        const float d = macro_absolute_maximum(x) / 127;
        const float id = d != 0 ? 1.0f / d : 0.0f;
        store_half(block, d);
        for (std::size_t i = 0; i < 32; ++i) block[2 + i] = byte_of(static_cast<unsigned>(truncated(std::round(x[i] * id))));
    });
}
void dequantize_q8_0(const_bytes from, std::span<float> row) {
    each_block(32, 34, from, row, [](const std::byte* block, std::span<float> y) {
        const float d = load_half(block);
        for (std::size_t i = 0; i < 32; ++i) y[i] = static_cast<float>(static_cast<std::int8_t>(number(block[2 + i]))) * d;
    });
}

void quantize_q1_0(floats row, floats, bytes to) {
    each_block(128, 18, row, {}, to, [](floats x, floats, std::byte* block) {
        float sum = 0;
        for (const float v : x) sum += std::abs(v);
        store_half(block, sum / 128);
        for (std::size_t i = 0; i < 128; i += 8) {
            unsigned bits = 0;
            for (std::size_t k = 0; k < 8; ++k) bits |= static_cast<unsigned>(x[i + k] >= 0) << k;
            block[2 + i / 8] = byte_of(bits);
        }
    });
}
void dequantize_q1_0(const_bytes from, std::span<float> row) {
    each_block(128, 18, from, row, [](const std::byte* block, std::span<float> y) {
        const float d = load_half(block);
        for (std::size_t i = 0; i < 128; ++i) y[i] = (number(block[2 + i / 8]) >> (i % 8)) & 1 ? d : -d;
    });
}

void quantize_q2_0(floats row, floats, bytes to) {
    each_block(64, 18, row, {}, to, [](floats x, floats, std::byte* block) {
        const float d = plain_absolute_maximum(x);
        const float id = d > 0 ? 1.0f / d : 0.0f;
        store_half(block, d);
        for (std::size_t i = 0; i < 64; i += 4) {
            unsigned bits = 0;
            for (std::size_t k = 0; k < 4; ++k) {
                const int code = within(0, truncated(std::round(x[i + k] * id)) + 1, 3);
                bits |= static_cast<unsigned>(code) << (2 * k);
            }
            block[2 + i / 4] = byte_of(bits);
        }
    });
}
void dequantize_q2_0(const_bytes from, std::span<float> row) {
    each_block(64, 18, from, row, [](const std::byte* block, std::span<float> y) {
        const float d = load_half(block);
        for (std::size_t i = 0; i < 64; ++i) {
            y[i] = static_cast<float>(static_cast<int>((number(block[2 + i / 4]) >> (2 * (i % 4))) & 3) - 1) * d;
        }
    });
}

void quantize_mxfp4(floats row, floats, bytes to) {
    each_block(32, 17, row, {}, to, [](floats x, floats, std::byte* block) {
        const float most = plain_absolute_maximum(x);
        const unsigned e = most > 0 ? static_cast<unsigned>(truncated(std::floor(log2_float(most)) - 2 + 127)) & 0xff : 0;
        const float d = half_e8m0(e);
        block[0] = byte_of(e);
        for (std::size_t i = 0; i < 16; ++i) block[1 + i] = byte_of(nearest_e2m1(x[i], d) | nearest_e2m1(x[i + 16], d) << 4);
    });
}
void dequantize_mxfp4(const_bytes from, std::span<float> row) {
    each_block(32, 17, from, row, [](const std::byte* block, std::span<float> y) {
        const float d = half_e8m0(number(block[0]));
        for (std::size_t i = 0; i < 32; ++i) y[i] = twice_e2m1[nibble(block + 1, i)] * d;
    });
}

void quantize_nvfp4(floats row, floats, bytes to) {
    each_block(64, 36, row, {}, to, [](floats x, floats, std::byte* block) {
        for (std::size_t s = 0; s < 4; ++s) {
            const floats part = x.subspan(16 * s, 16);
            const unsigned scale = scale_code(plain_absolute_maximum(part) / 6.0f);
            const float d = half_scale_value(scale);
            block[s] = byte_of(scale);
            for (std::size_t i = 0; i < 8; ++i)
                block[4 + 8 * s + i] = byte_of(nearest_e2m1(part[i], d) | nearest_e2m1(part[i + 8], d) << 4);
        }
    });
}
void dequantize_nvfp4(const_bytes from, std::span<float> row) {
    each_block(64, 36, from, row, [](const std::byte* block, std::span<float> y) {
        for (std::size_t i = 0; i < 64; ++i) {
            const std::size_t s = i / 16, k = i % 16;
            const unsigned pair = number(block[4 + 8 * s + k % 8]);
            y[i] = twice_e2m1[k < 8 ? pair & 15 : pair >> 4] * half_scale_value(number(block[s]));
        }
    });
}

void quantize_iq4_nl(floats row, floats importance, bytes to) {
    each_block(32, 18, row, importance, to, [](floats x, floats weight, std::byte* block) {
        std::array<float, 32> weights;
        iq4_weights(x, weight, doubled_mean_square(x), weights);
        const float d = iq4_scale(x, weights);
        const float id = d != 0 ? 1 / d : 0;
        store_half(block, d);
        for (std::size_t i = 0; i < 16; ++i) block[2 + i] = byte_of(iq4_code(id * x[i]) | iq4_code(id * x[i + 16]) << 4);
    });
}
void dequantize_iq4_nl(const_bytes from, std::span<float> row) {
    each_block(32, 18, from, row, [](const std::byte* block, std::span<float> y) {
        const float d = load_half(block);
        for (std::size_t i = 0; i < 32; ++i) y[i] = d * static_cast<float>(iq4_levels[nibble(block + 2, i)]);
    });
}

void quantize_iq4_xs(floats row, floats importance, bytes to) {
    each_block(256, 136, row, importance, to, [](floats x, floats weight, std::byte* block) {
        const float square = doubled_mean_square(x);
        std::array<float, 8> scales;
        float most = 0;
        for (std::size_t b = 0; b < 8; ++b) {
            std::array<float, 32> weights;
            iq4_weights(x.subspan(32 * b, 32), weight.empty() ? weight : weight.subspan(32 * b, 32), square, weights);
            scales[b] = iq4_scale(x.subspan(32 * b, 32), weights);
            if (std::abs(scales[b]) > std::abs(most)) most = scales[b];
        }
        const float d = -most / 32;
        const float id = d != 0 ? 1 / d : 0.0f;
        store_half(block, d);
        std::fill(block + 2, block + 8, std::byte{0});
        for (std::size_t b = 0; b < 8; ++b) {
            const int l = within(-32, nearest(id * scales[b]), 31);
            const float dl = d * static_cast<float>(l);
            const float idl = dl != 0 ? 1 / dl : 0.0f;
            const auto stored = static_cast<unsigned>(l + 32);
            block[4 + b / 2] |= byte_of((stored & 15) << 4 * (b % 2));
            block[2 + b / 4] |= byte_of((stored >> 4) << 2 * (b % 4));
            for (std::size_t i = 0; i < 16; ++i) {
                block[8 + 16 * b + i] = byte_of(iq4_code(idl * x[32 * b + i]) | iq4_code(idl * x[32 * b + 16 + i]) << 4);
            }
        }
    });
}
void dequantize_iq4_xs(const_bytes from, std::span<float> row) {
    each_block(256, 136, from, row, [](const std::byte* block, std::span<float> y) {
        const float d = load_half(block);
        for (std::size_t b = 0; b < 8; ++b) {
            const unsigned low = (number(block[4 + b / 2]) >> 4 * (b % 2)) & 15, high = (number(block[2 + b / 4]) >> 2 * (b % 4)) & 3;
            const float dl = d * static_cast<float>(static_cast<int>(low | high << 4) - 32);
            for (std::size_t i = 0; i < 32; ++i) y[32 * b + i] = dl * static_cast<float>(iq4_levels[nibble(block + 8 + 16 * b, i)]);
        }
    });
}

namespace {

/// -1, 0 or 1, plus one.
int trit(float x, float id) { return truncated(std::round(x * id)) + 1; }
/// Five trits in a byte as a fraction of 256, so that multiplying by 3 brings the next one up.
std::byte five_trits(unsigned base3) { return byte_of(((base3 & 0xff) * 256 + 242) / 243); }

/// The three runs of tq1_0: where their bytes begin and how many there are, the values before them, and the trits in each byte.
struct trit_run {
    std::size_t byte, width, value, trits;
};
constexpr trit_run trit_runs[3] = {{0, 32, 0, 5}, {32, 16, 160, 5}, {48, 4, 240, 4}};

}  // namespace

void quantize_tq1_0(floats row, floats, bytes to) {
    each_block(256, 54, row, {}, to, [](floats x, floats, std::byte* block) {
        const float d = macro_absolute_maximum(x);
        const float id = d != 0 ? 1.0f / d : 0.0f;
        for (const trit_run& r : trit_runs) {
            for (std::size_t m = 0; m < r.width; ++m) {
                unsigned q = 0;
                for (std::size_t n = 0; n < r.trits; ++n)
                    q = (q * 3 + static_cast<unsigned>(trit(x[r.value + m + n * r.width], id))) & 0xff;
                block[r.byte + m] = five_trits(r.trits == 4 ? q * 3 : q);
            }
        }
        store_half(block + 52, d);
    });
}
void dequantize_tq1_0(const_bytes from, std::span<float> row) {
    each_block(256, 54, from, row, [](const std::byte* block, std::span<float> y) {
        const float d = load_half(block + 52);
        constexpr unsigned powers[5] = {1, 3, 9, 27, 81};
        for (const trit_run& r : trit_runs) {
            for (std::size_t n = 0; n < r.trits; ++n) {
                for (std::size_t m = 0; m < r.width; ++m) {
                    const unsigned q = (number(block[r.byte + m]) * powers[n]) & 0xff;
                    y[r.value + n * r.width + m] = static_cast<float>(static_cast<int>((q * 3) >> 8) - 1) * d;
                }
            }
        }
    });
}

void quantize_tq2_0(floats row, floats, bytes to) {
    each_block(256, 66, row, {}, to, [](floats x, floats, std::byte* block) {
        const float d = macro_absolute_maximum(x);
        const float id = d != 0 ? 1.0f / d : 0.0f;
        for (std::size_t j = 0; j < 64; ++j) {
            unsigned q = 0;
            for (std::size_t n = 0; n < 4; ++n) q += (static_cast<unsigned>(trit(x[j / 32 * 128 + j % 32 + n * 32], id)) & 3) << (2 * n);
            block[j] = byte_of(q);
        }
        store_half(block + 64, d);
    });
}
void dequantize_tq2_0(const_bytes from, std::span<float> row) {
    each_block(256, 66, from, row, [](const std::byte* block, std::span<float> y) {
        const float d = load_half(block + 64);
        for (std::size_t i = 0; i < 256; ++i) {
            const unsigned q = (number(block[i / 128 * 32 + i % 32]) >> (2 * (i % 128 / 32))) & 3;
            y[i] = static_cast<float>(static_cast<int>(q) - 1) * d;
        }
    });
}

}  // namespace qk::systems::ggml
