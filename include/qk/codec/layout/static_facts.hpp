// SPDX-License-Identifier: Apache-2.0
// What encode and decode know of a format when compiling: what it rules out is not compiled.
#pragma once

#include "qk/codec/layout/layout.hpp"
#include "qk/kernels/choose.hpp"

namespace qk::detail {

inline constexpr int any_width = 0;  ///< known when running only

/// Of format `f`: the default knows nothing.
struct known_codes {
    int width = any_width;        ///< bits of an element's code
    kernels::block_shape blocks;  ///< of block formats
    kernels::floating_kind kind = kernels::floating_kind::any;
};
template <class Format>
constexpr known_codes known_of(const Format& f) {
    if constexpr (kernels::is_block_family<Format>) return {element_width(f), kernels::shape_of(f)};
    else return {element_width(f), {}, kernels::kind_of(f)};
}

/// May a code have this width, as far as is known? (0 to 7 bits: narrow.)
constexpr bool may_be_wide(int known, int width) { return known == any_width || known == width; }
constexpr bool may_be_narrow(int known) { return known == any_width || known < 8; }

}  // namespace qk::detail
