// SPDX-License-Identifier: Apache-2.0
// Codes of microscaling formats: those of floats or of two's complement, under an E8M0 scale.
#pragma once

#include "qk/formats/codes/shared_code.hpp"
#include "qk/formats/floating/codes.hpp"
#include "qk/formats/microscaling/step.hpp"
#include "qk/isa.hpp"
#include "qk/memory/values.hpp"

namespace qk::detail {
inline namespace QK_ISA {

// ---- to codes

/// Returns the code and exponent of the scale by the rule. amax is the bits of a finite float32.
QK_INLINE constexpr shared_code scale_code(const microscaling& f, std::uint32_t amax, scale_rule rule) {
    if (amax == 0) return {0, -127};
    // Exponent and fraction; a subnormal is made normal by an exact product.
    const std::uint32_t u = amax >= 0x00800000u ? amax : as_bits(as_float(amax) * 0x1p64f);
    int e = static_cast<int>(u >> 23) - 127 - (amax >= 0x00800000u ? 0 : 64);
    const std::uint32_t fraction = u & 0x7fffffu;
    const int m = has_integer_elements(f) ? f.integer_bits - 2 : f.element.mantissa_bits;
    // The significand of the largest element, as a fraction of float32.
    const std::uint32_t top = has_integer_elements(f) ? low_bits(m) << (23 - m) : max_mantissa(f.element) << (23 - m);
    switch (rule) {
        case scale_rule::floor: break;
        case scale_rule::ceil: e += int{fraction != 0}; break;
        case scale_rule::four_over_six:  // share_block takes what was searched
        case scale_rule::search:
        case scale_rule::rceil: e += int{fraction > top}; break;
        case scale_rule::ceil_7_25: e += int{fraction > (as_bits(static_cast<float>(stretched_maximum(f))) & 0x7fffffu)}; break;
        case scale_rule::even: e += int{fraction + (1u << (22 - m)) >= 0x800000u}; break;
    }
    e = std::clamp(e - element_max_exponent(f), -127, 127);
    return {static_cast<std::uint32_t>(e + 127), e};
}

QK_INLINE shared_code share(const microscaling& f, survey s, const float*, std::size_t, std::size_t, const semantics& how) {
    if (is_nan_block(s, how.mx_specials)) return {255, 0};
    shared_code c = scale_code(f, s.finite, how.scale_rule);
    if (has_integer_elements(f)) c.exponent -= f.integer_bits - 2;  // elements are counted in steps of 2^(2 - bits) scales
    return c;
}

template <class Arch>
void codes_of(const microscaling& f, const float* y, const float* first, const float* second, std::uint32_t* code, std::size_t n) {
    if (has_integer_elements(f)) return to_twos_complement_codes<Arch>(f.integer_bits, y, first, second, code, n);
    alignas(64) float element[tile];
    for (std::size_t i = 0; i < n; ++i) element[i] = y[i] * first[i] * second[i];
    to_codes<Arch>(f.element, element, code, n);
}

template <class Arch>
exponent_codes<Arch> scale_codes_of(const microscaling& f, const kernels::fast_block<Arch>& form) noexcept {
    return {form.add, kernels::vi<Arch>(-element_max_exponent(f)), kernels::vi<Arch>(254)};
}

// ---- to values

QK_INLINE constexpr float scale_of(const microscaling&, std::uint32_t code) { return value_of(e8m0, code); }

template <class Arch>
void elements_of(const microscaling& f, const std::uint32_t* code, float* out, std::size_t n) {
    if (has_integer_elements(f)) return to_twos_complement<Arch>(f.integer_bits, exact_power(2 - f.integer_bits), code, out, n);
    to_floats<Arch>(f.element, code, out, n);
}

template <class Arch>
struct block_factors<Arch, microscaling> {
    block_factors(const microscaling&, float) noexcept {}
    void make(kernels::vi<Arch> code, kernels::vf<Arch>* factor) const noexcept {
        factor[0] = or_nan<Arch>(power_of_field<Arch>(code), code);
    }
};

}  // namespace QK_ISA
}  // namespace qk::detail
