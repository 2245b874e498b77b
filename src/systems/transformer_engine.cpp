// SPDX-License-Identifier: Apache-2.0
// Transformer Engine's PyTorch reference of its NVFP4, MXFP4 and current-scaling FP8 recipes. The reference has no reader for NVFP4: the
// values take the order of its CUDA kernel, code * ((scale * amax) * (1 / (6 * 448))).
#include <algorithm>
#include <array>

#include "planes.hpp"
#include "tables.hpp"

namespace qk::systems {
namespace {

/// min with PyTorch's NaN: it stays.
float capped(float v) { return v > largest_float ? largest_float : v; }

struct nvfp4_options {
    bool two_dimensional = false, by_row = false;
    bool four_over_six = false, squared = false, fast = false;
    float scale_maximum = 448;  ///< 256 leaves room for the scale of 4, which is 1.5 times that of 6
};

struct nvfp4_tensor {
    std::vector<std::uint8_t> codes, scales;  // one code a byte; codes of the filled-up blocks too
    std::vector<float> values, amax;
};

/// One of the two scales that four over six chooses between.
struct candidate {
    std::uint8_t scale = 0;
    std::array<std::uint8_t, 16> codes{};
    float error = 0;
};

struct nvfp4_encoder {
    nvfp4_options how;
    float amax, encode, decode;  // of the tensor or row

    nvfp4_encoder(const nvfp4_options& options, float amax_) : how(options), amax(amax_) {
        encode = capped((how.scale_maximum * 6.0f) / amax);
        if (encode == 0) encode = 1;
        decode = 1.0f / encode;
    }
    std::uint8_t scale_code(float v) const { return to_e4m3(clamp(v, -448, 448)); }
    float encoder_of(std::uint8_t scale) const { return capped(1.0f / (from_e4m3(scale) * decode)); }

    std::uint8_t plain_scale(float block_maximum) const {
        if (amax != amax) return 0xff;  // torch.min with a number sets the sign bit of a NaN
        return scale_code(capped(block_maximum * (encode * (1.0f / 6.0f))));
    }

    candidate encoded(std::span<const float> x, std::uint8_t scale) const {
        candidate c;
        c.scale = scale;
        const float factor = encoder_of(scale);
        for (std::size_t i = 0; i < 16; ++i) c.codes[i] = to_e2m1(clamp(x[i] * factor, -6, 6));
        return c;
    }
    candidate tried(std::span<const float> x, std::uint8_t scale) const {
        candidate c = encoded(x, scale);
        const float s = from_e4m3(scale);
        for (std::size_t i = 0; i < 16; ++i) {
            const float q = from_e2m1(c.codes[i]);
            // fast: in the domain of the scaled values, with the kernel's exact product in half precision
            const float difference = how.fast ? through_half(q * s) - x[i] * encode : q * s * amax / (6.0f * how.scale_maximum) - x[i];
            c.error += how.squared ? difference * difference : std::abs(difference);
        }
        return c;
    }
};

/// The rows of one tile: 1, or 16 with one scale for all.
void encode_tile(const nvfp4_encoder& e, const blocked& x, std::size_t row, std::size_t tile_rows, std::size_t b, nvfp4_tensor& to) {
    float most = 0;
    for (std::size_t r = 0; r < tile_rows; ++r) {
        const float m = absolute_maximum(x[(row + r) * x.per_row + b]);
        if (m != m || m > most) most = m;
        if (most != most) break;
    }
    std::array<candidate, 16> six, four;
    bool take_four = false;
    if (e.how.four_over_six) {
        const float base = most / 6.0f * e.encode;
        std::array<float, 16> six_errors{}, four_errors{};
        for (std::size_t r = 0; r < tile_rows; ++r) {
            six[r] = e.tried(x[(row + r) * x.per_row + b], e.scale_code(base));
            four[r] = e.tried(x[(row + r) * x.per_row + b], e.scale_code(base * 1.5f));
            six_errors[r] = six[r].error;
            four_errors[r] = four[r].error;
        }
        for (std::size_t half = tile_rows / 2; half > 0; half /= 2) {  // the kernel's tree: 8 + 8, 4 + 4, 2 + 2, 1 + 1
            for (std::size_t r = 0; r < half; ++r) {
                six_errors[r] += six_errors[r + half];
                four_errors[r] += four_errors[r + half];
            }
        }
        take_four = four_errors[0] < six_errors[0];
    } else {
        for (std::size_t r = 0; r < tile_rows; ++r) six[r] = e.encoded(x[(row + r) * x.per_row + b], e.plain_scale(most));
    }
    for (std::size_t r = 0; r < tile_rows; ++r) {
        const candidate& c = take_four ? four[r] : six[r];
        const std::size_t block = (row + r) * x.per_row + b;
        to.scales[block] = c.scale;
        const float factor = from_e4m3(c.scale) * e.amax * (1.0f / (6.0f * e.how.scale_maximum));
        for (std::size_t i = 0; i < 16; ++i) {
            to.codes[block * 16 + i] = c.codes[i];
            to.values[block * 16 + i] = from_e2m1(c.codes[i]) * factor;
        }
    }
}

nvfp4_tensor nvfp4(const blocked& x, const nvfp4_options& how) {
    nvfp4_tensor made;
    made.codes.resize(x.values.size());
    made.values.resize(x.values.size());
    made.scales.resize(x.count());
    if (!how.by_row) made.amax = {x.maximum()};
    const std::size_t tile_rows = how.two_dimensional ? 16 : 1;
    for (std::size_t r = 0; r < x.rows; r += tile_rows) {
        if (how.by_row) made.amax.push_back(absolute_maximum(std::span(x.values).subspan(r * x.width(), x.width())));
        const nvfp4_encoder encoder(how, made.amax.back());
        for (std::size_t b = 0; b < x.per_row; ++b) encode_tile(encoder, x, r, tile_rows, b, made);
    }
    return made;
}

/// `rows`: those that the caller gave, of a matrix that was filled up to whole tiles. The scales of the filling stay; its codes do not, nor
/// does half a byte at the end of an odd row.
result with_planes(const blocked& x, const nvfp4_tensor& t, std::size_t rows) {
    result made{{rows, x.columns}, x.cropped(t.values), {}};
    made.values.resize(rows * x.columns);
    std::vector<std::uint8_t> packed(rows * (x.columns / 2));
    for (std::size_t i = 0; i < packed.size(); ++i) {
        const std::uint8_t* pair = t.codes.data() + i / (x.columns / 2) * x.width() + i % (x.columns / 2) * 2;
        packed[i] = static_cast<std::uint8_t>(pair[0] | pair[1] << 4);
    }
    made.planes.push_back(make_plane("codes", {rows, x.columns / 2}, packed));
    made.planes.push_back(make_plane("scales", {x.rows, x.per_row}, t.scales));
    made.planes.push_back(make_plane("amax", {t.amax.size()}, t.amax));
    return made;
}

std::vector<float> transposed(const input& x) {
    std::vector<float> t(x.values.size());
    for (std::size_t r = 0; r < x.rows; ++r) {
        for (std::size_t c = 0; c < x.columns; ++c) t[c * x.rows + r] = x.values[r * x.columns + c];
    }
    return t;
}

/// The signs of the randomized Hadamard transform.
constexpr float rht_signs[16] = {1, 1, 1, -1, 1, -1, -1, -1, -1, -1, -1, 1, -1, 1, -1, -1};

/// Each 16 values times diag(signs) * H16 / 4. The order of the sum is ours: the reference leaves it to PyTorch's matrix product.
void hadamard(std::span<float> x) {
    for (std::size_t at = 0; at + 16 <= x.size(); at += 16) {
        float y[16];
        for (unsigned column = 0; column < 16; ++column) {
            float sum = 0;
            for (unsigned i = 0; i < 16; ++i) {
                const float h = std::popcount(i & column) % 2 != 0 ? -rht_signs[i] : rht_signs[i];
                sum += x[at + i] * (h * 0.25f);
            }
            y[column] = sum;
        }
        std::copy(y, y + 16, x.begin() + static_cast<std::ptrdiff_t>(at));
    }
}

}  // namespace

result te_nvfp4(const rule& how, const input& x) {
    nvfp4_options o;
    o.two_dimensional = how.format.ends_with("_2d") || how.format.ends_with("_2d16x16");
    o.by_row = how.format.ends_with("_rowscaled");
    o.four_over_six = how.format.find("4over6") != std::string_view::npos;
    o.squared = how.format.find("_mse") != std::string_view::npos || how.format.ends_with("4over6_2d");
    o.fast = how.format.ends_with("_fast");
    if (how.format.ends_with("_mse256")) o.scale_maximum = 256;
    std::vector<float> filled(x.values.begin(), x.values.end());
    const std::size_t rows = o.two_dimensional ? (x.rows + 15) / 16 * 16 : x.rows;
    filled.resize(rows * x.columns);
    const blocked b({filled, rows, x.columns, {}}, 16);
    return with_planes(b, nvfp4(b, o), x.rows);
}

result te_columnwise(const rule& how, const input& x) {
    const bool rotated = how.format != "nvfp4_columnwise";
    if (rotated && x.rows % 16 != 0)
        throw std::invalid_argument(how.name() + " transforms the transposed matrix: its rows come in multiples of 16");
    std::vector<float> t = transposed(x);
    if (rotated) hadamard(t);
    if (how.format == "rht16") return {{x.columns, x.rows}, std::move(t), {}};
    const blocked b({t, x.columns, x.rows, {}}, 16);
    return with_planes(b, nvfp4(b, {}), x.columns);
}

result te_mxfp4(const rule&, const input& x) {
    const blocked b(x, 32);
    std::vector<std::uint8_t> codes(b.values.size());
    std::vector<float> values(b.values.size()), scales(b.count());
    for (std::size_t i = 0; i < b.count(); ++i) {
        const float exponent = clamp(std::ceil(log2_float(absolute_maximum(b[i]) / 6.0f)), -127, 127);
        scales[i] = exponent != exponent ? quiet_nan : power_of_two(static_cast<int>(exponent));
        const float encoder = 1.0f / scales[i];
        for (std::size_t k = 0; k < 32; ++k) {
            codes[i * 32 + k] = to_e2m1(clamp(b[i][k] * encoder, -6, 6));
            values[i * 32 + k] = from_e2m1(codes[i * 32 + k]) * scales[i];
        }
    }
    result made{{x.rows, x.columns}, b.cropped(values), {}};
    made.planes.push_back(make_plane("codes", {x.rows, (x.columns + 1) / 2}, packed_pairs(b.cropped(codes), x.rows, x.columns)));
    made.planes.push_back(make_plane("scales", {x.rows, b.per_row}, scales));
    return made;
}

result te_fp8_current(const rule& how, const input& x) {
    const bool e4m3 = how.format.find("e4m3") != std::string_view::npos;
    const float amax = absolute_maximum(x.values);
    float scale = (e4m3 ? 448.0f : 57344.0f) / amax;
    if (std::isinf(scale)) scale = largest_float;
    if (how.format.ends_with("_pow2"))  // frexp of a NaN gives the exponent 0, and what is left is 2^-1
        scale = scale != scale ? 0.5f : float_of(bits_of(scale) & 0x7f800000u);
    if (amax == 0) scale = 1;
    const float inverse = 1.0f / scale;
    std::vector<std::uint8_t> codes(x.values.size());
    result made{{x.rows, x.columns}, std::vector<float>(x.values.size()), {}};
    for (std::size_t i = 0; i < x.values.size(); ++i) {
        const float v = x.values[i] * scale;
        codes[i] = e4m3 ? to_e4m3(v) : to_e5m2(v);
        made.values[i] = (e4m3 ? from_e4m3(codes[i]) : from_e5m2(codes[i])) * inverse;
    }
    made.planes.push_back(make_plane("codes", {x.rows, x.columns}, codes));
    made.planes.push_back(make_plane("scales", {1}, std::vector<float>{inverse}));
    return made;
}

}  // namespace qk::systems
