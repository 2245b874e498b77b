// SPDX-License-Identifier: Apache-2.0
// The step of the microexponents: block float's, with sub-blocks whose exponents are at most some below that of their block.
#pragma once

#include "qk/formats/block_float/step.hpp"
#include "qk/formats/microexponent/format.hpp"
#include "qk/isa.hpp"

namespace qk::kernels {
inline namespace QK_ISA {

constexpr block_shape shape_of(const microexponent& f) { return {f.block_size, element_step::pair}; }

template <class Arch>
block_float_step<Arch> step_of(const microexponent& f, const semantics& how, float) noexcept {
    block_rules rules = rules_of(how, block_specials::block_nan, zero_sign::kept);
    rules.least_input = min_normal_bits;
    return {f.block_size, f.sub_block_size, f.mantissa_bits, 254, (1 << f.shift_bits) - 1, rules};
}

}  // namespace QK_ISA
}  // namespace qk::kernels
