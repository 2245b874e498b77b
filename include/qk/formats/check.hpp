// SPDX-License-Identifier: Apache-2.0
// Checks formats, scales and zero points that came from outside. A check returns a sentence that says what is wrong, empty if nothing is.
// The rooms of the families have theirs.
#pragma once

#include "qk/formats/format.hpp"
#include "qk/formats/p3109.hpp"
#include "qk/isa.hpp"

namespace qk {

inline namespace QK_ISA {

constexpr message check(const format& f) {
    return detail::with_read_family(f, [](const auto& g) { return check(g); });
}
/// The same for a format that numbers are rounded to.
constexpr message check_rounds(const format& f) {
    return is_read_only(f) ? message("ggml's blocks are only read, by decode and products; qk::systems::ggml (--system) makes them")
                           : check(f);
}

/// A scale must be finite and above 0.
constexpr message check_scale(float scale) {
    if (scale != scale) return "the scale is NaN; it must be a finite number above 0";
    if (!detail::is_finite(scale)) return "the scale is infinite; it must be a finite number above 0";
    if (!(scale > 0))
        return scale == 0 ? "the scale is 0; it must be a finite number above 0"
                          : "the scale is negative; it must be a finite number above 0";
    return {};
}

}  // namespace QK_ISA

}  // namespace qk
