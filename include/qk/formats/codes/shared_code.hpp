// SPDX-License-Identifier: Apache-2.0
// What the codes of blocks' scales and exponents have in common: docs/reference/numerics.md, equations (7), (10) and (13). The rooms of the
// families have the rest.
#pragma once

#include <algorithm>

#include "qk/formats/codes/pack.hpp"
#include "qk/isa.hpp"
#include "qk/semantics.hpp"
#include "qk/steps/blocks.hpp"

namespace qk::detail {
inline namespace QK_ISA {

/// What a block's scale depends on: the largest finite magnitude, and the largest of all, as bits.
struct survey {
    std::uint32_t finite = 0;
    std::uint32_t all = 0;
};

/// Is the block NaN as a whole?
QK_INLINE constexpr bool is_nan_block(survey s, block_specials rule) {
    return s.all >= 0x7f800000u && (rule == block_specials::block_nan || (rule == block_specials::nan_only && s.all > 0x7f800000u));
}

/// A shared code, and the exponent of the step (MX: of the scale) that it stands for.
struct shared_code {
    std::uint32_t code = 0;
    int exponent = 0;
};

/// Makes codes of shared exponents from the largest magnitude of a block: its exponent plus an offset, clamped to a range. The offset is at
/// most 0, so that the code of a block of zeros is 0.
template <class Arch>
struct exponent_codes {
    kernels::vi<Arch> add, offset, top;

    template <class Form>
    QK_INLINE kernels::vi<Arch> code(kernels::vi<Arch> amax, const Form&) const noexcept {
        using V = kernels::vi<Arch>;
        return min(max(((amax + add) >> 23) + offset, V(0)), top);
    }
    template <class Form>
    QK_INLINE kernels::vi<Arch> code(kernels::vi<Arch> amax, kernels::vf<Arch>, const Form& form) const noexcept {
        return code(amax, form);
    }
};

/// Returns 2^(field - 127) for fields from -22 to 254. Fields below 1 give subnormals.
template <class Arch>
QK_INLINE kernels::vf<Arch> power_of_field(kernels::vi<Arch> field) noexcept {
    using V = kernels::vi<Arch>;
    if (__builtin_expect(!any(field <= V(0)), 1)) return kernels::as_float<Arch>(field << 23);
    const V subnormal = V(1) << min(max(field + V(22), V(0)), V(22));
    return kernels::as_float<Arch>(select(field > V(0), field << 23, subnormal));
}

/// Returns `factor`, or NaN where all eight bits of a block's shared exponent are set.
template <class Arch>
QK_INLINE kernels::vf<Arch> or_nan(kernels::vf<Arch> factor, kernels::vi<Arch> code) noexcept {
    using V = kernels::vi<Arch>;
    return kernels::as_float<Arch>(select(code == V(255), V(kernels::nan_bits), kernels::as_int<Arch>(factor)));
}

/// Computes the factors of blocks from the codes of their scales; NaN for NaN blocks. Microexponents: factor[1] is for pairs with shift 1.
template <class Arch, class Format>
struct block_factors;

}  // namespace QK_ISA
}  // namespace qk::detail
