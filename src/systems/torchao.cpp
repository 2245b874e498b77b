// SPDX-License-Identifier: Apache-2.0
// torchao's prototype MX formats, with its four rules for the scale, and its NVFP4 of two levels and of one.
#include <algorithm>

#include "planes.hpp"
#include "tables.hpp"

namespace qk::systems {
namespace {

/// An MX element: how it rounds, and its largest value.
struct element {
    int mantissa, bias, exponent;  ///< exponent of the largest power of two
    float largest;
    bool fp8;
};
constexpr element e2m1{1, 1, 2, 6, false}, e2m3{3, 1, 2, 7.5f, false}, e3m2{2, 3, 4, 28, false}, e4m3{3, 7, 8, 448, true},
    e5m2{2, 15, 15, 57344, true};

element element_of(std::string_view format) {
    const std::string_view name = format.substr(6, 4);
    return name == "e2m1" ? e2m1 : name == "e2m3" ? e2m3 : name == "e3m2" ? e3m2 : name == "e4m3" ? e4m3 : e5m2;
}

/// Codes below eight bits saturate; a NaN becomes 1.5 with its sign.
std::uint8_t element_code(const element& e, float v) {
    const std::uint32_t sign = bits_of(v) >> 31;
    if (e.fp8) return e.mantissa == 3 ? to_e4m3(v) : to_e5m2(v);
    const int width = e.mantissa == 1 ? 3 : 5;
    if (v != v) return static_cast<std::uint8_t>(e.bias << e.mantissa | 1 << (e.mantissa - 1) | sign << width);
    const auto most = static_cast<std::uint32_t>((1 << width) - 1);
    const std::uint32_t magnitude = std::abs(v) >= e.largest ? most : std::min(magnitude_code(v, e.mantissa, e.bias), most);
    return static_cast<std::uint8_t>(magnitude | sign << width);
}
float element_value(const element& e, std::uint8_t code) {
    if (e.fp8) return e.mantissa == 3 ? from_e4m3(code) : from_e5m2(code);
    const int width = e.mantissa == 1 ? 3 : 5;
    const float v = magnitude_value(code & ((1u << width) - 1), e.mantissa, e.bias);
    return (code >> width) & 1 ? -v : v;
}

struct block_scale {
    std::uint8_t code;
    float factor;          ///< x is multiplied by it
    bool divides = false;  ///< or divided
};

block_scale rounded_up(float maximum, const element& e) {
    const float descale = maximum / e.largest;
    if (descale != descale) return {255, descale};
    if (std::isinf(descale)) return {254, power_of_two(-127)};
    const auto code = static_cast<std::uint8_t>(clamp(std::ceil(log2_float(descale)), -127, 127) + 127);
    // its code 0 scales by 1 instead of 2^127, so that blocks that small become zeros
    return {code, code == 254 ? power_of_two(-127) : code == 0 ? 1.0f : power_of_two(127 - code)};
}

block_scale by_exponent(float maximum, const element& e, std::string_view mode) {
    std::uint32_t bits = bits_of(maximum);
    if (mode == "even") bits = (bits + (1u << (23 - e.mantissa - 1))) & 0xff800000u;
    int exponent = static_cast<int>((bits >> 23) & 0xff) - 127;
    if (mode == "ceil") exponent += (bits & 0x7fffff) != 0;
    const int code = std::clamp(exponent - e.exponent, -127, 128) + 127;
    const std::uint8_t stored = maximum != maximum ? std::uint8_t{255} : static_cast<std::uint8_t>(code);
    // the scale in float32 is never below the smallest normal number
    const float scale = stored == 255 ? infinity : power_of_two(std::max(stored - 127, -126));
    return {stored, scale, true};
}

}  // namespace

result torchao_mx(const rule& how, const input& x) {
    const element e = element_of(how.format);
    const std::string_view mode = how.format.substr(11);
    const blocked b(x, 32);
    std::vector<std::uint8_t> codes(x.values.size()), scales(b.count());
    result made{{x.rows, x.columns}, std::vector<float>(x.values.size()), {}};
    for (std::size_t i = 0; i < b.count(); ++i) {
        const float maximum = absolute_maximum(b[i]);
        const block_scale s = mode == "rceil" ? rounded_up(maximum, e) : by_exponent(maximum, e, mode);
        scales[i] = s.code;
        const float back = s.code == 255 ? quiet_nan : power_of_two(s.code - 127);
        for (std::size_t k = 0; k < 32; ++k) {
            float v = s.divides ? b[i][k] / s.factor : b[i][k] * s.factor;
            if (e.fp8 || !s.divides) v = clamp(v, -e.largest, e.largest);
            codes[i * 32 + k] = element_code(e, v);
            made.values[i * 32 + k] = element_value(e, codes[i * 32 + k]) * back;
        }
    }
    if (e.mantissa == 1) {
        made.planes.push_back(make_plane("codes", {x.rows, x.columns / 2}, packed_pairs(codes, x.rows, x.columns)));
    } else {
        made.planes.push_back(make_plane("codes", {x.rows, x.columns}, codes));
    }
    made.planes.push_back(make_plane("scales", {x.rows, b.per_row}, scales));
    return made;
}

result torchao_nvfp4(const rule& how, const input& x) {
    const bool two_levels = how.format == "nvfp4";
    const blocked b(x, 16);
    const float t = finite_maximum(x.values) / 2688.0f;  // the caller's; this is what a caller gives who leaves Inf and NaN out
    std::vector<std::uint8_t> codes(x.values.size()), scales(b.count());
    result made{{x.rows, x.columns}, std::vector<float>(x.values.size()), {}};
    for (std::size_t i = 0; i < b.count(); ++i) {
        const float local = absolute_maximum(b[i]) / 6.0f;
        scales[i] = to_e4m3(clamp(two_levels ? local / t : local, 0.015625f, 448));
        const float s = from_e4m3(scales[i]);
        const float factor = two_levels ? (1.0f / t) / s : 1.0f / s;
        const float d = two_levels ? t * s : s;
        for (std::size_t k = 0; k < 16; ++k) {
            // the mantissa of a NaN scale is all ones, and rounds up; the sign stays
            codes[i * 16 + k] =
                s != s ? static_cast<std::uint8_t>(4 | (scales[i] & 0x80) >> 4) : element_code(e2m1, clamp(b[i][k] * factor, -6, 6));
            made.values[i * 16 + k] = element_value(e2m1, codes[i * 16 + k]) * d;
        }
    }
    made.planes.push_back(make_plane("codes", {x.rows, x.columns / 2}, packed_pairs(codes, x.rows, x.columns)));
    made.planes.push_back(make_plane("scales", {x.rows, b.per_row}, scales));
    if (two_levels) made.planes.push_back(make_plane("global", {1}, std::vector<float>{t}));
    return made;
}

}  // namespace qk::systems
