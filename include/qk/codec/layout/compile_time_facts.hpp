// SPDX-License-Identifier: Apache-2.0
// What encode and decode know of a format when compiling. Code for cases that this rules out is not compiled.
#pragma once

#include "qk/codec/layout/layout.hpp"
#include "qk/isa.hpp"
#include "qk/kernels/choose.hpp"
#include "qk/memory/narrow_codes.hpp"

namespace qk::detail {
inline namespace QK_ISA {

/// Facts about a format; the default knows nothing.
struct compile_time_facts {
    int width = any_width;        ///< bits of an element's code
    kernels::block_shape blocks;  ///< of block formats
    kernels::floating_kind kind = kernels::floating_kind::any;
};
template <class Format>
constexpr compile_time_facts known_of(const Format& f) {
    if constexpr (is_ggml_blocks<Format>) return {};
    else if constexpr (kernels::is_block_family<Format>) return {element_width(f), kernels::shape_of(f)};
    else return {element_width(f), {}, kernels::kind_of(f)};
}

}  // namespace QK_ISA
}  // namespace qk::detail
