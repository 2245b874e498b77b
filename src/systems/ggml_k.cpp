// SPDX-License-Identifier: Apache-2.0
// ggml's K-quants: super-blocks of 256 values whose groups of 16 or 32 have scales (and minima) that are themselves quantized.
#include <algorithm>

#include "ggml_blocks.hpp"

namespace qk::systems::ggml {
namespace {

using group_scales = std::array<float, 16>;

float sum_of_squares(floats x) {
    float sum = 0;
    for (const float v : x) sum += v * v;
    return sum;
}
float sum_of(floats x) {
    float sum = 0;
    for (const float v : x) sum += v;
    return sum;
}

/// Two bits of each of 256 codes: a byte holds the codes 0, 32, 64 and 96 further on in its half.
void store_pairs(std::byte* to, std::span<const std::uint8_t, 256> codes) {
    for (std::size_t j = 0; j < 256; j += 128) {
        for (std::size_t l = 0; l < 32; ++l) {
            unsigned bits = 0;
            for (std::size_t n = 0; n < 4; ++n) bits |= (codes[j + l + 32 * n] & 3u) << (2 * n);
            to[j / 4 + l] = byte_of(bits);
        }
    }
}
unsigned load_pair(const std::byte* from, std::size_t i) { return (number(from[i / 128 * 32 + i % 32]) >> (2 * (i % 128 / 32))) & 3; }

/// Codes of one group again with the scales as they are stored: (x + minimum) / scale, rounded. Groups of scale 0 keep the codes that they
/// have.
void requantize(floats x, float scale, float minimum, int most, std::span<std::uint8_t> codes) {
    if (scale == 0) return;
    for (std::size_t i = 0; i < x.size(); ++i) codes[i] = static_cast<std::uint8_t>(within(0, nearest((x[i] + minimum) / scale), most));
}
/// The same for codes on both sides of zero, stored with `half` added.
void requantize_signed(floats x, float scale, int half, std::span<std::int8_t> codes) {
    if (scale == 0) return;
    for (std::size_t i = 0; i < x.size(); ++i) codes[i] = static_cast<std::int8_t>(within(-half, nearest(x[i] / scale), half - 1) + half);
}

void write_q2_k(floats x, floats importance, std::byte* block) {
    std::array<std::uint8_t, 256> codes;
    group_scales scales, minima, sums;
    std::array<float, 16> weights;
    const float square = importance.empty() ? 0 : sum_of_squares(x) / 256;
    for (std::size_t g = 0; g < 16; ++g) {
        const floats part = x.subspan(16 * g, 16);
        if (importance.empty()) {
            for (std::size_t i = 0; i < 16; ++i) weights[i] = std::abs(part[i]);
        } else {
            weigh(part, importance.subspan(16 * g, 16), square, weights);
        }
        sums[g] = sum_of(weights);
        const affine_search how =
            importance.empty() ? affine_search{3, -0.5f, 0.1f, 15, true, false} : affine_search{3, -0.9f, 0.05f, 36, false, true};
        scales[g] = search_affine(how, part, weights, std::span(codes).subspan(16 * g, 16), minima[g]);
    }
    std::array<std::uint8_t, 16> scale_codes{}, minimum_codes{};
    float d = 0, dmin = 0;
    if (importance.empty()) {
        const auto coded = [](const group_scales& of, std::array<std::uint8_t, 16>& to) {
            float most = 0;
            for (const float v : of) most = v > most ? v : most;
            if (!(most > 0)) return 0.0f;
            const float inverse = 15.0f / most;
            for (std::size_t g = 0; g < 16; ++g) to[g] = static_cast<std::uint8_t>(nearest(inverse * of[g]));
            return most / 15.0f;
        };
        d = coded(scales, scale_codes);
        dmin = coded(minima, minimum_codes);
    } else {
        d = search_positive(15, scales, sums, scale_codes);
        dmin = search_positive(15, minima, sums, minimum_codes);
    }
    for (std::size_t g = 0; g < 16; ++g) block[g] = byte_of(scale_codes[g] | static_cast<unsigned>(minimum_codes[g]) << 4);
    store_half(block + 80, d);
    store_half(block + 82, dmin);
    d = load_half(block + 80);
    dmin = load_half(block + 82);
    for (std::size_t g = 0; g < 16; ++g) {
        const unsigned both = number(block[g]);
        requantize(x.subspan(16 * g, 16), d * static_cast<float>(both & 15), dmin * static_cast<float>(both >> 4), 3,
                   std::span(codes).subspan(16 * g, 16));
    }
    store_pairs(block + 16, codes);
}

/// The 16 six-bit scales of q3_K in 12 bytes: low four bits first, then the high two.
void store_q3_scale(std::byte* to, std::size_t g, unsigned code) {
    to[g % 8] |= byte_of((code & 15) << (g < 8 ? 0 : 4));
    to[8 + g % 4] |= byte_of((code >> 4) << (2 * (g / 4)));
}
int load_q3_scale(const std::byte* from, std::size_t g) {
    const unsigned low = g < 8 ? number(from[g]) & 15 : number(from[g - 8]) >> 4;
    return static_cast<int>(low | ((number(from[8 + g % 4]) >> (2 * (g / 4))) & 3) << 4) - 32;
}

void write_q3_k(floats x, floats importance, std::byte* block) {
    std::array<std::int8_t, 256> codes;
    group_scales scales, sums;
    const float square = importance.empty() ? 0 : 2 * sum_of_squares(x) / 256;
    for (std::size_t g = 0; g < 16; ++g) {
        const floats part = x.subspan(16 * g, 16);
        const auto to = std::span(codes).subspan(16 * g, 16);
        if (importance.empty()) {
            scales[g] = refine_signed(4, part, to);
            continue;
        }
        std::array<float, 16> weights;
        weigh(part, importance.subspan(16 * g, 16), square, weights);
        sums[g] = sum_of(weights);
        scales[g] = search_signed(4, part, weights, to);
    }
    std::byte* const stored = block + 96;
    std::fill(stored, stored + 12, std::byte{0});
    float d = 0;
    if (!importance.empty()) {
        std::array<std::int8_t, 16> scale_codes;
        d = search_signed(32, scales, sums, scale_codes);
        for (std::size_t g = 0; g < 16; ++g) store_q3_scale(stored, g, static_cast<unsigned>(scale_codes[g]));
    } else if (const float extreme = signed_maximum(scales); extreme != 0) {
        const float inverse = -32.0f / extreme;
        for (std::size_t g = 0; g < 16; ++g) {
            const int code = within(-32, static_cast<std::int8_t>(nearest(inverse * scales[g])), 31) + 32;
            store_q3_scale(stored, g, static_cast<unsigned>(code));
        }
        d = 1 / inverse;
    }
    store_half(block + 108, d);
    d = load_half(block + 108);
    for (std::size_t g = 0; g < 16; ++g) {
        requantize_signed(x.subspan(16 * g, 16), d * static_cast<float>(load_q3_scale(stored, g)), 4, std::span(codes).subspan(16 * g, 16));
    }
    std::fill(block, block + 32, std::byte{0});
    std::array<std::uint8_t, 256> low;
    for (std::size_t i = 0; i < 256; ++i) {
        if (codes[i] > 3) block[i % 32] |= byte_of(1u << (i / 32));
        low[i] = static_cast<std::uint8_t>(codes[i] > 3 ? codes[i] - 4 : codes[i]);
    }
    store_pairs(block + 32, low);
}

/// The eight scales and minima of q4_K and q5_K, six bits each, in 12 bytes.
void store_k4(std::byte* to, std::size_t g, unsigned scale, unsigned minimum) {
    if (g < 4) {
        to[g] |= byte_of(scale);
        to[g + 4] |= byte_of(minimum);
    } else {
        to[g + 4] |= byte_of((scale & 15) | (minimum & 15) << 4);
        to[g - 4] |= byte_of((scale >> 4) << 6);
        to[g] |= byte_of((minimum >> 4) << 6);
    }
}
void load_k4(const std::byte* from, std::size_t g, unsigned& scale, unsigned& minimum) {
    if (g < 4) {
        scale = number(from[g]) & 63;
        minimum = number(from[g + 4]) & 63;
    } else {
        scale = (number(from[g + 4]) & 15) | (number(from[g - 4]) >> 6) << 4;
        minimum = number(from[g + 4]) >> 4 | (number(from[g]) >> 6) << 4;
    }
}

/// q4_K and q5_K up to the codes: d, dmin and the packed scales go into the block's first 16 bytes.
void find_k45(floats x, floats importance, int most, std::byte* block, std::span<std::uint8_t, 256> codes) {
    std::array<float, 8> scales, minima, sums;
    std::array<float, 32> weights;
    const float square = importance.empty() ? 0 : 2 * sum_of_squares(x) / 256;
    for (std::size_t g = 0; g < 8; ++g) {
        const floats part = x.subspan(32 * g, 32);
        affine_search how{most, -0.9f, 0.05f, 36, false, true};
        if (importance.empty()) {
            const float mean = std::sqrt(sum_of_squares(part) / 32);
            for (std::size_t i = 0; i < 32; ++i) weights[i] = mean + std::abs(part[i]);
            how = most == 15 ? affine_search{most, -1.0f, 0.1f, 20, false, false} : affine_search{most, -0.5f, 0.1f, 15, false, false};
        } else {
            weigh(part, importance.subspan(32 * g, 32), square, weights);
        }
        sums[g] = sum_of(weights);
        scales[g] = search_affine(how, part, weights, codes.subspan(32 * g, 32), minima[g]);
    }
    std::array<std::uint8_t, 8> scale_codes, minimum_codes;
    float d = 0, dmin = 0;
    if (importance.empty()) {
        const auto coded = [](const std::array<float, 8>& of, std::array<std::uint8_t, 8>& to) {
            float high = 0;
            for (const float v : of) high = v > high ? v : high;
            const float inverse = high > 0 ? 63.0f / high : 0.0f;
            for (std::size_t g = 0; g < 8; ++g) to[g] = std::min<std::uint8_t>(63, static_cast<std::uint8_t>(nearest(inverse * of[g])));
            return high / 63.0f;
        };
        d = coded(scales, scale_codes);
        dmin = coded(minima, minimum_codes);
    } else {
        d = search_positive(63, scales, sums, scale_codes);
        dmin = search_positive(63, minima, sums, minimum_codes);
    }
    std::fill(block, block + 16, std::byte{0});
    for (std::size_t g = 0; g < 8; ++g) store_k4(block + 4, g, scale_codes[g], minimum_codes[g]);
    store_half(block, d);
    store_half(block + 2, dmin);
    d = load_half(block);
    dmin = load_half(block + 2);
    for (std::size_t g = 0; g < 8; ++g) {
        unsigned scale = 0, minimum = 0;
        load_k4(block + 4, g, scale, minimum);
        requantize(x.subspan(32 * g, 32), d * static_cast<float>(scale), dmin * static_cast<float>(minimum), most,
                   codes.subspan(32 * g, 32));
    }
}

void write_q4_k(floats x, floats importance, std::byte* block) {
    std::array<std::uint8_t, 256> codes;
    find_k45(x, importance, 15, block, codes);
    for (std::size_t i = 0; i < 128; ++i) {
        const std::size_t at = i / 32 * 64 + i % 32;
        block[16 + i] = byte_of(codes[at] | static_cast<unsigned>(codes[at + 32]) << 4);
    }
}
void write_q5_k(floats x, floats importance, std::byte* block) {
    std::array<std::uint8_t, 256> codes;
    find_k45(x, importance, 31, block, codes);
    for (std::size_t l = 0; l < 32; ++l) {
        unsigned bits = 0;
        for (std::size_t n = 0; n < 8; ++n) bits |= static_cast<unsigned>(codes[32 * n + l] > 15) << n;
        block[16 + l] = byte_of(bits);
    }
    for (std::size_t i = 0; i < 128; ++i) {
        const std::size_t at = i / 32 * 64 + i % 32;
        block[48 + i] = byte_of((codes[at] & 15u) | (codes[at + 32] & 15u) << 4);
    }
}

void write_q6_k(floats x, floats importance, std::byte* block) {
    std::array<std::int8_t, 256> codes;
    group_scales scales;
    for (std::size_t g = 0; g < 16; ++g) {
        const floats weights = importance.empty() ? floats{} : importance.subspan(16 * g, 16);
        scales[g] = search_signed(32, x.subspan(16 * g, 16), weights, std::span(codes).subspan(16 * g, 16));
    }
    const float extreme = signed_maximum(scales);
    if (std::abs(extreme) < 1e-15f) {
        std::fill(block, block + 210, std::byte{0});
        return;
    }
    const float inverse = -128.0f / extreme;
    store_half(block + 208, 1 / inverse);
    const float d = load_half(block + 208);
    for (std::size_t g = 0; g < 16; ++g) {
        const auto scale = static_cast<std::int8_t>(std::min(127, nearest(inverse * scales[g])));
        block[192 + g] = byte_of(static_cast<unsigned>(static_cast<int>(scale)));
        requantize_signed(x.subspan(16 * g, 16), d * static_cast<float>(scale), 32, std::span(codes).subspan(16 * g, 16));
    }
    for (std::size_t h = 0; h < 2; ++h) {
        for (std::size_t l = 0; l < 32; ++l) {
            unsigned q[4];
            for (std::size_t n = 0; n < 4; ++n) q[n] = static_cast<unsigned>(static_cast<std::uint8_t>(codes[128 * h + 32 * n + l]));
            block[64 * h + l] = byte_of((q[0] & 15) | (q[2] & 15) << 4);
            block[64 * h + l + 32] = byte_of((q[1] & 15) | (q[3] & 15) << 4);
            block[128 + 32 * h + l] = byte_of(q[0] >> 4 | (q[1] >> 4) << 2 | (q[2] >> 4) << 4 | (q[3] >> 4) << 6);
        }
    }
}

}  // namespace

void quantize_q2_k(floats row, floats importance, bytes to) { each_block(256, 84, row, importance, to, write_q2_k); }
void quantize_q3_k(floats row, floats importance, bytes to) { each_block(256, 110, row, importance, to, write_q3_k); }
void quantize_q4_k(floats row, floats importance, bytes to) { each_block(256, 144, row, importance, to, write_q4_k); }
void quantize_q5_k(floats row, floats importance, bytes to) { each_block(256, 176, row, importance, to, write_q5_k); }
void quantize_q6_k(floats row, floats importance, bytes to) { each_block(256, 210, row, importance, to, write_q6_k); }

void dequantize_q2_k(const_bytes from, std::span<float> row) {
    each_block(256, 84, from, row, [](const std::byte* block, std::span<float> y) {
        const float d = load_half(block + 80), dmin = load_half(block + 82);
        for (std::size_t i = 0; i < 256; ++i) {
            const unsigned both = number(block[i / 16]);
            const float scale = d * static_cast<float>(both & 15), minimum = dmin * static_cast<float>(both >> 4);
            y[i] = scale * static_cast<float>(load_pair(block + 16, i)) - minimum;
        }
    });
}
void dequantize_q3_k(const_bytes from, std::span<float> row) {
    each_block(256, 110, from, row, [](const std::byte* block, std::span<float> y) {
        const float d = load_half(block + 108);
        for (std::size_t i = 0; i < 256; ++i) {
            const float scale = d * static_cast<float>(load_q3_scale(block + 96, i / 16));
            const bool high = (number(block[i % 32]) >> (i / 32)) & 1;
            y[i] = scale * static_cast<float>(static_cast<int>(load_pair(block + 32, i)) - (high ? 0 : 4));
        }
    });
}

namespace {

void read_k45(const std::byte* block, std::span<float> y, const std::byte* low, const std::byte* high) {
    const float d = load_half(block), dmin = load_half(block + 2);
    for (std::size_t i = 0; i < 256; ++i) {
        unsigned scale = 0, minimum = 0;
        load_k4(block + 4, i / 32, scale, minimum);
        const unsigned pair = number(low[i / 64 * 32 + i % 32]);
        unsigned code = i % 64 < 32 ? pair & 15 : pair >> 4;
        if (high != nullptr && ((number(high[i % 32]) >> (i / 32)) & 1)) code += 16;
        y[i] = d * static_cast<float>(scale) * static_cast<float>(code) - dmin * static_cast<float>(minimum);
    }
}

}  // namespace

void dequantize_q4_k(const_bytes from, std::span<float> row) {
    each_block(256, 144, from, row, [](const std::byte* block, std::span<float> y) { read_k45(block, y, block + 16, nullptr); });
}
void dequantize_q5_k(const_bytes from, std::span<float> row) {
    each_block(256, 176, from, row, [](const std::byte* block, std::span<float> y) { read_k45(block, y, block + 48, block + 16); });
}
void dequantize_q6_k(const_bytes from, std::span<float> row) {
    each_block(256, 210, from, row, [](const std::byte* block, std::span<float> y) {
        const float d = load_half(block + 208);
        for (std::size_t i = 0; i < 256; ++i) {
            const std::size_t h = i / 128, n = i % 128 / 32, l = i % 32;
            const unsigned low = number(block[64 * h + l + 32 * (n % 2)]);
            const unsigned code = (n < 2 ? low & 15 : low >> 4) | ((number(block[128 + 32 * h + l]) >> (2 * n)) & 3) << 4;
            const auto scale = static_cast<std::int8_t>(number(block[192 + i / 16]));
            y[i] = d * static_cast<float>(scale) * static_cast<float>(static_cast<int>(code) - 32);
        }
    });
}

}  // namespace qk::systems::ggml
