// SPDX-License-Identifier: Apache-2.0
// What encode and decode know of a format when compiling. Code for cases that this rules out is not compiled.
#pragma once

#include "qk/codec/layout/layout.hpp"
#include "qk/kernels/choose.hpp"

namespace qk::detail {

inline constexpr int any_width = 0;  ///< known only at run time

/// Facts about a format; the default knows nothing.
struct compile_time_facts {
    int width = any_width;        ///< bits of an element's code
    kernels::block_shape blocks;  ///< of block formats
    kernels::floating_kind kind = kernels::floating_kind::any;
};
template <class Format>
constexpr compile_time_facts known_of(const Format& f) {
    if constexpr (kernels::is_block_family<Format>) return {element_width(f), kernels::shape_of(f)};
    else return {element_width(f), {}, kernels::kind_of(f)};
}

/// Are true unless what is known rules out a code of this width, or a narrow code (at most 7 bits).
constexpr bool may_be_wide(int known, int width) { return known == any_width || known == width; }
constexpr bool may_be_narrow(int known) { return known == any_width || known < 8; }

}  // namespace qk::detail
