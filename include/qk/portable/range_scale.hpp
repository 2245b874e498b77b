// SPDX-License-Identifier: Apache-2.0
// The scale that a tensor's own range gives: dynamic quantization. docs/reference/numerics.md, "Calibration".
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>

#include "qk/formats/format.hpp"
#include "qk/isa.hpp"
#include "qk/parameters.hpp"

namespace qk {
inline namespace QK_ISA {

/// Returns scale and zero point of a range [low, high] that holds 0 if the format is uint8, whose dynamic scales exported models leave to
/// DynamicQuantizeLinear, and the scale is subnormal: the operator divides by that, where every other format takes the scale 1.
inline std::optional<affine> subnormal_dynamic_scale(const format& f, float low, float high) {
    const integer* whole = std::get_if<integer>(&f);
    if (whole == nullptr || *whole != uint8) return std::nullopt;
    const float scale = (high - low) / 255.0f;
    if (!(scale > 0 && scale < std::numeric_limits<float>::min())) return std::nullopt;
    return affine{scale, static_cast<std::int64_t>(std::nearbyint(std::min(-low / scale, 255.0f)))};
}

/// Returns scale and zero point under which an integer, a small float or a table reaches the range [low, high], which holds 0; {1, 0} for
/// other formats, and where all is 0 or too small to divide by.
inline affine scale_of_range(const format& f, float low, float high) {
    if (const auto small = subnormal_dynamic_scale(f, low, high)) return *small;
    const float largest = std::max(-low, high);
    affine a;
    if (const auto* g = std::get_if<integer>(&f)) {
        const double qlow = static_cast<double>(qmin(*g)), qhigh = static_cast<double>(qmax(*g));
        double scale = 0;
        if (g->symmetric || g->pow2) {
            scale = g->is_signed ? static_cast<double>(largest) / qhigh : 2.0 * static_cast<double>(largest) / (qhigh - qlow);
            a.zero_point = g->is_signed ? 0 : std::int64_t{1} << (used_bits(*g) - 1);
            if (g->pow2 && scale > 0) scale = std::exp2(std::ceil(std::log2(scale)));
        } else {
            scale = (static_cast<double>(high) - static_cast<double>(low)) / (qhigh - qlow);
            if (scale > 0)
                a.zero_point = static_cast<std::int64_t>(std::clamp(std::nearbyint(qlow - static_cast<double>(low) / scale), qlow, qhigh));
        }
        a.scale = static_cast<float>(scale);
    } else if (const auto* e = std::get_if<floating>(&f)) {
        a.scale = static_cast<float>(static_cast<double>(largest) / max_value(*e));
    } else if (const auto* t = std::get_if<table>(&f)) {
        a.scale = static_cast<float>(static_cast<double>(largest) / reach(*t));
    }
    if (!(a.scale >= std::numeric_limits<float>::min())) a = {1.0f, 0};
    return a;
}

}  // namespace QK_ISA
}  // namespace qk
