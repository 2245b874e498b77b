// SPDX-License-Identifier: Apache-2.0
// MLX's mx.quantize and mx.dequantize on the CPU. Until its mend of 2026 the exponent of an MX scale was rounded to the nearest integer,
// not up, which clipped half of the blocks: the formats that end in _rounded.
#include <algorithm>
#include <array>

#include "planes.hpp"
#include "tables.hpp"

namespace qk::systems {
namespace {

/// mx.to_fp8: E4M3 that saturates whatever is too large, NaN too.
std::uint8_t mlx_e4m3(float v) {
    const auto sign = static_cast<std::uint8_t>((bits_of(v) >> 24) & 0x80);
    if (!(std::abs(v) < 448.0f)) return sign | 0x7e;  // NaN, too
    return static_cast<std::uint8_t>(sign | std::min(magnitude_code(v, 3, 7), 0x7eu));
}

/// The first of the 16 values at least distance: ties to the smaller magnitude, never -0, and 0 where all distances are the same float.
std::uint8_t mlx_fp4(float v) {
    std::uint8_t best = 0;
    float least = std::abs(v - e2m1_magnitudes[0]);
    for (std::uint8_t code = 1; code < 16; ++code) {
        const float distance = std::abs(v - from_e2m1(code));
        if (distance < least) {
            least = distance;
            best = code;
        }
    }
    return best;
}

struct mlx_scale {
    std::uint8_t code;
    float divisor;  ///< of the elements
    float back;     ///< what the reader multiplies with
};

mlx_scale mx_scale_of(float maximum, float largest, bool rounded) {
    const float ratio = maximum / largest;
    if (ratio == 0) return {127, 1, 1};
    if (!std::isfinite(ratio)) return {128, 0, 2};
    // The logarithm rounded to float32 is that of a power of two also a last bit above it; the package takes the next power there.
    const int exponent =
        rounded ? static_cast<int>(std::nearbyint(log2_float(ratio))) : static_cast<int>(std::ceil(std::log2(static_cast<double>(ratio))));
    const auto code = static_cast<std::uint8_t>(static_cast<unsigned>(exponent + 127) & 0xff);  // wraps below -127
    return {code, power_of_two(exponent), power_of_two(code - 127)};
}

/// Bytes as MLX's words hold them.
plane words_of(const std::vector<std::uint8_t>& bytes, std::size_t rows) {
    return {"codes",
            plane::type::uint32,
            {rows, bytes.size() / 4 / rows},
            {reinterpret_cast<const std::byte*>(bytes.data()), reinterpret_cast<const std::byte*>(bytes.data()) + bytes.size()}};
}

}  // namespace

result mlx_fp(const rule& how, const input& x) {
    const bool nvfp4 = how.format.starts_with("nvfp4"), fp8 = how.format.starts_with("mxfp8"), global = how.format == "nvfp4_global";
    const std::size_t size = nvfp4 ? 16 : 32;
    const blocked b(x, size);
    const float tensor = finite_maximum(x.values);  // G is the caller's; this is what a caller gives who leaves Inf and NaN out
    const float encode = global ? 2688.0f / tensor : 1.0f, decode = global ? tensor / 2688.0f : 1.0f;
    std::vector<std::uint8_t> codes(x.values.size()), scales(b.count());
    result made{{x.rows, x.columns}, std::vector<float>(x.values.size()), {}};
    for (std::size_t i = 0; i < b.count(); ++i) {
        const float maximum = absolute_maximum(b[i]);
        mlx_scale s{};
        if (nvfp4) {
            s.code = mlx_e4m3(maximum / 6.0f * encode);
            s.divisor = from_e4m3(s.code);  // the tensor's part follows by a product of its own
            s.back = s.divisor * decode;
        } else {
            s = mx_scale_of(maximum, fp8 ? 448.0f : 6.0f, how.format.ends_with("_rounded"));
        }
        scales[i] = s.code;
        for (std::size_t k = 0; k < size; ++k) {
            // an infinite or missing maximum leaves a divisor of zero, and everything saturates
            const float v = s.divisor == 0 && !nvfp4 ? std::copysign(infinity, b[i][k]) : b[i][k] / s.divisor * encode;
            codes[i * size + k] = fp8 ? mlx_e4m3(v) : mlx_fp4(v);
            made.values[i * size + k] = (fp8 ? from_e4m3(codes[i * size + k]) : from_e2m1(codes[i * size + k])) * s.back;
        }
    }
    made.planes.push_back(words_of(fp8 ? codes : packed_pairs(codes, x.rows, x.columns), x.rows));
    made.planes.push_back(make_plane("scales", {x.rows, b.per_row}, scales));
    return made;
}

result mlx_affine(const rule& how, const input& x) {
    const auto bits = static_cast<std::size_t>(how.format[6] - '0');
    const std::size_t size = how.format.find("_g32") != std::string_view::npos   ? 32
                             : how.format.find("_g64") != std::string_view::npos ? 64
                                                                                 : 128;
    const bool half = how.format.ends_with("_bf16");
    const auto stored = [half](float v) { return half ? through_bfloat16(v) : v; };
    const blocked b(x, size);
    const float most_code = static_cast<float>((1u << bits) - 1);
    std::vector<float> scales(2 * b.count());
    std::vector<std::uint32_t> codes(x.values.size());
    result made{{x.rows, x.columns}, std::vector<float>(x.values.size()), {}};
    for (std::size_t i = 0; i < b.count(); ++i) {
        float low = infinity, high = -infinity;
        for (const float v : b[i]) {
            low = std::min(low, stored(v));
            high = std::max(high, stored(v));
        }
        float scale = std::max((high - low) / most_code, 1e-7f), bias = low;
        if (bits > 1) {
            const bool below = std::abs(low) > std::abs(high);
            if (!below) scale = -scale;
            const float edge = below ? low : high;
            const float q = std::nearbyint(edge / scale);
            bias = 0;
            if (q != 0) {
                scale = edge / q;
                bias = edge;
            }
        }
        scales[i] = stored(scale);
        scales[b.count() + i] = stored(bias);
        for (std::size_t k = 0; k < size; ++k) {
            const float q = clamp(std::nearbyint((stored(b[i][k]) - bias) / scale), 0, most_code);
            codes[i * size + k] = q == q ? static_cast<std::uint32_t>(q) : 0;
            const float product = stored(static_cast<float>(codes[i * size + k]) * scales[i]);
            made.values[i * size + k] = stored(product + scales[b.count() + i]);
        }
    }
    made.planes.push_back(
        make_plane("codes", {x.rows, x.columns * bits / 32}, packed_words<std::uint32_t>(codes, x.rows, x.columns, bits)));
    made.planes.push_back(make_plane("scales", {2, x.rows, b.per_row}, scales));
    return made;
}

}  // namespace qk::systems
