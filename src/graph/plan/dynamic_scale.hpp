// SPDX-License-Identifier: Apache-2.0
// The scale that DynamicQuantizeLinear takes for values too small for a normal one.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "qk/formats/format.hpp"
#include "qk/parameters.hpp"

namespace qk::graph {

/// Returns scale and zero point of a range [lo, hi] that holds 0 if the format is uint8, whose dynamic scales exported models leave to
/// DynamicQuantizeLinear, and the scale is subnormal: the operator divides by that, where every other format takes the scale 1.
inline std::optional<affine> subnormal_dynamic_scale(const format& f, float lo, float hi) {
    const integer* whole = std::get_if<integer>(&f);
    if (whole == nullptr || *whole != uint8) return std::nullopt;
    const float scale = (hi - lo) / 255.0f;
    if (!(scale > 0 && scale < std::numeric_limits<float>::min())) return std::nullopt;
    return affine{scale, static_cast<std::int64_t>(std::nearbyint(std::min(-lo / scale, 255.0f)))};
}

}  // namespace qk::graph
