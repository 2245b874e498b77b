// SPDX-License-Identifier: Apache-2.0
// What a search for block scales (drivers/searched_blocks.hpp) and the steps that it searches for have in common.
#pragma once

#include <algorithm>

#include "qk/isa.hpp"
#include "qk/parameters.hpp"
#include "qk/semantics.hpp"
#include "qk/steps/general.hpp"

namespace qk::kernels {
inline namespace QK_ISA {

/// Semantics under which scales are compared: the choice depends neither on the rounding of the elements nor on what becomes of results.
constexpr semantics for_search(semantics how) {
    how.rounding = rounding::half_even;
    how.random_words = {};
    how.flush_outputs = false;
    return how;
}

/// What both families know of a search. `found`, where it is given, gets each block's scale at the position of the block's first element:
/// MX's exponent, or the bits of NVFP4's block scale.
struct search_task {
    along_axis axis;
    semantics how;
    std::int32_t* found = nullptr;

    /// Is the result of a finite x the nearest element with x's sign, where a zero has x's sign, too, or none?
    constexpr bool is_plain(zero_sign zero) const {
        return how.rounding == rounding::half_even && !how.flush_inputs && !how.flush_outputs &&
               (zero == zero_sign::kept || zero == zero_sign::positive);
    }
};

/// A step of the ladder of scales for each lane, and a truth for each lane.
template <class Arch>
struct ladder_steps {
    alignas(64) std::int32_t at[lanes<Arch>];
};
template <class Arch>
struct lane_flags {
    bool is[lanes<Arch>];
};

/// Rounds magnitudes to the elements of most formats by two sums, half-even: a sign, subnormals, steps of ordinary size.
template <class Arch>
struct element_rounding {
    vi<Arch> smallest, lift;
    vf<Arch> largest;
    bool usable;

    element_rounding(int mantissa_bits, int least_exponent, float largest_element, bool usual) noexcept
        : smallest((std::clamp(least_exponent, -100, 100) + 127) << 23),
          lift((23 - mantissa_bits) << 23),
          largest(largest_element),
          usable(usual && mantissa_bits <= 15 && least_exponent - mantissa_bits >= -60 && least_exponent <= 60) {}

    QK_INLINE vf<Arch> operator()(vf<Arch> a) const noexcept {
        const vf<Arch> q = min(a, largest);
        const vf<Arch> magic = as_float<Arch>(max(as_int<Arch>(q) & vi<Arch>(infinity_bits), smallest) + lift);
        return (q + magic) - magic;
    }
};

}  // namespace QK_ISA
}  // namespace qk::kernels
