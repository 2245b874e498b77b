// SPDX-License-Identifier: Apache-2.0
// Codes of NVFP4 and its like: those of floats, under scales that are floats.
#pragma once

#include "qk/formats/codes/shared_code.hpp"
#include "qk/formats/floating/codes.hpp"
#include "qk/formats/nvfloat/fast.hpp"
#include "qk/isa.hpp"

namespace qk::detail {
inline namespace QK_ISA {

// ---- to codes

/// Returns the code of an NVFP4 block's scale. Elements are divided by the value of that code times the tensor scale.
template <class Arch>
std::uint32_t block_scale_code(const nvfloat& f, survey s, float tensor, const semantics& how) noexcept {
    if (is_nan_block(s, how.mx_specials)) return nan_code(f.scale);
    if (tensor == 0 || s.finite == 0) return code_of(f.scale, 0.0f);
    alignas(64) float ratio[kernels::lanes<Arch>] = {as_float(s.finite) / static_cast<float>(max_value(f.element)) / tensor};
    round_float<Arch>(f.scale, ratio, 1);
    return code_of(f.scale, ratio[0]);
}

/// Makes codes of NVFP4's scales.
template <class Arch>
struct float_codes {
    grid_codes<Arch> scales;

    template <class Form>
    explicit float_codes(const nvfloat& f, const Form&) noexcept : scales(f.scale) {}
    template <class Form>
    QK_INLINE kernels::vi<Arch> code(kernels::vi<Arch> amax, const Form& form) const noexcept {
        return code(amax, form.ratio(amax), form);
    }
    /// `ratio` is form.ratio(amax).
    template <class Form>
    QK_INLINE kernels::vi<Arch> code(kernels::vi<Arch> amax, kernels::vf<Arch> ratio, const Form& form) const noexcept {
        const kernels::vi<Arch> zero(0);
        return select(amax == zero, zero, scales.of_magnitude(ratio, form.scale_least, form.scale_magic));
    }
};

template <class Arch, class Form>
float_codes<Arch> scale_codes_of(const nvfloat& f, const Form& form) noexcept {
    return float_codes<Arch>(f, form);
}

// ---- to values

/// Returns NVFP4's d = float32(block scale * tensor scale).
QK_INLINE constexpr float scale_of(const nvfloat& f, std::uint32_t code, float tensor) { return value_of(f.scale, code) * tensor; }

template <class Arch>
void elements_of(const nvfloat& f, const std::uint32_t* code, float* out, std::size_t n) {
    to_floats<Arch>(f.element, code, out, n);
}

template <class Arch>
struct block_factors<Arch, nvfloat> {
    floating_values<Arch> scale;
    kernels::vf<Arch> tensor;

    QK_INLINE block_factors(const nvfloat& f, float t) noexcept : scale(f.scale), tensor(t) {}
    QK_INLINE void make(kernels::vi<Arch> code, kernels::vf<Arch>* factor) const noexcept { factor[0] = scale(code) * tensor; }
};

}  // namespace QK_ISA
}  // namespace qk::detail
