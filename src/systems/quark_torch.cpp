// SPDX-License-Identifier: Apache-2.0
// AMD Quark, the PyTorch side: observers and fake quantizers. (`--semantics quark` is its other half, the ONNX operators.)
#include <algorithm>
#include <array>

#include "planes.hpp"
#include "tables.hpp"

namespace qk::systems {
namespace {

constexpr float epsilon = std::numeric_limits<float>::epsilon();

/// Elements of E2M1: what rounds to zero is +0, Inf and NaN pass.
float element(float v) {
    if (!std::isfinite(v)) return v;
    const float magnitude = e2m1_magnitudes[e2m1_even(std::abs(v))];
    return magnitude == 0 ? 0.0f : v < 0 ? -magnitude : magnitude;
}

/// A scale of zero is replaced where it is used, but not where it is stored.
void fake_fp4(std::span<const float> x, float scale, std::span<float> y) {
    if (scale == 0) scale = epsilon;
    for (std::size_t i = 0; i < x.size(); ++i) y[i] = element(x[i] / scale) * scale;
}

/// UE5M3 as it encodes: the sign is dropped, there is no saturation (the exponent stops at 31 and the mantissa stays), and NaN has no way
/// in.
std::uint8_t ue5m3_bits(float v) {
    const std::uint32_t bits = magnitude_bits(v);
    if (static_cast<int>(bits >> 23) - 112 <= 0) return static_cast<std::uint8_t>(magnitude_code(v, 3, 15));
    const std::uint32_t rounded = (bits + (1u << 19) - 1 + ((bits >> 20) & 1)) >> 20;
    const std::uint32_t exponent = std::min((rounded >> 3) - 112, 31u);
    return static_cast<std::uint8_t>(exponent << 3 | (rounded & 7));
}
/// Its fake quantizer clamps first.
float through_ue5m3(float v) { return from_ue5m3(ue5m3_bits(clamp(v, 0, 114688))); }

float e8m0_scale(float maximum, std::string_view mode) {
    if (mode == "even") {
        const std::uint32_t field = (bits_of(maximum) + (1u << 21)) >> 23;
        if (maximum != maximum) return quiet_nan;
        if (maximum == 0) return power_of_two(-127);
        if (field >= 255) return power_of_two(127);
        return power_of_two(std::clamp(field == 0 ? -1000 : static_cast<int>(field) - 127 - 2, -127, 127));
    }
    if (maximum == 0) return epsilon;
    if (maximum != maximum) return quiet_nan;
    const float scale = power_of_two(static_cast<int>(clamp(std::ceil(log2_float(maximum)), -1000, 1000)) - 2);
    return scale == 0 ? epsilon : scale;
}

/// MXFP4-diffs: the exponent of the ceil rule, or one less where that has a smaller sum of squares.
float least_difference_scale(std::span<const float> x, float maximum) {
    if (maximum == 0) return epsilon;
    if (!std::isfinite(maximum)) return std::isinf(maximum) ? infinity : quiet_nan;
    const int exponent = static_cast<int>(std::ceil(log2_float(maximum))) - 2;
    float kept = 0, best = infinity;
    for (const int e : {exponent, exponent - 1}) {
        std::array<float, 32> y, errors;
        fake_fp4(x, power_of_two(e), y);
        for (std::size_t k = 0; k < 32; ++k) {
            const float difference = x[k] - y[k];
            errors[k] = difference * difference;
        }
        const float loss = torch_sum(errors);
        if (loss < best || e == exponent) {
            best = loss;
            kept = power_of_two(e);
        }
    }
    return kept == 0 ? epsilon : kept;
}

}  // namespace

result quark_mxfp4(const rule& how, const input& x) {
    const std::string_view mode = how.format.substr(6);
    const blocked b(x, 32);
    std::vector<float> values(b.values.size()), scales(b.count());
    for (std::size_t i = 0; i < b.count(); ++i) {
        const float maximum = absolute_maximum(b[i]);
        scales[i] = mode == "diffs" ? least_difference_scale(b[i], maximum) : e8m0_scale(maximum, mode);
        fake_fp4(b[i], scales[i], std::span(values).subspan(i * 32, 32));
    }
    return with_scales(x, b, values, scales);
}

result quark_nvfp4(const rule&, const input& x) {
    const blocked b(x, 16);
    const float two_levels = ((1.0f / b.maximum()) * 6.0f) * 448.0f;
    std::vector<float> values(b.values.size()), scales(b.count());
    for (std::size_t i = 0; i < b.count(); ++i) {
        const float local = absolute_maximum(b[i]) / 6.0f;
        scales[i] = from_e4m3(to_e4m3(local * two_levels)) / two_levels;
        fake_fp4(b[i], scales[i], std::span(values).subspan(i * 16, 16));
    }
    return with_scales(x, b, values, scales);
}

result quark_amdfp4(const rule& how, const input& x) {
    const std::size_t size = how.format.ends_with("g32") ? 32 : 16;
    const bool global = how.format.find("global") != std::string_view::npos;
    const blocked b(x, size);
    std::vector<float> values(b.values.size()), scales(b.count());
    float outer = b.maximum() / (6.0f * 114688.0f);
    if (outer == 0) outer = epsilon;
    for (std::size_t i = 0; i < b.count(); ++i) {
        float maximum = absolute_maximum(b[i]);
        if (maximum != maximum) maximum = float_of(0x7fffffffu);  // PyTorch's maximum: its mantissa rounds up, and the scale is 65536
        const float local = maximum / 6.0f;
        const float lifted = local == 0 ? epsilon : local;
        scales[i] = global ? through_ue5m3(lifted / outer) * outer : through_ue5m3(lifted);
        const std::span<float> y = std::span(values).subspan(i * size, size);
        fake_fp4(b[i], scales[i], y);
        if (global && scales[i] == 0)  // the scale that was quantized multiplies, and zeros the block
            for (float& v : y) v *= 0.0f;
    }
    result made = with_scales(x, b, values, scales, global ? "scales0" : "scales");
    if (global) made.planes.push_back(make_plane("scales1", {1}, std::vector<float>{outer}));
    return made;
}

result quark_fp8_e5m3(const rule&, const input& x) {
    float scale = absolute_maximum(x.values) / 114688.0f;
    if (scale == 0) scale = epsilon;
    result made{{x.rows, x.columns}, std::vector<float>(x.values.size()), {}};
    for (std::size_t i = 0; i < x.values.size(); ++i) made.values[i] = through_ue5m3(x.values[i] / scale) * scale;
    made.planes.push_back(make_plane("scales", {1}, std::vector<float>{scale}));
    return made;
}

result quark_ue5m3(const rule&, const input& x) { return coded_values(x, ue5m3_bits, from_ue5m3); }

result quark_int4(const rule& how, const input& x) {
    const bool symmetric = how.format == "int4_g128_sym";
    const blocked b(x, 128);
    std::vector<float> values(b.values.size()), scales(b.count()), zeros(b.count());
    for (std::size_t i = 0; i < b.count(); ++i) {
        const auto [low, high] = range_with_zero(b[i]);
        scales[i] = std::max(symmetric ? std::max(-low, high) / 7.5f : (high - low) / 15.0f, epsilon);
        if (!symmetric) zeros[i] = clamp(0.0f - std::nearbyint(low / scales[i]), 0, 15);
        const float inverse = 1.0f / scales[i];
        for (std::size_t k = 0; k < 128; ++k) {
            const float q = clamp(std::nearbyint(b[i][k] * inverse) + zeros[i], symmetric ? -8.0f : 0.0f, symmetric ? 7.0f : 15.0f);
            values[i * 128 + k] = (q - zeros[i]) * scales[i];
        }
    }
    result made = with_scales(x, b, values, scales);
    if (!symmetric) made.planes.push_back(make_plane("zeros", {x.rows, b.per_row}, zeros));
    return made;
}

}  // namespace qk::systems
