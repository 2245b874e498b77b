// SPDX-License-Identifier: Apache-2.0
// NVIDIA ModelOpt (torch.quantization): its packed tensors, its fake quantization in eager mode, and its sweep of scales for static
// weights.
#include <algorithm>
#include <array>

#include "planes.hpp"
#include "tables.hpp"

namespace qk::systems {
namespace {

/// The sign of what is below zero; NaN is 6.
std::uint8_t modelopt_code(float v) { return to_e2m1(v, 7); }
/// Its table of values has no -0.
float modelopt_value(std::uint8_t code) { return code == 8 ? 0.0f : from_e2m1(code); }

/// A block scale in E4M3, at least its smallest subnormal; an exact zero counts as 1 first.
std::uint8_t modelopt_scale(float v) { return to_e4m3(clamp(v, 0.001953125f, 448)); }

struct fp4_planes {
    std::vector<std::uint8_t> codes, scales;
    std::vector<float> values;
};
/// Codes and values of blocks whose scales are there.
void encode_blocks(const blocked& b, float tensor_scale, fp4_planes& to) {
    to.codes.resize(b.values.size());
    to.values.resize(b.values.size());
    for (std::size_t i = 0; i < b.values.size(); ++i) {
        const float d = from_e4m3(to.scales[i / 16]) * tensor_scale;
        to.codes[i] = modelopt_code(b.values[i] / d);
        to.values[i] = modelopt_value(to.codes[i]) * d;
    }
}
std::vector<plane> fp4_plane_list(const blocked& b, const fp4_planes& p) {
    std::vector<plane> planes;
    planes.push_back(make_plane("codes", {b.rows, b.width() / 2}, packed_pairs(p.codes, b.rows, b.width())));
    planes.push_back(make_plane("scales", {b.rows, b.per_row}, p.scales));
    return planes;
}

/// Fake FP8 of eager mode with a range: clamped, cast, and multiplied by the rounded inverse of the scale.
struct fake_fp8 {
    float scale, inverse;

    explicit fake_fp8(float range) {
        scale = (1.0f / (range <= 5.9604644775390625e-8f ? 1.0f : range)) * 448.0f;
        inverse = 1.0f / scale;
    }
    float operator()(float v) const { return from_e4m3(to_e4m3(clamp(v * scale, -448, 448))) * inverse; }
};

/// Fake quantization with a block scale in float32. A scale of 0 gives zeros with the sign of x.
float static_value(float v, float scale) { return modelopt_value(modelopt_code(v / scale)) * scale; }

}  // namespace

result modelopt_nvfp4(const rule&, const input& x) {
    const blocked b(x, 16);
    const float t = b.maximum() / 2688.0f;
    fp4_planes p;
    p.scales.resize(b.count());
    for (std::size_t i = 0; i < b.count(); ++i) {
        const float maximum = absolute_maximum(b[i]);
        const float scale = maximum / (6.0f * t);
        // PyTorch's maximum of a block with a NaN has the sign bit set, and the cast keeps it
        p.scales[i] = maximum != maximum ? std::uint8_t{0xff} : modelopt_scale(scale == 0 ? 1.0f : scale);
    }
    encode_blocks(b, t, p);
    result made{{x.rows, x.columns}, b.cropped(p.values), fp4_plane_list(b, p)};
    made.planes.push_back(make_plane("global", {1}, std::vector<float>{t}));
    return made;
}

result modelopt_nvfp4_static(const rule& how, const input& x) {
    const bool sweep = how.format != "nvfp4_static";
    const float fp8_maximum = how.format == "nvfp4_sweep_46" ? 256.0f : 448.0f;
    const blocked b(x, 16);
    const float t = b.maximum();
    const fake_fp8 scale_of(t * (448.0f / fp8_maximum) / 6.0f);
    std::vector<float> amax(b.count());
    fp4_planes p;
    p.values.resize(b.values.size());
    for (std::size_t i = 0; i < b.count(); ++i) {
        amax[i] = absolute_maximum(b[i]);
        if (sweep) {
            float least = infinity;
            for (std::uint8_t code = 1; code < 0x7f; ++code) {
                const float tried = t * (from_e4m3(code) / 448.0f);
                const float scale = scale_of(tried / 6.0f);
                std::array<float, 16> errors;
                for (std::size_t k = 0; k < 16; ++k) {
                    const float difference = b[i][k] - static_value(b[i][k], scale);
                    errors[k] = difference * difference;
                }
                const float error = torch_sum(errors);
                if (error < least || code == 1) {
                    least = error;
                    amax[i] = tried;
                }
            }
        }
        const float scale = scale_of(amax[i] / 6.0f);
        for (std::size_t k = 0; k < 16; ++k) p.values[i * 16 + k] = static_value(b[i][k], scale);
    }
    result made{{x.rows, x.columns}, b.cropped(p.values), {}};
    if (!sweep) return made;
    // what its exporter packs from the amax that the sweep found
    const float scale_maximum = t / 6.0f;
    p.scales.resize(b.count());
    for (std::size_t i = 0; i < b.count(); ++i) {
        const float scale = amax[i] / 6.0f;
        p.scales[i] = modelopt_scale((scale == 0 ? 1.0f : scale) * fp8_maximum / scale_maximum);
    }
    encode_blocks(b, t / 2688.0f * (448.0f / fp8_maximum), p);
    made.planes = fp4_plane_list(b, p);
    made.planes.push_back(make_plane("amax", {b.rows, b.per_row}, amax));
    return made;
}

namespace {

struct mxfp4_block_scales {
    std::vector<std::uint8_t> codes, scales;
};
/// Codes of MXFP4: ties go to the smaller magnitude, and +0 is written as -0.
mxfp4_block_scales modelopt_mxfp4_codes(const blocked& b) {
    mxfp4_block_scales p{std::vector<std::uint8_t>(b.values.size()), std::vector<std::uint8_t>(b.count())};
    for (std::size_t i = 0; i < b.count(); ++i) {
        const float logarithm = log2_float(absolute_maximum(b[i]) / 6.0f);
        const float exponent = std::ceil(logarithm < -127 ? -127.0f : logarithm);
        const bool finite = std::isfinite(exponent);
        p.scales[i] = finite ? static_cast<std::uint8_t>(exponent + 127) : std::uint8_t{0};
        const float scale = finite ? power_of_two(static_cast<int>(exponent)) : exponent;
        for (std::size_t k = 0; k < 32; ++k) {
            const float v = b[i][k] / scale, a = std::abs(v);
            const auto magnitude =
                static_cast<std::uint8_t>((a > 0.25f) + (a > 0.75f) + (a > 1.25f) + (a > 1.75f) + (a > 2.5f) + (a > 3.5f) + (a > 5.0f));
            p.codes[i * 32 + k] = static_cast<std::uint8_t>(magnitude | (v > 0 ? 0 : 8));
        }
    }
    return p;
}

}  // namespace

result modelopt_mxfp4(const rule&, const input& x) {
    const blocked b(x, 32);
    const mxfp4_block_scales p = modelopt_mxfp4_codes(b);
    std::vector<float> values(b.values.size());
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = from_e2m1(p.codes[i]) * power_of_two(p.scales[i / 32] - 127);
    result made{{x.rows, x.columns}, b.cropped(values), {}};
    made.planes.push_back(make_plane("codes", {b.rows, b.width() / 2}, packed_pairs(p.codes, b.rows, b.width())));
    made.planes.push_back(make_plane("scales", {b.rows, b.per_row}, p.scales));
    return made;
}

result modelopt_mxfp4_to_nvfp4(const rule&, const input& x) {
    const blocked b(x, 32);
    const mxfp4_block_scales p = modelopt_mxfp4_codes(b);
    int highest = 0;
    bool any = false;
    for (const std::uint8_t s : p.scales) {
        if (s == 0) continue;
        highest = any ? std::max(highest, s - 127) : s - 127;
        any = true;
    }
    const int most = any ? highest : -127;
    const float global = 6.0f * 448.0f * power_of_two(highest - 8);
    std::vector<float> amax(2 * b.count());
    for (std::size_t i = 0; i < b.count(); ++i) {
        const int k = p.scales[i] - 127;
        float magnitude = 6;
        if (k - (most - 8) < -9 || k - (most - 8) > 8) {  // outside E4M3's powers of two: the largest value that is there
            std::uint8_t largest = 0;
            for (std::size_t j = 0; j < 32; ++j) largest = std::max(largest, static_cast<std::uint8_t>(p.codes[i * 32 + j] & 7));
            magnitude = e2m1_magnitudes[largest];
        }
        amax[2 * i] = amax[2 * i + 1] = magnitude * power_of_two(k);
    }
    std::vector<float> source(b.values.size());
    for (std::size_t i = 0; i < source.size(); ++i) source[i] = from_e2m1(p.codes[i]) * power_of_two(p.scales[i / 32] - 127);
    const blocked halves({source, b.rows, b.width(), {}}, 16);
    fp4_planes q;
    q.scales.resize(halves.count());
    for (std::size_t i = 0; i < halves.count(); ++i) {
        const float scale = amax[i] / 6.0f;
        q.scales[i] = modelopt_scale((scale == 0 ? 1.0f : scale) * 448.0f / (global / 6.0f));
    }
    encode_blocks(halves, global / 2688.0f, q);
    result made{{x.rows, x.columns}, b.cropped(q.values), fp4_plane_list(halves, q)};
    made.planes.push_back(make_plane("block_amax", {halves.rows, halves.per_row}, amax));
    made.planes.push_back(make_plane("global_amax", {1}, std::vector<float>{global}));
    return made;
}

result modelopt_mxfp8(const rule&, const input& x) {
    const blocked b(x, 32);
    std::vector<std::uint8_t> codes(b.values.size()), scales(b.count());
    std::vector<float> values(b.values.size());
    for (std::size_t i = 0; i < b.count(); ++i) {
        const float descale = absolute_maximum(b[i]) / 448.0f;
        const float exponent = clamp(std::ceil(descale > 0 ? log2_float(descale) : -127.0f), -127, 127);
        scales[i] = static_cast<std::uint8_t>(exponent + 127);
        const float factor = power_of_two(127 - scales[i]), back = power_of_two(scales[i] - 127);
        for (std::size_t k = 0; k < 32; ++k) {
            codes[i * 32 + k] = to_e4m3(clamp(b[i][k] * factor, -448, 448));
            values[i * 32 + k] = from_e4m3(codes[i * 32 + k]) * back;
        }
    }
    result made{{x.rows, x.columns}, b.cropped(values), {}};
    made.planes.push_back(make_plane("codes", {b.rows, b.columns}, b.cropped(codes)));
    made.planes.push_back(make_plane("scales", {b.rows, b.per_row}, scales));
    return made;
}

result modelopt_fp8_fake(const rule& how, const input& x) {
    result made{{x.rows, x.columns}, std::vector<float>(x.values.size()), {}};
    const bool by_row = how.format == "fp8_row";
    const std::size_t stretch = by_row ? x.columns : x.values.size();
    for (std::size_t at = 0; at < x.values.size(); at += stretch) {
        const auto part = x.values.subspan(at, stretch);
        const fake_fp8 fake(absolute_maximum(part));
        for (std::size_t i = 0; i < stretch; ++i) made.values[at + i] = fake(part[i]);
    }
    return made;
}

result modelopt_fp8_packed(const rule& how, const input& x) {
    std::size_t tile_rows = x.rows, tile_columns = x.columns;
    if (how.format == "fp8_2d_128x128") tile_rows = tile_columns = 128;
    if (how.format == "fp8_2d_16x16") tile_rows = tile_columns = 16;
    const tiled tile(x, tile_rows, tile_columns);
    std::vector<float> scales = tile.maxima(x.values);
    for (float& s : scales) s = s / 448.0f;
    std::vector<std::uint8_t> codes(x.values.size());
    result made{{x.rows, x.columns}, std::vector<float>(x.values.size()), {}};
    for (std::size_t i = 0; i < x.values.size(); ++i) {
        const float scale = scales[tile(i)];
        codes[i] = to_e4m3(x.values[i] / scale);
        made.values[i] = from_e4m3(codes[i]) * scale;
    }
    made.planes.push_back(make_plane("codes", {x.rows, x.columns}, codes));
    if (how.format == "fp8_tensor_packed") {
        made.planes.push_back(make_plane("scales", {1}, scales));
    } else {
        made.planes.push_back(make_plane("scales", {tile.down, tile.across}, scales));
    }
    return made;
}

result modelopt_int4(const rule& how, const input& x) {
    // blocks of 128 along the whole tensor, not its rows; what fills up the last one is packed with the rest
    const blocked b({x.values, 1, x.values.size(), {}}, 128);
    if (x.columns % 2 != 0) throw std::invalid_argument(how.name() + " packs pairs: its columns come in multiples of 2");
    if (b.width() / 2 % x.rows != 0)
        throw std::invalid_argument(how.name() + " fills the tensor up to multiples of 128 values, and its rows do not divide these");
    std::vector<float> scales(b.count()), values(b.values.size());
    std::vector<std::uint8_t> packed(b.width() / 2);
    for (std::size_t i = 0; i < b.count(); ++i) {
        scales[i] = (1.0f / absolute_maximum(b[i])) * 7.0f;
        for (std::size_t k = 0; k < 128; ++k) {
            const float q = clamp(std::nearbyint(b[i][k] * scales[i]), -8, 7) + 8;
            const int code = q == q ? static_cast<int>(q) : 0;
            const std::size_t at = i * 128 + k;
            packed[at / 2] |= static_cast<std::uint8_t>(code << (k % 2 ? 0 : 4));
            values[at] = static_cast<float>(code - 8) / scales[i];
        }
    }
    values.resize(x.values.size());
    result made{{x.rows, x.columns}, values, {}};
    made.planes.push_back(make_plane("codes", {x.rows, b.width() / 2 / x.rows}, packed));
    made.planes.push_back(make_plane("scales", {b.count(), 1}, scales));
    return made;
}

}  // namespace qk::systems
