// SPDX-License-Identifier: Apache-2.0
// auto-round (data_type): its fake quantizers. Their elements are rounded in floats, with a defect just below a tie that is kept here.
#include <algorithm>
#include <array>

#include "planes.hpp"
#include "tables.hpp"

namespace qk::systems {
namespace {

float reciprocal(float v) { return v == 0 ? 0.0f : 1.0f / v; }

struct mx_element {
    int exponent_bits, mantissa, exponent;  ///< mantissa: as its table counts it, two more than the stored bits
    float largest;
};
constexpr mx_element fp4{2, 3, 2, 6}, fp6_e2m3{2, 5, 2, 7.5f}, fp8{4, 5, 8, 448}, int8{0, 8, 0, 1.984375f}, int4{0, 4, 0, 1.75f};

/// Rounds to the element's grid as it does: |v| + 0.5, floored, less one at a tie to an odd number. 0.49999997 + 0.5 is 1 in float32.
float rounded_element(float v, const mx_element& e) {
    const float lift = power_of_two(e.mantissa - 2);
    float unit = 1;
    if (e.exponent_bits != 0) {
        const float lowest = static_cast<float>(-(1 << (e.exponent_bits - 1)) + 2);
        float exponent = std::floor(log2_float(std::abs(v) + (v == 0 ? 1.0f : 0.0f)));
        if (exponent < lowest) exponent = lowest;
        unit = exponent == exponent ? power_of_two(static_cast<int>(std::min(exponent, 200.0f))) : quiet_nan;
    }
    const float t = e.exponent_bits != 0 ? v / unit * lift : v * lift;
    const float a = std::abs(t);
    const float tie = std::fmod(a - 0.5f, 2.0f) == 0 ? 1.0f : 0.0f;
    const float sign = t > 0 ? 1.0f : t < 0 ? -1.0f : 0.0f;
    float q = sign * (std::floor(a + 0.5f) - tie);
    q = e.exponent_bits != 0 ? q / lift * unit : q / lift;
    return clamp(q, -e.largest, e.largest);
}

float clamped_exponent(float v) { return clamp(v, -127, 127); }
float scale_of(float exponent) { return exponent == exponent ? power_of_two(static_cast<int>(exponent)) : quiet_nan; }

float floor_rule(float maximum, const mx_element& e) {
    return clamped_exponent(std::floor(maximum == 0 ? 1.0f : log2_float(maximum)) - static_cast<float>(e.exponent));
}
float ceil_rule(float maximum, float divisor) {
    const float ratio = maximum / divisor;
    if (ratio == 0 && maximum != 0) return quiet_nan;
    return clamped_exponent(maximum == 0 ? 1.0f : std::ceil(log2_float(ratio)) + 0.0f);
}

float mx_value(float v, float scale, const mx_element& e) { return rounded_element(clamp(v / scale, -e.largest, e.largest), e) * scale; }

/// The exponent of least squared error among the floor rule's for the maximum, half of it and twice it; the first wins a tie.
float searched_exponent(std::span<const float> x, float maximum) {
    float best = infinity, kept = 0;
    bool first = true;
    for (const float factor : {1.0f, 0.5f, 2.0f}) {
        const float exponent = floor_rule(maximum * factor, fp4);
        std::array<float, 32> errors;
        for (std::size_t k = 0; k < x.size(); ++k) {
            const float difference = mx_value(x[k], scale_of(exponent), fp4) - x[k];
            errors[k] = difference * difference;
        }
        const float loss = torch_sum(std::span(errors).first(x.size()));
        if (first || loss < best) {
            best = loss;
            kept = exponent;
        }
        first = false;
    }
    return kept;
}

/// Its E2M1: three roundings, one for each binade.
float fp4_value(float v) {
    const float a = std::abs(v), sign = v > 0 ? 1.0f : v < 0 ? -1.0f : 0.0f;
    if (v != v) return quiet_nan;
    const float q = a < 2 ? std::nearbyint(2.0f * a) / 2.0f : a < 4 ? std::nearbyint(a) : 2.0f * std::nearbyint(a / 2.0f);
    return (q > 6 ? 6.0f : q) * sign;
}

std::uint8_t ue5m3_code(float v) {
    if (v != v) return 0xff;
    const float finite = clamp(v, 0, 114688);
    return static_cast<std::uint8_t>(std::min(magnitude_code(finite, 3, 15), 0xfeu));
}

struct nvfp4_block {
    float scale;
    std::array<float, 32> values;
};
/// One block with E4M3 scales under the tensor's encoding scale.
nvfp4_block nvfp4_values(std::span<const float> x, float maximum, float global) {
    nvfp4_block made;
    made.scale = from_e4m3(to_e4m3(clamp(global * (maximum * (1.0f / 6.0f)), -448, 448)));
    const float output = reciprocal(made.scale * reciprocal(global));
    for (std::size_t k = 0; k < x.size(); ++k) made.values[k] = fp4_value(clamp(x[k] * output, -6, 6)) * reciprocal(output);
    return made;
}
/// The factor on the maximum of least squared error: 1, then 0.50 to 1.51 in steps of 0.01; only a smaller error replaces what is kept.
float searched_coefficient(std::span<const float> x, float maximum, float global) {
    const auto loss = [&](float factor) {
        const nvfp4_block made = nvfp4_values(x, maximum * factor, global);
        std::array<float, 16> errors;
        for (std::size_t k = 0; k < 16; ++k) {
            const float difference = made.values[k] - x[k];
            errors[k] = difference * difference;
        }
        return torch_sum(errors);
    };
    float kept = 1, best = loss(1);
    for (int hundredths = 50; hundredths < 152; ++hundredths) {
        const auto factor = static_cast<float>(hundredths / 100.0);
        const float now = loss(factor);
        if (now < best) {
            best = now;
            kept = factor;
        }
    }
    return kept;
}
/// One block with UE5M3 scales.
nvfp4_block e5m3_values(std::span<const float> x, float maximum, float global) {
    nvfp4_block made;
    made.scale = from_ue5m3(ue5m3_code(clamp(global * (maximum * (1.0f / 6.0f)), 0, 114688)));
    const float d = made.scale * reciprocal(global);
    for (std::size_t k = 0; k < x.size(); ++k) made.values[k] = fp4_value(clamp(d == 0 ? 0.0f : x[k] / d, -6, 6)) * d;
    return made;
}

}  // namespace

result ar_mx(const rule& how, const input& x) {
    const std::string_view f = how.format;
    const mx_element e = f.starts_with("mxfp4") ? fp4 : f == "mxfp6_e2m3" ? fp6_e2m3 : f == "mxfp8" ? fp8 : f == "mxint8" ? int8 : int4;
    const blocked b(x, 32);
    std::vector<float> values(b.values.size()), exponents(b.count());
    for (std::size_t i = 0; i < b.count(); ++i) {
        const float maximum = absolute_maximum(b[i]);
        exponents[i] = f == "mxfp4_rceil"    ? ceil_rule(maximum, e.largest)
                       : f == "mxfp4_725"    ? ceil_rule(maximum, 7.25f)
                       : f == "mxfp4_search" ? searched_exponent(b[i], maximum)
                                             : floor_rule(maximum, e);
        // the straight-through estimator makes (Inf - Inf) + Inf of it; the search does without
        if (std::isinf(maximum) && f != "mxfp4_search") exponents[i] = quiet_nan;
        for (std::size_t k = 0; k < 32; ++k) values[i * 32 + k] = mx_value(b[i][k], scale_of(exponents[i]), e);
    }
    return with_scales(x, b, values, exponents);
}

result ar_mxuint4(const rule&, const input& x) {
    const blocked b(x, 32);
    std::vector<float> values(b.values.size()), exponents(b.count());
    for (std::size_t i = 0; i < b.count(); ++i) {
        const float maximum = absolute_maximum(b[i]);
        exponents[i] = std::isinf(maximum) ? quiet_nan : clamped_exponent(maximum > 0 ? std::floor(log2_float(maximum)) : 0.0f);
        const float scale = scale_of(exponents[i]);
        for (std::size_t k = 0; k < 32; ++k) {
            const float code = clamp(std::nearbyint(b[i][k] / scale * 4.0f) + 8.0f, 0, 15);
            values[i * 32 + k] = (code - 8.0f) / 4.0f * scale;
        }
    }
    return with_scales(x, b, values, exponents);
}

result ar_nvfp4(const rule& how, const input& x) {
    const bool search = how.format == "nvfp4_search";
    const blocked b(x, 16);
    const float global = reciprocal(b.maximum()) * 2688.0f;
    std::vector<float> values(b.values.size()), scales(b.count());
    for (std::size_t i = 0; i < b.count(); ++i) {
        const float maximum = absolute_maximum(b[i]);
        const float coefficient = search ? searched_coefficient(b[i], maximum, global) : 1.0f;
        const nvfp4_block made = nvfp4_values(b[i], maximum * coefficient, global);
        scales[i] = made.scale;
        std::copy(made.values.begin(), made.values.begin() + 16, values.begin() + static_cast<std::ptrdiff_t>(i * 16));
    }
    return with_scales(x, b, values, scales);
}

result ar_nvfp4_e5m3(const rule& how, const input& x) {
    const std::size_t size = how.format.ends_with("g32") ? 32 : 16;
    const blocked b(x, size);
    const float global = how.format.find("global") != std::string_view::npos ? reciprocal(b.maximum()) * (114688.0f * 6.0f) : 1.0f;
    std::vector<float> values(b.values.size()), scales(b.count());
    for (std::size_t i = 0; i < b.count(); ++i) {
        const nvfp4_block made = e5m3_values(b[i], absolute_maximum(b[i]), global);
        scales[i] = made.scale;
        std::copy(made.values.begin(), made.values.begin() + static_cast<std::ptrdiff_t>(size),
                  values.begin() + static_cast<std::ptrdiff_t>(i * size));
    }
    return with_scales(x, b, values, scales);
}

float ue5m3_value(std::uint8_t code) { return from_ue5m3(code); }

result ar_ue5m3(const rule&, const input& x) { return coded_values(x, ue5m3_code, from_ue5m3); }

result ar_int(const rule& how, const input& x) {
    const bool symmetric = how.format == "int_sym4_g128";
    constexpr float least_scale = 1e-5f;
    const blocked b(x, 128);
    std::vector<float> values(b.values.size()), scales(b.count()), zeros(b.count());
    for (std::size_t i = 0; i < b.count(); ++i) {
        const auto [low, high] = range_with_zero(b[i]);
        float& scale = scales[i];
        if (symmetric) {
            const float most = (high < -low ? 1.0f : -1.0f) * std::max(high, -low);
            scale = through_half(most / 8.0f);
            scale = scale < 0 ? std::min(scale, through_half(-least_scale)) : std::max(scale, through_half(least_scale));
        } else {
            scale = std::max(through_half((high - low) / 15.0f), through_half(least_scale));
            zeros[i] = round_without_negative_zero(-low / scale);
        }
        for (std::size_t k = 0; k < 128; ++k) {
            const float q = round_without_negative_zero(b[i][k] / scale);
            values[i * 128 + k] = symmetric ? scale * clamp(q, -8, 7) : scale * (clamp(q + zeros[i], 0, 15) - zeros[i]);
        }
    }
    result made = with_scales(x, b, values, scales);
    if (!symmetric) made.planes.push_back(make_plane("zeros", {b.count(), 1}, zeros));
    return made;
}

result ar_fp8_block(const rule&, const input& x) {
    const tiled tile(x, 128, 128);
    std::vector<float> scales = tile.maxima(x.values);
    for (float& s : scales) {
        s = s / 448.0f;
        if (s < static_cast<float>(1.0 / (448.0 * 512.0))) s = static_cast<float>(1.0 / (448.0 * 512.0));
    }
    result made{{x.rows, x.columns}, std::vector<float>(x.values.size()), {}};
    for (std::size_t i = 0; i < x.values.size(); ++i) {
        const float scale = scales[tile(i)], v = clamp(x.values[i] / scale + 0.0f, -448, 448);
        made.values[i] = (from_e4m3(to_e4m3(v)) - v + v) * scale;  // the straight-through cast: what becomes 0 has no sign
    }
    made.planes.push_back(make_plane("scales", {tile.down, tile.across}, scales));
    return made;
}

}  // namespace qk::systems
