// SPDX-License-Identifier: Apache-2.0
// What encode and decode know of a format when compiling: what it rules out is not compiled.
#pragma once

#include "qk/codec/layout.hpp"
#include "qk/kernels/run.hpp"

namespace qk::detail {

inline constexpr int any_width = 0;      ///< known when running only
inline constexpr int narrow_width = -1;  ///< 1 to 7 bits, known when running only

/// Of format `f`: the default knows nothing.
struct known_codes {
    int width = any_width;        ///< bits of an element's code
    kernels::block_shape blocks;  ///< of block formats
};
template <class Format>
constexpr known_codes known_of(const Format& f) {
    if constexpr (kernels::is_block_family<Format>)
        return {element_width(f), kernels::shape_of(f)};
    else
        return {element_width(f), {}};
}

constexpr bool is_narrow(int width) { return width == narrow_width || (width >= 1 && width <= 7); }

/// Calls call.template operator()<Width>() with the known width, or else with 8, 16 or narrow_width; for widths that the short forms serve.
template <int Known, class Call>
QK_INLINE auto with_width_class(int width, const Call& call) {
    if constexpr (Known != any_width) {
        return call.template operator()<Known>();
    } else {
        if (width == 8) return call.template operator()<8>();
        if (width == 16) return call.template operator()<16>();
        return call.template operator()<narrow_width>();
    }
}

}  // namespace qk::detail
