// SPDX-License-Identifier: Apache-2.0
// compressed-tensors: the scales that its observers compute, its quantizer, and what its compressors pack.
#include <algorithm>

#include "planes.hpp"
#include "tables.hpp"

namespace qk::systems {
namespace {

/// Largest magnitude as it comes from a minimum and a maximum that both include 0.
float range_maximum(std::span<const float> x) { return absolute_maximum(x); }

/// E8M0 code of a block's scale: the maximum rounded up to a power of two from 1.75 on (1.9375 for E2M3), less the element's exponent.
std::uint8_t mx_scale(float maximum, int threshold_mantissa, int element_exponent) {
    if (maximum != maximum) return 0;
    const std::uint32_t field = (bits_of(maximum) + (1u << (23 - threshold_mantissa - 1))) >> 23;
    if (field == 0) return 0;
    return field >= 255 ? std::uint8_t{255} : static_cast<std::uint8_t>(std::max(0, static_cast<int>(field) - element_exponent));
}
float mx_scale_value(std::uint8_t code) { return power_of_two(code - 127); }

/// Code of E2M3 in six bits: to nearest even, saturating.
std::uint8_t e2m3_code(float v) {
    if (v != v) return 32;
    const std::uint32_t magnitude = std::min<std::uint32_t>(magnitude_code(std::min(std::abs(v), 7.5f), 3, 1), 31);
    return static_cast<std::uint8_t>(magnitude | (bits_of(v) >> 31) << 5);
}

/// How many bits a format name says: "int4_g128" is 4.
std::size_t bits_in(std::string_view format) { return static_cast<std::size_t>(format[3] - '0'); }

}  // namespace

result ct_nvfp4(const rule&, const input& x) {
    const blocked b(x, 16);
    const float most = range_maximum(x.values);
    const float lifted = most < std::numeric_limits<float>::min() ? std::numeric_limits<float>::min() : most;
    float global = (1.0f / lifted) * 2688.0f;
    if (!std::isfinite(global)) global = 1;
    std::vector<std::uint8_t> codes(x.values.size()), scales(b.count());
    result made{{x.rows, x.columns}, std::vector<float>(x.values.size()), {}};
    for (std::size_t i = 0; i < b.count(); ++i) {
        const float local = range_maximum(b[i]) / 6.0f;
        // PyTorch's maximum of a block with a NaN has the sign bit set, and the cast keeps it
        scales[i] = local != local ? std::uint8_t{0xff} : to_e4m3(clamp(global * local, -448, 448));
        if (from_e4m3(scales[i]) == 0) scales[i] = 0x20;  // 0.125, the smallest step that it takes E4M3 to have
        const float d = from_e4m3(scales[i]) / global;
        for (std::size_t k = 0; k < 16; ++k) {
            codes[i * 16 + k] = to_e2m1(clamp(b[i][k] / d, -6, 6));
            made.values[i * 16 + k] = from_e2m1(codes[i * 16 + k]) * d;
        }
    }
    made.planes.push_back(make_plane("codes", {x.rows, x.columns / 2}, packed_pairs(codes, x.rows, x.columns)));
    made.planes.push_back(make_plane("scales", {x.rows, b.per_row}, scales));
    made.planes.push_back(make_plane("global", {1}, std::vector<float>{global}));
    return made;
}

result ct_mx(const rule& how, const input& x) {
    const blocked b(x, 32);
    const bool fp4 = how.format == "mxfp4", fp6 = how.format == "mxfp6_e2m3";
    const float largest = fp4 ? 6.0f : fp6 ? 7.5f : 448.0f;
    std::vector<std::uint8_t> codes(x.values.size()), scales(b.count());
    result made{{x.rows, x.columns}, std::vector<float>(x.values.size()), {}};
    for (std::size_t i = 0; i < b.count(); ++i) {
        scales[i] = mx_scale(range_maximum(b[i]), fp6 ? 3 : 1, fp4 || fp6 ? 2 : 8);
        const float scale = mx_scale_value(scales[i]);
        for (std::size_t k = 0; k < 32; ++k) {
            const float v = clamp(b[i][k] / scale, -largest, largest);
            std::uint8_t& code = codes[i * 32 + k];
            float element = quiet_nan;
            if (fp4) {
                code = to_e2m1(v);
                if (v == v) element = from_e2m1(code);
            } else if (fp6) {
                code = e2m3_code(v);
                if (v == v) element = code & 32 ? -magnitude_value(code & 31u, 3, 1) : magnitude_value(code, 3, 1);
            } else {
                code = to_e4m3(v);
                element = from_e4m3(code);
            }
            made.values[i * 32 + k] = element * scale;
        }
        // the exponent of an infinite scale does not survive its cast to an integer: what is stored is 0 + 127
        if (scales[i] == 255) scales[i] = 127;
    }
    if (fp4) {
        made.planes.push_back(make_plane("codes", {x.rows, x.columns / 2}, packed_pairs(codes, x.rows, x.columns)));
    } else if (fp6) {
        std::vector<std::uint8_t> packed(x.values.size() / 4 * 3);
        for (std::size_t i = 0; i < packed.size() / 3; ++i) {
            std::uint32_t four = 0;
            for (std::size_t k = 0; k < 4; ++k) four |= static_cast<std::uint32_t>(codes[4 * i + k]) << (6 * k);
            for (std::size_t k = 0; k < 3; ++k) packed[3 * i + k] = static_cast<std::uint8_t>(four >> (8 * k));
        }
        made.planes.push_back(make_plane("codes", {x.rows, x.columns / 4 * 3}, packed));
    } else {
        made.planes.push_back(make_plane("codes", {x.rows, x.columns}, codes));
    }
    made.planes.push_back(make_plane("scales", {x.rows, b.per_row}, scales));
    return made;
}

result ct_fp8(const rule& how, const input& x) {
    const bool block = how.format == "fp8_block128", channel = how.format == "fp8_channel";
    const std::size_t tile_rows = block ? 128 : channel ? 1 : x.rows, tile_columns = block ? 128 : x.columns;
    const tiled tile(x, tile_rows, tile_columns);
    std::vector<float> scales = tile.maxima(x.values);
    for (float& s : scales) {
        s = s / 448.0f;
        if (s == 0) s = std::numeric_limits<float>::epsilon();
    }
    std::vector<std::uint8_t> codes(x.values.size());
    result made{{x.rows, x.columns}, std::vector<float>(x.values.size()), {}};
    for (std::size_t i = 0; i < codes.size(); ++i) {
        codes[i] = to_e4m3(clamp(x.values[i] / scales[tile(i)], -448, 448));
        made.values[i] = from_e4m3(codes[i]) * scales[tile(i)];
    }
    made.planes.push_back(make_plane("codes", {x.rows, x.columns}, codes));
    if (block) {
        made.planes.push_back(make_plane("scales", {tile.down, tile.across}, scales));
    } else if (channel) {
        made.planes.push_back(make_plane("scales", {x.rows, 1}, scales));
    } else {
        made.planes.push_back(make_plane("scales", {1}, scales));
    }
    return made;
}

result ct_int(const rule& how, const input& x) {
    const blocked b(x, 128);
    const std::size_t bits = bits_in(how.format);
    const bool asymmetric = how.format.ends_with("_asym");
    const float low = -static_cast<float>(1 << (bits - 1)), high = -low - 1;
    std::vector<float> scales(b.count()), zeros(b.count());
    std::vector<std::uint32_t> codes(x.values.size()), zero_codes(b.count());
    result made{{x.rows, x.columns}, std::vector<float>(x.values.size()), {}};
    for (std::size_t i = 0; i < b.count(); ++i) {
        const auto [least, most] = range_with_zero(b[i]);
        float& scale = scales[i];
        if (asymmetric) {
            scale = (most - least) / (high - low);
            const float zero = clamp(low - least / scale, low, high);
            zeros[i] = zero == zero ? std::nearbyint(clamp(zero, -128, 127)) + 0.0f : 0.0f;  // kept as an integer: no -0
        } else {
            scale = std::max(std::abs(least), std::abs(most)) / ((high - low) / 2);
        }
        if (scale == 0) scale = std::numeric_limits<float>::epsilon();
        for (std::size_t k = 0; k < 128; ++k) {
            float v = b[i][k] / scale;
            if (asymmetric) v += zeros[i];
            const float q = std::nearbyint(clamp(v, low, high));
            codes[i * 128 + k] = static_cast<std::uint32_t>(static_cast<int>(q - low));
            made.values[i * 128 + k] = (asymmetric ? q - zeros[i] : q) * scale;
        }
    }
    made.planes.push_back(
        make_plane("codes", {x.rows, (x.columns * bits + 31) / 32}, packed_words<std::int32_t>(codes, x.rows, x.columns, bits)));
    made.planes.push_back(make_plane("scales", {x.rows, b.per_row}, scales));
    if (asymmetric) {  // packed down the rows
        for (std::size_t r = 0; r < x.rows; ++r) {
            for (std::size_t g = 0; g < b.per_row; ++g) {
                zero_codes[g * x.rows + r] = static_cast<std::uint32_t>(static_cast<int>(zeros[r * b.per_row + g] - low));
            }
        }
        const auto words = packed_words<std::int32_t>(zero_codes, b.per_row, x.rows, bits);
        const std::size_t height = words.size() / b.per_row;
        std::vector<std::int32_t> turned(words.size());
        for (std::size_t g = 0; g < b.per_row; ++g) {
            for (std::size_t h = 0; h < height; ++h) turned[h * b.per_row + g] = words[g * height + h];
        }
        made.planes.push_back(make_plane("zeros", {height, b.per_row}, turned));
    }
    return made;
}

}  // namespace qk::systems
