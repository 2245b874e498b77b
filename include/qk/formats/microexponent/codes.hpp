// SPDX-License-Identifier: Apache-2.0
// Codes of microexponents: block float's, with shifts of sub-blocks.
#pragma once

#include "qk/formats/block_float/codes.hpp"
#include "qk/formats/microexponent/step.hpp"
#include "qk/isa.hpp"

namespace qk::detail {
inline namespace QK_ISA {

// ---- to codes

QK_INLINE constexpr int step_exponent(const microexponent& f, int field, int shift) { return field - 127 - shift + 1 - f.mantissa_bits; }

QK_INLINE shared_code share(const microexponent& f, survey s, const float*, std::size_t, std::size_t, const semantics&) {
    if (s.all >= 0x7f800000u) return {low_bits(f.exponent_bits), 0};
    return {s.finite >> 23, 0};
}

template <class Arch>
void codes_of(const microexponent& f, const float* y, const float* first, const float* second, std::uint32_t* code, std::size_t n) {
    to_sign_magnitude_codes<Arch>(f.mantissa_bits, y, first, second, code, n);
}

template <class Arch>
exponent_codes<Arch> scale_codes_of(const microexponent&, const kernels::fast_block<Arch>&) noexcept {
    return {kernels::vi<Arch>(0), kernels::vi<Arch>(0), kernels::vi<Arch>(255)};
}

// ---- to values

/// Returns the sub-block's step, 2^(E - 127 - D + 1 - m). A block with E = 0 holds zeros only.
QK_INLINE constexpr float scale_of(const microexponent& f, std::uint32_t code, std::uint32_t shift) {
    if (code == low_bits(f.exponent_bits)) return std::numeric_limits<float>::quiet_NaN();
    const int e = static_cast<int>(code) - 127 - static_cast<int>(shift) + 1 - f.mantissa_bits;
    return exact_power(e < -149 ? -149 : e);
}

template <class Arch>
void elements_of(const microexponent& f, const std::uint32_t* code, float* out, std::size_t n) {
    to_sign_magnitude<Arch>(f.mantissa_bits, code, out, n);
}

template <class Arch>
sign_magnitude_values<Arch> element_values(const microexponent& f) noexcept {
    return sign_magnitude_values<Arch>(f.mantissa_bits);
}

template <class Arch>
struct block_factors<Arch, microexponent> {
    kernels::vi<Arch> mantissa_bits;

    block_factors(const microexponent& f, float) noexcept : mantissa_bits(f.mantissa_bits) {}
    void make(kernels::vi<Arch> code, kernels::vf<Arch>* factor) const noexcept {
        factor[0] = or_nan<Arch>(power_of_field<Arch>(code + kernels::vi<Arch>(1) - mantissa_bits), code);
        factor[1] = or_nan<Arch>(power_of_field<Arch>(code - mantissa_bits), code);
    }
};

}  // namespace QK_ISA
}  // namespace qk::detail
