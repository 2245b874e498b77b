// SPDX-License-Identifier: Apache-2.0
// The usual widths of codes and sizes of blocks: kernels that know them when compiling are up to a fifth faster than those for any.
#pragma once

#include "qk/codec.hpp"

namespace qk::dispatch {

constexpr detail::compile_time_facts known(int width, kernels::block_shape blocks = {}) {
    return {width, blocks, kernels::floating_kind::any};
}

/// Calls call.operator()<compile_time_facts>() with what is known of the format if it is a usual one, else with an empty
/// compile_time_facts.
template <class Format, class Call>
QK_INLINE void with_usual_codes(const Format& f, const Call& call) {
    using kernels::element_step;
    const int width = detail::element_width(f);
    if constexpr (detail::is_float<Format>) {
        if (width == 16) return call.template operator()<known(16)>();
        if (width == 8) return call.template operator()<known(8)>();
    } else if constexpr (detail::has_zero_points<Format>) {
        if (width == 8) return call.template operator()<known(8)>();
    } else if constexpr (detail::in_plain_blocks<Format>) {
        if (width == 8 && f.block_size == 8) return call.template operator()<known(8, {8, element_step::block})>();
    } else if constexpr (detail::has_sub_blocks<Format>) {
        if (f.block_size == 16) {
            if (width == 8) return call.template operator()<known(8, {16, element_step::pair})>();
            if (width == 5) return call.template operator()<known(5, {16, element_step::pair})>();
            if (width == 3) return call.template operator()<known(3, {16, element_step::pair})>();
        }
    } else if constexpr (detail::under_power_scales<Format>) {
        if (f.block_size == 32 && has_integer_elements(f)) {
            if (width == 8) return call.template operator()<known(8, {32, element_step::block})>();
        } else if (f.block_size == 32) {
            if (width == 8) return call.template operator()<known(8, {32, element_step::element})>();
            if (width == 6) return call.template operator()<known(6, {32, element_step::element})>();
            if (width == 4) return call.template operator()<known(4, {32, element_step::element})>();
        }
    } else if constexpr (detail::under_floating_scales<Format>) {
        if (width == 4 && f.block_size == 16) return call.template operator()<known(4, {16, element_step::element})>();
    }
    call.template operator()<detail::compile_time_facts{}>();
}

}  // namespace qk::dispatch
