// SPDX-License-Identifier: Apache-2.0
// What a table of formats says about each: largest and smallest numbers, special values. All of it is derived from the format.
#pragma once

#include "qk/exact/begin.hpp"

#include "qk/formats/format.hpp"
#include "qk/isa.hpp"
#include "qk/semantics.hpp"

namespace qk {

inline namespace QK_ISA {

/// Does a rule for scales say anything of this format? MX follows all; NVFP4 and its like those that compare errors.
constexpr bool has_scale_rule(const format& f, scale_rule rule) {
    return detail::with_family(f, [rule](const auto& g) {
        using family = std::remove_cvref_t<decltype(g)>;
        return detail::has_elements<family> && (!detail::under_floating_scales<family> || is_searched(rule));
    });
}

constexpr format_facts facts(const format& f) {
    return detail::with_read_family(f, [](const auto& g) { return facts(g); });
}

/// Returns "floating", "integer", "block float", "microexponent", "microscaling", "table" or "ggml's blocks".
constexpr const char* family_name(const format& f) {
    constexpr const char* names[] = {"floating",     "integer",      "block float", "microexponent",
                                     "microscaling", "microscaling", "table",       "ggml's blocks"};
    return names[f.index()];
}

}  // namespace QK_ISA

}  // namespace qk

#include "qk/exact/end.hpp"
